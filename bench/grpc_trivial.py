"""grpc_trivial.py: unary ModelInfer calls a second on a model that does nothing, against our own HTTP with binary tensors, a Python grpcio echo
and a grpc-go echo that answer a constant of the same size; one core for each server, the load tool (h2load for all) on the other.

Budgets: issue 4: >= 0.7 of the HTTP figure, >= 3 x grpcio's; grpc-go's ratio is reported beside them, where there is Go.
"""
import pathlib
import sys
import tempfile

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from common import *

need("h2load")
ROUNDS, PORT, PEER = 5, 18500, 18510
GO_ECHO = ROOT / ".deps/bin/grpc_echo"
METHOD = "/inference.GRPCInferenceService/ModelInfer"

GRPCIO_ECHO = """
import asyncio, sys, grpc
answer = bytes(int(sys.argv[2]))
class Any(grpc.GenericRpcHandler):
    def service(self, details):
        async def echo(request, context):
            return answer
        return grpc.unary_unary_rpc_method_handler(echo)
async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Any(),))
    server.add_insecure_port(sys.argv[1])
    await server.start()
    await server.wait_for_termination()
asyncio.run(main())
"""


def h2load(port, path, body, headers, h1=False, connections=8, streams=4, seconds=4):
    """One run; {'rps', 'errors'}. With HTTP/1.1 as many requests are under way, one a connection."""
    shape = ["--h1", f"-c{connections * streams}"] if h1 else [f"-c{connections}", f"-m{streams}"]
    command = ["h2load", "-t1", *shape, f"-D{seconds}", "--warm-up-time=1", "-d", body, *(f"-H{k}: {v}" for k, v in headers.items()),
               f"http://127.0.0.1:{port}{path}"]
    out = subprocess.run(pinned(CLIENT_CORE, command), capture_output=True, text=True, check=True).stdout
    rps = float(re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", out)[1])
    done = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", out)
    return {"rps": rps, "errors": sum(map(int, done.groups()[1:]))}


def wait_grpc(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(30)


def build_go_echo():
    if not GO_ECHO.exists() and shutil.which("go"):
        subprocess.run(["go", "build", "-o", GO_ECHO, "."], cwd=ROOT / "bench/grpc_echo", check=True)
    return GO_ECHO.exists()


def measure(name, peer, budget, ours, theirs):
    a, b = alternate(ROUNDS, ours, theirs)
    detail = f"inferd {median(a, 'rps'):.0f}/s, {peer} {median(b, 'rps'):.0f}/s, {sum(r['errors'] for r in a + b)} errors"
    ratio = median(a, "rps") / median(b, "rps")
    if budget is None:
        print(f"{name}: {ratio:.2f} (reported); {detail}")
    else:
        report(name, ratio, budget, detail=detail)


with tempfile.TemporaryDirectory() as repository:
    scratch = pathlib.Path(repository)
    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    http_body, http_headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    request = pb.ModelInferRequest(model_name="trivial", raw_input_contents=[floats(16)],
                                   inputs=[pb.ModelInferRequest.InferInputTensor(name="X", datatype="FP32", shape=[1, 16])])
    message = request.SerializeToString()
    (scratch / "grpc").write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    (scratch / "http").write_bytes(http_body)
    headers = {"content-type": "application/grpc", "te": "trailers"}
    with inferd(repository, PORT) as ours:
        with grpc.insecure_channel(f"127.0.0.1:{PORT}") as channel:
            size = len(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request).SerializeToString())
        call = lambda port=PORT: h2load(port, METHOD, scratch / "grpc", headers)
        measure("grpc_trivial requests/s, gRPC / HTTP binary", "HTTP", 0.7, call,
                lambda: h2load(PORT, "/v2/models/trivial/infer", scratch / "http", http_headers, h1=True))
        with Process(pinned(SERVER_CORE, [sys.executable, "-c", GRPCIO_ECHO, f"127.0.0.1:{PEER}", str(size)])):
            wait_grpc(PEER)
            measure("grpc_trivial requests/s, inferd / grpcio echo", "grpcio", 3.0, call, lambda: call(PEER))
        if build_go_echo():
            with Process(pinned(SERVER_CORE, [GO_ECHO, f"127.0.0.1:{PEER + 1}", str(size)]), env={"GOMAXPROCS": "1"}):
                wait_grpc(PEER + 1)
                measure("grpc_trivial requests/s, inferd / grpc-go echo", "grpc-go", None, call, lambda: call(PEER + 1))
