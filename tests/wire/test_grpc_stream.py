"""test_grpc_stream.py: ModelStreamInfer, and the asyncio client: order, errors in the stream, cancellation, back-pressure, many at once."""
import asyncio
import queue
import random
import threading
import time

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.grpc.aio as aio
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd_server import SIMPLE, Server, wait_until, write_fake
from test_grpc import A, ECHO, echo_request, in_flight, tensor, triton_inputs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "echo", ECHO + "base_us = 1000\njitter_us = 3000\n", config="max_batch_size: 4\ninstance_group: {count: 4}\n")
    write_fake(root, "slow", ECHO + "base_us = 1000000\n", config="max_batch_size: 1\n")
    write_fake(root, "wide", "input = X INT64 [-1,n]\noutput = Y INT64 [-1,n] copy X\n")
    write_fake(root, "large", "input = X INT32 [1]\noutput = Y INT32 [2097152] fill 1\nbatchable = false\n")  # 8 MiB
    with Server(root, args=["--limits.http2_glitches=100000"]) as s:  # grpcio's channels share a connection; one test resets 500 streams
        yield s


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.grpc_address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_tritonclient_stream(server):
    got = queue.Queue()
    with triton.InferenceServerClient(server.grpc_address) as c:
        c.start_stream(lambda result, error: got.put((result, error)))
        for i in range(20):
            c.async_stream_infer("simple", triton_inputs(INPUT0=A + i, INPUT1=A), request_id=str(i), enable_empty_final_response=True)
        for i in range(20):
            result, error = got.get(timeout=10)
            assert error is None and result.get_response().id == str(i)
            assert (result.as_numpy("OUTPUT0") == 2 * A + i).all() and (result.as_numpy("OUTPUT1") == np.full((1, 16), i)).all()
            assert result.get_response().parameters["triton_final_response"].bool_param
        c.stop_stream()
        assert got.empty()


def test_answers_come_in_order_and_errors_between_them(stub):
    """Run times vary, four instances: without the order kept, some of 500 would overtake."""
    def requests_():
        for i in range(500):
            if i % 7 == 3:
                yield pb.ModelInferRequest(model_name="no-such", id=str(i))
            elif i % 7 == 5:
                yield echo_request("echo", i, id=str(i), outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="nothing")])
            else:
                yield echo_request("echo", i, id=str(i))

    for i, answer in enumerate(stub.ModelStreamInfer(requests_())):
        assert answer.infer_response.id == str(i)
        if i % 7 == 3:
            assert "no-such" in answer.error_message
        elif i % 7 == 5:
            assert "nothing" in answer.error_message
        else:
            assert not answer.error_message and answer.infer_response.raw_output_contents[0] == i.to_bytes(4, "little")
    assert i == 499


def test_errors_end_the_stream_when_asked_to(stub):
    asked = iter([echo_request("echo", 1, id="a"), pb.ModelInferRequest(model_name="no-such", id="b"), echo_request("echo", 2, id="c")])
    call = stub.ModelStreamInfer(asked, metadata=[("triton_grpc_error", "true")])
    assert next(call).infer_response.id == "a"
    with pytest.raises(grpc.RpcError) as e:
        next(call)
    assert e.value.code() == grpc.StatusCode.NOT_FOUND and "no-such" in e.value.details()


def test_garbage_in_a_stream_is_an_error_of_that_message(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer",
                                     response_deserializer=pb.ModelStreamInferResponse.FromString)
        answers = list(call(iter([b"\x0a\xff", echo_request("echo", 5, id="x").SerializeToString()])))
        assert "protobuf" in answers[0].error_message
        assert answers[1].infer_response.raw_output_contents[0] == b"\5\0\0\0"


def test_empty_stream(stub):
    assert list(stub.ModelStreamInfer(iter([]))) == []


def test_answers_are_sent_while_requests_still_come(stub):
    more = threading.Event()

    def asked():
        yield echo_request("echo", 1)
        assert more.wait(10)
        yield echo_request("echo", 2)

    call = stub.ModelStreamInfer(asked())
    assert next(call).infer_response.raw_output_contents[0] == b"\1\0\0\0"
    more.set()
    assert next(call).infer_response.raw_output_contents[0] == b"\2\0\0\0"
    assert list(call) == []


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_large_messages(stub, compression):
    x = [np.random.default_rng(i).integers(0, 9, (1, 100_000)).astype(np.int64) for i in range(8)]
    asked = (pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [1, 100_000])], raw_input_contents=[v.tobytes()]) for v in x)
    for v, answer in zip(x, stub.ModelStreamInfer(asked, compression=compression)):
        assert answer.infer_response.raw_output_contents[0] == v.tobytes()


def test_a_cancelled_stream_cancels_what_it_started(server, stub):
    call = stub.ModelStreamInfer(iter([echo_request("slow", i) for i in range(5)]))
    wait_until(lambda: in_flight(server) == 5, what="all wait or run")
    call.cancel()
    wait_until(lambda: in_flight(server) == 0, 4, "all cancelled")  # run one after the other, they take five
    server.alive()


def test_a_deadline_covers_the_whole_stream(server, stub):
    start = time.monotonic()
    call = stub.ModelStreamInfer(iter([echo_request("slow", i) for i in range(5)]), timeout=0.4)
    with pytest.raises(grpc.RpcError) as e:
        list(call)
    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - start < 3
    wait_until(lambda: in_flight(server) == 0, what="nothing goes on")


def test_a_slow_reader_stops_its_own_stream_only(server):
    """512 MiB of answers for a client that reads none: memory stays, others are served, and the rest comes when it reads on."""
    x = triton.InferInput("X", [1], "INT32")
    x.set_data_from_numpy(np.zeros(1, np.int32))
    with triton.InferenceServerClient(server.grpc_address) as c:
        c.infer("large", [x])  # the engine's buffers are there
        before = server.rss_bytes()
        reading = threading.Event()
        with grpc.insecure_channel(server.grpc_address, options=[("grpc.max_receive_message_length", -1), ("grpc.http2.lookahead_bytes", 65536)]) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            asked = (pb.ModelInferRequest(model_name="large", inputs=[tensor("X", "INT32", [1], int_contents=[0])]) for _ in range(64))
            call = stub.ModelStreamInfer(asked)
            time.sleep(1)
            for _ in range(10):
                c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A))
            grown = server.rss_bytes() - before
            assert grown < 300 << 20, grown
            n = sum(len(a.infer_response.raw_output_contents[0]) == 8 << 20 for a in call)
            assert n == 64


def test_asyncio_client(server):
    async def run():
        async with aio.InferenceServerClient(server.grpc_address) as c:
            assert await c.is_server_ready() and await c.is_model_ready("simple")

            async def one(i):
                r = await c.infer("simple", triton_inputs(INPUT0=A + i, INPUT1=A), request_id=str(i))
                assert (r.as_numpy("OUTPUT0") == 2 * A + i).all() and r.get_response().id == str(i)

            await asyncio.gather(*(one(i) for i in range(200)))

            async def asked():
                for i in range(50):
                    yield {"model_name": "simple", "inputs": triton_inputs(INPUT0=A + i, INPUT1=A), "request_id": str(i)}

            seen = 0
            async for result, error in c.stream_infer(asked()):
                assert error is None and result.get_response().id == str(seen)
                seen += 1
            assert seen == 50
            with pytest.raises(Exception, match="NOT_FOUND"):
                await c.infer("no-such", triton_inputs(INPUT0=A))

            # a cancelled call frees what it held
            slow = triton.InferInput("X", [1, 1], "INT32")
            slow.set_data_from_numpy(np.zeros((1, 1), np.int32))
            task = asyncio.ensure_future(c.infer("slow", [slow]))
            while in_flight(server) != 1:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            wait_until(lambda: in_flight(server) == 0, 0.8, "cancelled")

    asyncio.run(run())


def test_500_streams_reset_at_random_times(server):
    """None of them disturbs one that stays, and nothing is left behind."""
    values = iter(range(1 << 30))
    stop = threading.Event()
    bad = []

    def steady():
        with grpc.insecure_channel(server.grpc_address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            sent = queue.Queue()

            def asked():
                while not stop.is_set():
                    if sent.qsize() > 32:  # or grpcio would take thousands before the first answer
                        time.sleep(0.001)
                        continue
                    v = next(values)
                    sent.put(v)
                    yield echo_request("echo", v)

            for answer in stub.ModelStreamInfer(asked()):
                v = sent.get()
                if answer.error_message or answer.infer_response.raw_output_contents[0] != v.to_bytes(4, "little"):
                    bad.append((v, answer))

    thread = threading.Thread(target=steady)
    thread.start()
    rng = random.Random(7)
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(500):  # more than the default budget of a connection
            call = stub.ModelStreamInfer(iter([echo_request("echo", i) for i in range(rng.randrange(1, 9))]))
            if rng.random() < 0.5:
                next(call)
            time.sleep(rng.random() * 0.004)
            call.cancel()
    stop.set()
    thread.join(20)
    assert not thread.is_alive() and not bad, bad[:3]
    wait_until(lambda: in_flight(server) == 0, what="nothing is left")
    assert requests.get(server.url + "/v2/health/ready").status_code == 200
