"""test_gateway_grpc.py: gRPC through the gateway: tritonclient to real replicas, grpcio streams both ways to a grpcio server, deadlines, cancels, statuses,
metadata, the model's name in the message, health checks."""
import concurrent.futures
import threading
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from inferd_server import SIMPLE, Server, wait_until, write_fake
from test_auth_keys import make
from test_gateway import gateway, pool, status, text_of, total, wait_idle
from test_grpc import A, ECHO, echo_request, tensor, triton_inputs

WIDE = "input = X INT32 [-1,n]\noutput = Y INT32 [-1,n] copy X\n"
PATH = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    root = tmp_path_factory.mktemp("replica")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "echo", ECHO)
    write_fake(root, "wide", WIDE)
    with Server(root) as a, Server(root) as b:
        yield a, b


class Peer:
    """A grpcio server of any bytes: what it was asked, and what it does."""

    def __init__(self, behave):
        self.behave, self.calls, self.ended = behave, [], threading.Semaphore(0)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1),
                                                                                          ("grpc.max_send_message_length", -1)])
        peer = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.stream_stream_rpc_method_handler(peer.run)

        self.server.add_generic_rpc_handlers((Handler(),))
        self.address = "127.0.0.1:%d" % self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def run(self, requests_, context):
        self.calls.append(context)
        context.add_callback(self.ended.release)
        yield from self.behave(requests_, context)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None)


def start(tmp_path, u, *args, route=(), **more):
    servers = u if isinstance(u, (list, tuple)) else [u]
    return gateway(tmp_path, text_of([pool(servers, **{"protocol": "http2", **more})], [{"path_prefix": "/", "upstream": "p", **dict(route)}]), "--http.threads=1", *args)


def channel_to(g):
    return grpc.insecure_channel(g.address, options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])


def raw(channel, kind="unary_unary", path="/a.B/C"):
    return getattr(channel, kind)(path, request_serializer=None, response_deserializer=None)


def test_tritonclient_through_the_gateway(tmp_path, replicas):
    """Unary and streamed inference, metadata and errors, by both replicas in turn."""
    with start(tmp_path, replicas) as g, triton.InferenceServerClient(g.address) as c:
        for _ in range(10):
            assert (c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A)).as_numpy("OUTPUT0") == 2 * A).all()
        for r in replicas:
            g.wait_metric("inferd_upstream_requests_total", 5, upstream=r.address, outcome="ok")
        assert c.get_model_metadata("simple").name == "simple"
        assert c.is_server_live()
        with pytest.raises(InferenceServerException, match="nobody") as e:
            c.infer("nobody", triton_inputs(X=np.zeros((1, 1), np.int32)))
        assert "NOT_FOUND" in str(e.value.status())
        got, lock = [], threading.Semaphore(0)
        c.start_stream(lambda result, error: (got.append((result, error)), lock.release()))
        for i in range(20):
            c.async_stream_infer("echo", triton_inputs(X=np.array([[i]], np.int32)), request_id=str(i))
        for _ in range(20):
            assert lock.acquire(timeout=10)
        c.stop_stream()
        assert [int(r.as_numpy("Y")[0][0]) for r, _ in got] == list(range(20)) and not any(e for _, e in got)


def test_the_model_in_the_message(tmp_path, repository, replicas):
    """The name decides without re-encoding: to a pool or to a model of this process, unary and streamed; every message of a call is held to it."""
    write_fake(repository, "mine", ECHO)
    write_fake(repository, "mine_too", WIDE)
    routes = [{"model": "echo", "upstream": "p"}, {"model": "wide", "upstream": "p"}]
    config = tmp_path / "g.yaml"
    config.write_text(text_of([pool([replicas[0]], protocol="http2")], routes))
    with Server(repository, args=(f"--config={config}",)) as g, channel_to(g) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for model in ("echo", "mine"):
            assert stub.ModelInfer(echo_request(model, 7)).raw_output_contents[0] == b"\x07\0\0\0"
            assert [r.infer_response.model_name for r in stub.ModelStreamInfer(iter([echo_request(model, i) for i in range(5)]))] == [model] * 5
            assert stub.ModelMetadata(pb.ModelMetadataRequest(name=model)).name == model
        for model in ("wide", "mine_too"):  # many pieces
            big = pb.ModelInferRequest(model_name=model, inputs=[tensor("X", "INT32", [1, 200_000], int_contents=range(200_000))])
            out = stub.ModelInfer(big).raw_output_contents[0]
            assert (np.frombuffer(out, np.int32) == np.arange(200_000)).all()
        g.wait_metric("inferd_upstream_requests_total", 4, outcome="ok")
        with pytest.raises(grpc.RpcError) as e:
            stub.ModelInfer(echo_request("nobody", 1))
        assert e.value.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as e:
            list(stub.ModelStreamInfer(iter([echo_request("echo", 1), echo_request("mine", 1)])))
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT and 'another model than the first one did, "echo"' in e.value.details()
        with pytest.raises(grpc.RpcError) as e:
            raw(channel, path=PATH + "ModelInfer")(echo_request("echo", 1).SerializeToString() + echo_request("mine", 2).SerializeToString())
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as e:
            stub.ModelInfer(echo_request("echo", 1, id="x" * 10000), compression=grpc.Compression.Gzip)
        assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and "send it uncompressed" in e.value.details()
        g.alive()


def test_keys_are_held_to_their_models(tmp_path, replicas):
    """A caller that may use one model: the name in the message is authorised, that of later messages too."""
    keys = tmp_path / "keys"
    key = make(keys, "some", "-s", "infer", "-m", "echo")
    with start(tmp_path, replicas[:1], f"--auth.keys_file={keys}") as g, channel_to(g) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        meta = [("x-api-key", key)]
        assert stub.ModelInfer(echo_request("echo", 1), metadata=meta).model_name == "echo"
        for call in (lambda: stub.ModelInfer(echo_request("simple", 1), metadata=meta),
                     lambda: list(stub.ModelStreamInfer(iter([echo_request("echo", 1), echo_request("simple", 1)]), metadata=meta)),
                     lambda: stub.ModelInfer(echo_request("echo", 1))):
            with pytest.raises(grpc.RpcError) as e:
                call()
            assert e.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED)


def test_streams_both_ways(tmp_path):
    """Each message is answered before the next is sent; metadata, trailers and status arrive; so does an error behind messages."""
    def echo(requests_, context):
        sent = dict(context.invocation_metadata())
        context.send_initial_metadata([("x-initial", sent["x-up"])])
        for m in requests_:
            if m == b"fail":
                context.set_trailing_metadata([("x-trailing", "t")])
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not % this ü")
            yield b"<" + m + b">"
        context.set_trailing_metadata([("x-trailing", "t"), ("x-bin", b"\x00\xff")])

    with Peer(echo) as u, start(tmp_path, u) as g, channel_to(g) as channel:
        go, asked = threading.Semaphore(0), []

        def ask():
            for i in range(5):
                asked.append(i)
                yield b"m%d" % i
                assert go.acquire(timeout=10)

        call = raw(channel, "stream_stream")(ask(), metadata=[("x-up", "1")])
        for i in range(5):
            assert next(call) == b"<m%d>" % i and len(asked) == i + 1
            go.release()
        assert next(call, None) is None
        assert dict(call.initial_metadata())["x-initial"] == "1"
        trailing = dict(call.trailing_metadata())
        assert trailing["x-trailing"] == "t" and call.code() == grpc.StatusCode.OK
        call = raw(channel, "stream_stream")(iter([b"a", b"fail"]), metadata=[("x-up", "1")])
        assert next(call) == b"<a>"
        with pytest.raises(grpc.RpcError) as e:
            next(call)
        assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION and e.value.details() == "not % this ü"
        assert dict(e.value.trailing_metadata())["x-trailing"] == "t"
        wait_until(lambda: total(g, "inferd_api_requests_total", code="9") == 1)  # FAILED_PRECONDITION
        g.wait_metric("inferd_api_requests_total", 1, code="0")
        big = b"x" * (8 << 20)
        assert raw(channel, "stream_stream")(iter([big] * 3), metadata=[("x-up", "1")]).__next__() == b"<" + big + b">"


def test_deadlines_travel_and_end_the_call(tmp_path):
    """grpc-timeout is what is left of it; a server that ignores it is cut off in time, also in the middle of a stream."""
    left = []

    def behave(requests_, context):
        left.append(context.time_remaining())
        for m in requests_:
            if m == b"first":
                yield b"answer"
        while context.is_active():
            time.sleep(0.02)

    with Peer(behave) as u, start(tmp_path, u) as g, channel_to(g) as channel:
        for message in (b"none", b"first"):
            begin = time.monotonic()
            call = raw(channel, "stream_stream")(iter([message]), timeout=0.5)
            with pytest.raises(grpc.RpcError) as e:
                list(call)
            assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - begin < 2
            assert 0 < left[-1] < 0.52  # grpcio rounds it up
            assert u.ended.acquire(timeout=5)


@pytest.mark.parametrize("phase", ["before_answer", "streaming"])
def test_cancel(tmp_path, phase):
    def behave(requests_, context):
        if phase == "streaming":
            yield b"1"
        while context.is_active():
            time.sleep(0.01)

    with Peer(behave) as u, start(tmp_path, u) as g, channel_to(g) as channel:
        call = raw(channel, "stream_stream")(iter([b"x"]))
        if phase == "streaming":
            assert next(call) == b"1"
        wait_until(lambda: u.calls)
        call.cancel()
        assert u.ended.acquire(timeout=5)
        g.wait_metric("inferd_upstream_requests_total", 1, outcome="cancelled")
        wait_idle(g)


def test_failures(tmp_path):
    """UNAVAILABLE without an answer is tried elsewhere, as 503 is; a server that dies in a stream is UNAVAILABLE at the client; errors of the gateway's own
    are statuses."""
    def refuse(requests_, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        yield b""

    def good(requests_, context):
        next(requests_)
        yield b"good"

    with Peer(refuse) as bad, Peer(good) as fine, start(tmp_path, [bad, fine], max_fails=1000) as g, channel_to(g) as channel:
        assert [raw(channel)(b"x") for _ in range(6)] == [b"good"] * 6
        assert len(bad.calls) == 3
    with Peer(refuse) as bad, start(tmp_path, bad, max_fails=1000) as g, channel_to(g) as channel:
        with pytest.raises(grpc.RpcError) as e:
            raw(channel)(b"x")
        assert (e.value.code(), e.value.details()) == (grpc.StatusCode.UNAVAILABLE, "every server that was asked answered 503")

        def counted():  # UNAVAILABLE and CANCELLED
            return sum(total(g, "inferd_api_requests_total", code=code) for code in ("14", "1"))

        wait_until(lambda: counted() == 1)

        def dies(requests_, context):
            yield b"1"
            bad.server.stop(0)
            time.sleep(5)
        bad.behave = dies
        call = raw(channel, "unary_stream")(b"x")
        assert next(call) == b"1"
        with pytest.raises(grpc.RpcError) as e:
            next(call)
        assert e.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        wait_until(lambda: counted() == 2)
        with pytest.raises(grpc.RpcError) as e:
            raw(channel)(b"x")
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "can't be reached" in e.value.details()
    with Peer(good) as u, start(tmp_path, u, protocol="http1") as g, channel_to(g) as channel:
        with pytest.raises(grpc.RpcError) as e:
            raw(channel)(b"x")
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "protocol: http2" in e.value.details()


def test_health_checks(tmp_path):
    """check.grpc asks gRPC's health service: NOT_SERVING and unknown services take the server out, SERVING brings it back."""
    servicer = health.HealthServicer()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
    server.start()
    servicer.set("llm", health_pb2.HealthCheckResponse.NOT_SERVING)
    check = {"grpc": True, "service": "llm", "interval": "50ms", "rise": 1, "fall": 1}
    with start(tmp_path, [address], check=check) as g, channel_to(g):
        def state():
            return status(g)["servers"][0]["state"]
        wait_until(lambda: state() == "down")
        servicer.set("llm", health_pb2.HealthCheckResponse.SERVING)
        wait_until(lambda: state() == "ready")
        servicer.set("llm", health_pb2.HealthCheckResponse.NOT_SERVING)
        wait_until(lambda: state() == "down")
    server.stop(None)
