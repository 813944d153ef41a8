"""test_redis_masters.py: quotas through a Redis whose place changes: a master that sentinels name, and its failover; a cluster whose other server has our
keys. Real servers."""
import contextlib

import pytest
import requests

from inferd_server import SIMPLE, wait_until, write_fake
from redis_server import Redis, Sentinel, free_port
from test_quota_redis import infer, is_shared, serve, status

POLICIES = "policies: [{name: day, match: {model: day}, requests_per_day: 4}, {name: once, match: {model: once}, requests_per_day: 1}]\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("masters")
    for name in ("day", "once"):
        write_fake(root / "models", name, SIMPLE)
    (root / "quotas.yaml").write_text(POLICIES)
    return root


def low_port():
    """Whose cluster bus, 10000 above, is a port as well."""
    while (port := free_port()) > 55000:
        pass
    return port


def used(redis):
    return redis.hash("{inferd}:q:m:day:").get("u4")


def fail_over(sentinel, master, replica):
    """Sentinel's own: some ten seconds."""
    wait_until(lambda: len(sentinel.call("SENTINEL", "replicas", "mymaster")) == 1)
    wait_until(lambda: sentinel.call("SENTINEL", "FAILOVER", "mymaster") == "OK")


def fail_over_by_hand(sentinel, master, replica):
    """What a failover does, step by step, without sentinel's waits between."""
    replica.call("REPLICAOF", "NO", "ONE")
    sentinel.call("SENTINEL", "REMOVE", "mymaster")
    sentinel.call("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", replica.port, 1)
    master.call("REPLICAOF", "127.0.0.1", replica.port)
    master.call("CLIENT", "KILL", "TYPE", "normal")


@pytest.mark.parametrize("fail_over", [fail_over_by_hand, pytest.param(fail_over, marks=pytest.mark.soak)])
def test_the_master_is_asked_for_and_followed(root, fail_over):
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(contextlib.closing(Redis()))
        replica = stack.enter_context(contextlib.closing(Redis("--replicaof", "127.0.0.1", str(master.port))))
        wait_until(lambda: "master_link_status:up" in replica.call("INFO", "replication"))
        sentinel = stack.enter_context(contextlib.closing(Sentinel(master)))
        url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/mymaster"  # the first one is not there
        server = stack.enter_context(serve(root, url))
        wait_until(lambda: is_shared(server))
        assert status(server)["redis"]["address"] == f"127.0.0.1:{master.port}"
        assert [infer(server, "day").status_code for _ in range(2)] == [200, 200]
        wait_until(lambda: used(master) == "2")
        wait_until(lambda: used(replica) == "2")
        fail_over(sentinel, master, replica)
        wait_until(lambda: sentinel.names() == replica.port)
        wait_until(lambda: status(server)["redis"]["address"] == f"127.0.0.1:{replica.port}" and is_shared(server))
        assert [infer(server, "day").status_code for _ in range(3)] == [200, 200, 429]
        wait_until(lambda: used(replica) == "4")
        sentinel.kill()
        replica.kill()  # nobody is left to ask: counted here
        wait_until(lambda: not is_shared(server))
        assert infer(server, "once").status_code == 200
        wait_until(lambda: "sentinel" in status(server)["redis"]["reason"])


def test_a_replica_is_no_master(root):
    """A sentinel that hasn't heard yet: whoever it names says itself what it is."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(contextlib.closing(Redis()))
        replica = stack.enter_context(contextlib.closing(Redis("--replicaof", "127.0.0.1", str(master.port))))
        liar = stack.enter_context(contextlib.closing(Sentinel(replica)))
        server = stack.enter_context(serve(root, f"redis+sentinel://127.0.0.1:{liar.port}/mymaster"))
        wait_until(lambda: "is none" in status(server)["redis"].get("reason", ""))
        assert not is_shared(server) and infer(server, "day").status_code == 200
        unknown = stack.enter_context(serve(root, f"redis+sentinel://127.0.0.1:{liar.port}/other"))
        wait_until(lambda: 'names no master "other"' in status(unknown)["redis"].get("reason", ""))


def test_a_cluster_says_where_our_keys_are(root):
    with contextlib.ExitStack() as stack:
        first, second = [stack.enter_context(contextlib.closing(Redis("--cluster-enabled", "yes", port=low_port()))) for _ in range(2)]
        second.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        first.call("CLUSTER", "MEET", "127.0.0.1", str(second.port))
        for r in (first, second):
            wait_until(lambda: "cluster_state:ok" in r.call("CLUSTER", "INFO"))
        server = stack.enter_context(serve(root, first.url))

        def moved():
            infer(server, "day")
            return status(server)["redis"]["address"] == f"127.0.0.1:{second.port}" and is_shared(server)

        wait_until(moved)
        assert [infer(server, "once").status_code for _ in range(2)] == [200, 429]
        assert second.call("DBSIZE") > 0 and first.call("DBSIZE") == 0
        assert requests.get(server.url + "/v2/health/ready", timeout=10).status_code == 200
