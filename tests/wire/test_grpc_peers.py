"""test_grpc_peers.py: gRPC clients that others wrote, unmodified: grpcurl (through reflection), @grpc/grpc-js, perf_analyzer, and Google's
reflection client."""
import json
import os
import re
import shutil
import subprocess

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import model_config_pb2, service_pb2

from inferd_server import ROOT, SIMPLE, Server, write_fake
from test_grpc import ECHO

GRPCURL = shutil.which("grpcurl") or str(ROOT / ".deps/bin/grpcurl")
ANALYZER = shutil.which("perf_analyzer") or str(ROOT / ".deps/bin/perf_analyzer")
NODE_MODULES = ROOT / ".deps/node/node_modules"
SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE, config="max_batch_size: 8\n")
    write_fake(root, "slow", ECHO + "base_us = 1000000\n", config="max_batch_size: 1\n")
    with Server(root) as s:
        yield s


def curl(server, *arguments, check=True):
    r = subprocess.run([GRPCURL, "-plaintext", *arguments[:-1], server.grpc_address, *arguments[-1]], capture_output=True, text=True, timeout=30)
    assert not check or r.returncode == 0, r.stdout + r.stderr
    return r


@pytest.mark.skipif(not shutil.which(GRPCURL), reason="grpcurl is not there (./dev deps test, where there is Go)")
def test_grpcurl_through_reflection(server):
    assert curl(server, ["list"]).stdout.split() == SERVICES
    methods = curl(server, ["list", "inference.GRPCInferenceService"]).stdout.split()
    assert len(methods) == 12 and "inference.GRPCInferenceService.ModelStreamInfer" in methods
    assert "raw_input_contents = 7" in curl(server, ["describe", "inference.ModelInferRequest"]).stdout
    assert "ModelStreamInfer ( stream .inference.ModelInferRequest )" in curl(server, ["describe", "inference.GRPCInferenceService"]).stdout
    for name in ("inference.ModelConfig", "inference.ModelInput.Format", "grpc.health.v1.HealthCheckResponse", "inference.InferParameter"):
        assert name in curl(server, ["describe", name]).stdout
    assert curl(server, ["describe", "inference.NoSuch"], check=False).returncode != 0
    assert json.loads(curl(server, ["inference.GRPCInferenceService/ServerReady"]).stdout) == {"ready": True}
    assert json.loads(curl(server, ["grpc.health.v1.Health/Check"]).stdout) == {"status": "SERVING"}
    x = {"datatype": "INT32", "shape": [1, 16], "contents": {"int_contents": list(range(16))}}
    body = json.dumps({"model_name": "simple", "id": "g", "inputs": [{"name": "INPUT0", **x}, {"name": "INPUT1", **x}]})
    answer = json.loads(curl(server, "-d", body, ["inference.GRPCInferenceService/ModelInfer"]).stdout)
    assert answer["id"] == "g" and [o["name"] for o in answer["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    answer = json.loads(curl(server, "-d", body, ["inference.GRPCInferenceService/ModelStreamInfer"]).stdout)
    assert answer["inferResponse"]["parameters"] == {"triton_final_response": {"boolParam": True}}
    bad = curl(server, "-d", '{"model_name": "no-such"}', ["inference.GRPCInferenceService/ModelInfer"], check=False)
    assert "NotFound" in bad.stderr and "no-such" in bad.stderr
    server.alive()


def test_googles_reflection_client_and_the_schema_itself(server):
    """Every message and field that inferd declares is in Triton's own schema with the same number, type and label."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert sorted(database.get_services()) == SERVICES
        pool = DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        todo, seen = [], set()
        for m in service.methods:
            t = theirs.methods_by_name[m.name]
            assert (m.client_streaming, m.server_streaming) == (t.client_streaming, t.server_streaming)
            todo += [(m.input_type, t.input_type), (m.output_type, t.output_type)]
        while todo:
            mine, their = todo.pop()
            if mine.full_name in seen:
                continue
            seen.add(mine.full_name)
            assert mine.full_name == their.full_name
            for f in mine.fields:
                t = their.fields_by_name[f.name]
                assert (f.number, f.type, f.is_repeated, f.containing_oneof and f.containing_oneof.name) == (
                    t.number, t.type, t.is_repeated, t.containing_oneof and t.containing_oneof.name), f.full_name
                if f.message_type:
                    todo.append((f.message_type, t.message_type))
                if f.enum_type:
                    assert {v.name: v.number for v in f.enum_type.values} == {v.name: v.number for v in t.enum_type.values}
        assert {"inference.ModelInferRequest", "inference.ModelConfig", "inference.ModelStatistics"} <= seen and model_config_pb2


@pytest.mark.skipif(not NODE_MODULES.exists() or not shutil.which("node"), reason="@grpc/grpc-js is not there (./dev deps test, where there is npm)")
def test_grpc_js(server):
    r = subprocess.run(["node", str(ROOT / "tests/wire/grpc_client.js"), server.grpc_address, str(ROOT / "proto")], capture_output=True, text=True,
                       timeout=60, env={**os.environ, "NODE_PATH": str(NODE_MODULES)})
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["live"] == {"live": True} and got["health"] == {"status": 1}
    assert got["infer"] == {"id": "7", "sums": [2 * i for i in range(16)]}
    assert got["missing"]["code"] == 5 and "no-such" in got["missing"]["details"]
    assert got["deadline"]["code"] == 4 and got["cancelled"] == 1
    assert got["config"] == [["INPUT0", 8, [16]], ["INPUT1", 8, [16]]]
    assert [i for i, _ in got["stream"]] == list("01234")
    assert [bool(e) for _, e in got["stream"]] == [False, False, True, False, False]
    server.alive()


@pytest.mark.skipif(not shutil.which(ANALYZER), reason="perf_analyzer is not there (./dev deps test, x86-64 only)")
@pytest.mark.parametrize("options", [[], ["--async"], ["--streaming", "--async"], ["--grpc-compression-algorithm", "gzip"]],
                         ids=["sync", "async", "streaming", "gzip"])
def test_perf_analyzer(server, options):
    r = subprocess.run([ANALYZER, "-m", "simple", "-u", server.grpc_address, "-i", "grpc", "-b", "2", "--concurrency-range", "2",
                        "--measurement-mode", "count_windows", "--measurement-request-count", "200", "--max-trials", "12",
                        "-s", "999", *options], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout + r.stderr
    assert float(re.search(r"Throughput: ([\d.]+) infer/sec", r.stdout).group(1)) > 0
    if "--streaming" not in options:
        assert re.search(r"Inference count: \d+", r.stdout), r.stdout
    assert "Failed" not in r.stdout + r.stderr
    server.alive()
