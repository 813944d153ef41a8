"""test_grpc_hostile.py: gRPC calls that no client library makes, frame by frame: every class of malformed framing, protobuf, compression and
metadata. After each: a gRPC status that says whose fault it was, and a server that serves the next one."""
import gzip
import random
import zlib

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, RstStreamFrame
from tritonclient.grpc import service_pb2 as pb

from http2_raw import Http2
from inferd_server import SIMPLE, Server, wait_until, write_fake
from test_grpc import tensor

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
META = "/inference.GRPCInferenceService/ModelMetadata"
OK, CANCELLED, INVALID, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED = "0", "1", "3", "5", "8", "12"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "wide", "input = X INT64 [-1,n]\noutput = Y INT64 [-1,n] copy X\n")
    with Server(root, args=["--limits.max_body_bytes=1MiB", "--limits.http2_glitches=100000"]) as s:
        yield s


@pytest.fixture(autouse=True)
def others_are_served(server):
    yield
    with Http2(server) as c:
        assert call(c, INFER, frame(good().SerializeToString()))[0] == OK
    server.alive()


def good():
    return pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [1, 2])], raw_input_contents=[bytes(16)])


def frame(message, flag=0, length=None):
    return bytes([flag]) + (len(message) if length is None else length).to_bytes(4, "big") + message


def call(c, path, body, extra=(), content_type="application/grpc", end=True, chunks=1):
    """(grpc-status, grpc-message, body, fields) of one call."""
    head, stream = c.head("POST", path, end=False, extra=[("content-type", content_type), ("te", "trailers"), *extra])
    size = min(max(1, -(-len(body) // chunks)), 16384)
    pieces = [body[i:i + size] for i in range(0, len(body), size)] or [b""]
    c.send(head, *(c.data(stream, p, end=end and i == len(pieces) - 1) for i, p in enumerate(pieces)))
    return answer(c, stream)


def answer(c, stream):
    fields, body = {}, b""
    while True:
        f = c.wait(lambda f: f.stream_id == stream)
        if isinstance(f, RstStreamFrame):
            return "reset", f.error_code, body, fields
        if isinstance(f, HeadersFrame):
            fields.update(f.fields)
        elif isinstance(f, DataFrame):
            body += f.data
        if "END_STREAM" in f.flags:
            assert fields[":status"] == "200" and fields["content-type"] == "application/grpc"
            return fields["grpc-status"], fields.get("grpc-message", ""), body, fields


RAW = good().SerializeToString()
FRAMES = {
    "empty body": (b"", INVALID), "half a prefix": (b"\0\0\0", INVALID), "cut": (frame(RAW)[:-1], INVALID),
    "longer than announced": (frame(RAW) + b"x", UNIMPLEMENTED), "two messages": (frame(RAW) * 2, UNIMPLEMENTED),
    "flag 2": (frame(RAW, 2), INVALID), "flag 255": (frame(RAW, 255), INVALID),
    "announces 4 GiB": (frame(RAW, length=0xffffffff), EXHAUSTED), "announces 2 MiB": (frame(RAW, length=2 << 20), EXHAUSTED),
    "compressed without a coding": (frame(gzip.compress(RAW), 1), INVALID), "empty message": (frame(b""), INVALID),
}


@pytest.mark.parametrize("name", FRAMES)
def test_framing(server, name):
    body, status = FRAMES[name]
    with Http2(server) as c:
        got, text, _, _ = call(c, INFER, body)
        assert got == status and text, (got, text)


PROTOBUF = {
    "cut varint": b"\x08\x80", "field 0": b"\x00\x01", "wire type 6": b"\x0e", "wire type 7": b"\x0f", "length past the end": b"\x0a\x7fx",
    "length of 2^64": b"\x0a" + b"\xff" * 9 + b"\x01", "eleven byte varint": b"\x08" + b"\x80" * 10 + b"\x01", "lone group end": b"\x0c",
    "open group": b"\x0b", "1000 open groups": b"\x0b" * 1000, "name not UTF-8": b"\x0a\x01\xff", "name as a number": b"\x08\x05",
    "input as a number": b"\x28\x05", "raw as a number": RAW[:0] + b"\x0a\x04wide\x38\x01",
    "deep unknown message": b"\x0a\x04wide" + b"\x7a\x7f" * 60, "dims cut": b"\x0a\x04wide\x2a\x0c\x0a\x01X\x12\x05INT64\x1a\x01\x80",
    "20,000 empty inputs": b"\x2a\x00" * 20_000, "20,000 parameters": b"\x22\x00" * 20_000, "huge dims": pb.ModelInferRequest(
        model_name="wide", inputs=[tensor("X", "INT64", [1 << 62, 1 << 62])], raw_input_contents=[b""]).SerializeToString(),
    "negative dims": pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [-5, -5])], raw_input_contents=[bytes(200)]).SerializeToString(),
    "leftover bytes": pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [1, 1])], raw_input_contents=[bytes(9)]).SerializeToString(),
    "bytes element past the end": pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "BYTES", [1])],
                                                       raw_input_contents=[b"\xff\xff\xff\x7fx"]).SerializeToString(),
}


@pytest.mark.parametrize("name", PROTOBUF)
def test_protobuf(server, name):
    with Http2(server) as c:
        got, text, _, _ = call(c, INFER, frame(PROTOBUF[name]))
        assert got == INVALID and text, (got, text)
        # in a stream it is an error of that message
        got, _, body, _ = call(c, STREAM, frame(PROTOBUF[name]) + frame(RAW))
        assert got == OK
        n = int.from_bytes(body[1:5], "big")
        assert pb.ModelStreamInferResponse.FromString(body[5:5 + n]).error_message
        second = pb.ModelStreamInferResponse.FromString(body[10 + n:])
        assert not second.error_message and second.infer_response.raw_output_contents[0] == bytes(16)


@pytest.mark.parametrize("path", [META, "/inference.GRPCInferenceService/RepositoryIndex", "/inference.GRPCInferenceService/RepositoryModelLoad",
                                  "/inference.GRPCInferenceService/ModelStatistics", "/grpc.health.v1.Health/Check"])
def test_protobuf_of_the_other_methods(server, path):
    with Http2(server) as c:
        for message in (b"\x0a\xff", b"\x0f", b"\x0b", b"\x0a\x7f", b"\x12\x80", *([b"\x1a\x04\x0a\x7fxx"] if "Load" in path else [])):
            assert call(c, path, frame(message))[0] == INVALID


@pytest.mark.parametrize("path", ["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.health.v1.Health/Watch"])
def test_protobuf_of_the_other_streams(server, path):
    with Http2(server) as c:
        assert call(c, path, frame(b"\x0a\xff"))[0] == INVALID
        assert call(c, path, frame(b"\x0a\x01x")[:-1])[0] == INVALID


def test_compressed_messages(server):
    bomb = gzip.compress(bytes(40 << 20), 9)
    assert len(bomb) < 50_000
    with Http2(server) as c:
        for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            status, _, body, fields = call(c, INFER, frame(pack(RAW), 1), [("grpc-encoding", coding)])
            assert status == OK and body[0] == 0 and "grpc-encoding" not in fields  # the client named no coding that it takes
            x = good()
            x.inputs[0].shape[1] = 5000
            x.raw_input_contents[0] = bytes(range(250)) * 160
            packed = frame(pack(x.SerializeToString()), 1)
            status, _, body, fields = call(c, INFER, packed, [("grpc-encoding", coding), ("grpc-accept-encoding", "identity, " + coding)])
            assert status == OK and body[0] == 1 and fields["grpc-encoding"] == coding
            plain = zlib.decompress(body[5:], 47)
            assert pb.ModelInferResponse.FromString(plain).raw_output_contents[0] == x.raw_input_contents[0] and len(body) < len(plain) // 4
            assert call(c, INFER, frame(pack(RAW)[:-5], 1), [("grpc-encoding", coding)])[0] == INVALID
            assert call(c, INFER, frame(b"garbage", 1), [("grpc-encoding", coding)])[0] == INVALID
            assert call(c, INFER, frame(b"", 1), [("grpc-encoding", coding)])[0] == INVALID
            # an uncompressed message is fine in a call that may compress
            assert call(c, INFER, frame(RAW), [("grpc-encoding", coding)])[0] == OK
        before = server.rss_bytes()
        for path in (INFER, META, STREAM):
            got = call(c, path, frame(bomb, 1), [("grpc-encoding", "gzip")])
            assert got[0] == EXHAUSTED or (path == STREAM and b"decompresse" in got[2]), got
        assert server.rss_bytes() - before < 32 << 20
        assert call(c, INFER, frame(RAW), [("grpc-encoding", "snappy")])[0] == UNIMPLEMENTED


def test_metadata(server):
    with Http2(server) as c:
        for extra, status in (([("grpc-timeout", "")], INVALID), ([("grpc-timeout", "-1S")], INVALID), ([("grpc-timeout", "1")], INVALID),
                              ([("grpc-timeout", "1S"), ("grpc-timeout", "2S")], INVALID), ([("grpc-timeout", "99999999H")], OK),
                              ([("x-inferd-timeout-ms", "soon")], INVALID), ([("custom-bin", "AAEC")], OK), ([("x-request-id", "a b")], OK),
                              ([("grpc-encoding", "gzip"), ("grpc-encoding", "identity")], INVALID)):
            got, text, _, _ = call(c, INFER, frame(RAW), extra)
            assert got == status, (extra, got, text)
        for content_type, status in (("application/grpc+proto", OK), ("application/grpc;charset=utf-8", OK), ("APPLICATION/GRPC", OK),
                                     ("application/grpc+json", UNIMPLEMENTED)):
            assert call(c, INFER, frame(RAW), content_type=content_type)[0] == status, content_type
        # not gRPC: HTTP's own answer
        for content_type in ("application/grpc-web", "application/json"):
            head, stream = c.head("POST", INFER, end=False, extra=[("content-type", content_type)])
            c.send(head, c.data(stream, frame(RAW), end=True))
            assert c.answer(stream)[0] == 404


def test_body_larger_than_the_limit(server):
    with Http2(server) as c:
        status, text, _, _ = call(c, INFER, frame(b"x"), extra=[("content-length", str((1 << 20) + 105))], end=False)
        assert status == EXHAUSTED, (status, text)


def test_every_cut_of_a_call(server):
    """Whatever the frames' borders are, the answer is the same; wherever the stream ends early, it is refused."""
    whole = frame(RAW)
    with Http2(server) as c:
        want = call(c, INFER, whole)[2]
        for chunks in (2, 3, 7, len(whole)):
            assert call(c, INFER, whole, chunks=chunks)[2] == want
            assert call(c, STREAM, whole * 3, chunks=chunks)[0] == OK
        for n in range(len(whole)):
            assert call(c, INFER, whole[:n])[0] == INVALID, n
            if n:
                assert call(c, STREAM, whole + whole[:n])[0] == INVALID, n


def test_streams_left_in_every_state(server):
    """The client goes at every point of a call; nothing stays."""
    whole = frame(RAW)
    for path in (INFER, STREAM, "/grpc.health.v1.Health/Watch"):
        for n in (0, 3, 5, 20, len(whole)):
            with Http2(server) as c:
                head, stream = c.head("POST", path, end=False, extra=[("content-type", "application/grpc")])
                c.send(head, c.data(stream, whole[:n]))
                if n % 2:
                    c.send(c.reset(stream))
                    assert call(c, INFER, whole)[0] == OK
    wait_until(lambda: server.metric("inferd_http_connections", listener="http") <= 1, what="connections are gone")


def test_random_damage(server):
    rng = random.Random(3)
    codes = set()
    with Http2(server) as c:
        for _ in range(600):
            b = bytearray(frame(RAW))
            for _ in range(rng.randrange(1, 4)):
                b[rng.randrange(len(b))] = rng.randrange(256)
            codes.add(call(c, INFER, bytes(b), [("grpc-encoding", rng.choice(["gzip", "identity"]))])[0])
    assert codes <= {OK, INVALID, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED}
