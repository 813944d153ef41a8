"""test_gateway_hedge.py: a second server is asked while the first keeps silent: who wins, who is cancelled, and that each is counted once."""
import concurrent.futures
import time

import pytest
import requests

from gateway_upstream import Upstream, answer, reset, silent
from inferd_server import wait_equal, wait_until
from test_gateway import gateway, pool, text_of, total, wait_idle

ROUTES = [{"path": "/x", "upstream": "p"}, {"path": "/once", "upstream": "p", "idempotent": False}]


def slow(seconds, body):
    def behave(connection, request):
        time.sleep(seconds)
        answer(body)(connection, request)
    return behave


def by_outcome(g, u):
    return {o: int(total(g, "inferd_upstream_requests_total", upstream=u.address, outcome=o))
            for o in ("ok", "gateway_failure", "timeout", "cancelled")}


def hedges(g):
    return {r: int(total(g, "inferd_upstream_hedges_total", result=r)) for r in ("started", "won", "lost", "failed")}


@pytest.fixture
def pair():
    with Upstream(answer(b'"a"')) as a, Upstream(answer(b'"b"')) as b:
        yield a, b


def test_the_faster_wins_and_the_other_is_cancelled(tmp_path, pair):
    a, b = pair
    a.behave = silent()
    with gateway(tmp_path, text_of([pool(pair, hedge={"after": "50ms"})], ROUTES)) as g:
        for _ in range(6):  # every other one begins at the silent server
            start = time.monotonic()
            reply = requests.post(g.url + "/x", data=b"body")
            assert reply.json() == "b" and time.monotonic() - start < 2
        wait_equal(lambda: hedges(g), {"started": 3, "won": 3, "lost": 0, "failed": 0})
        wait_equal(lambda: by_outcome(g, a), {"ok": 0, "gateway_failure": 0, "timeout": 0, "cancelled": 3})
        wait_equal(lambda: by_outcome(g, b), {"ok": 6, "gateway_failure": 0, "timeout": 0, "cancelled": 0})
        assert all(r.body == b"body" for r in a.requests + b.requests)
        for _ in range(3):
            assert a.closed.acquire(timeout=5)  # the loser learns of it by its connection's end
        wait_idle(g)


def test_the_first_may_still_win(tmp_path, pair):
    a, b = pair
    a.behave, b.behave = slow(0.3, b'"a"'), slow(1.0, b'"b"')
    with gateway(tmp_path, text_of([pool([{"address": a.address, "weight": 100}, b], hedge={"after": "100ms"})], ROUTES)) as g:
        assert requests.get(g.url + "/x").json() == "a"
        wait_equal(lambda: hedges(g), {"started": 1, "won": 0, "lost": 1, "failed": 0})
        wait_equal(lambda: by_outcome(g, b)["cancelled"], 1)


def test_a_failing_hedge_hurts_nobody_and_a_failing_first_leaves_it_to_the_hedge(tmp_path, pair):
    a, b = pair
    first = {"address": a.address, "weight": 100}
    with gateway(tmp_path, text_of([pool([first, b], hedge={"after": "50ms"}, max_fails=1000)], ROUTES)) as g:
        a.behave, b.behave = slow(0.3, b'"a"'), reset
        assert requests.get(g.url + "/x").json() == "a"
        wait_equal(lambda: hedges(g), {"started": 1, "won": 0, "lost": 0, "failed": 1})

        def breaks(connection, request):
            time.sleep(0.2)
            return "close"
        a.behave, b.behave = breaks, slow(0.5, b'"b"')
        assert requests.get(g.url + "/x").json() == "b"
        wait_equal(lambda: hedges(g), {"started": 2, "won": 1, "lost": 0, "failed": 1})
        b.behave = breaks
        assert requests.get(g.url + "/x").status_code == 502
        wait_idle(g)


def test_what_is_not_hedged(tmp_path, pair):
    """Routes that may not be repeated, streams, and what is beyond the budget (three at once here)."""
    a, b = pair
    a.behave = b.behave = slow(0.4, b'"x"')
    with gateway(tmp_path, text_of([pool(pair, balance="llm", hedge={"after": "50ms"})], ROUTES)) as g:
        assert requests.get(g.url + "/once").status_code == 200
        assert requests.post(g.url + "/x", json={"model": "m", "stream": True, "prompt": "p"}).status_code == 200
        assert hedges(g)["started"] == 0
        with concurrent.futures.ThreadPoolExecutor(8) as many:
            assert all(f.result().status_code == 200 for f in [many.submit(requests.get, g.url + "/x") for _ in range(8)])
        assert 1 <= hedges(g)["started"] <= 3
        wait_equal(lambda: sum(hedges(g)[r] for r in ("won", "lost", "failed")), hedges(g)["started"])


def test_the_percentile_is_learned(tmp_path, pair):
    """After a hundred answers of a few milliseconds, a request that hangs is asked again after about as long as the slowest of them."""
    a, b = pair
    a.behave = b.behave = slow(0.003, b'"x"')
    with gateway(tmp_path, text_of([pool(pair, hedge={"percentile": 95})], ROUTES)) as g:
        session = requests.Session()
        for _ in range(99):
            assert session.get(g.url + "/x").status_code == 200
        assert hedges(g)["started"] == 0
        for _ in range(5):
            session.get(g.url + "/x")
        a.behave = silent()
        start = time.monotonic()
        for _ in range(2):
            assert session.get(g.url + "/x").status_code == 200
        assert time.monotonic() - start < 1.5
        wait_until(lambda: hedges(g)["won"] >= 1)
