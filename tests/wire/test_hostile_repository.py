"""test_hostile_repository.py: model folders that mean harm: files that aren't files, links that lead out, configurations that are
bombs, model files cut and mutated. Every load is refused with one sentence that shows no path of the machine, the model beside
it goes on answering, and nothing is kept of the attempt.
"""
import os
import pathlib
import random
import socket

import pytest
import requests

from inferd_server import ROOT, SIMPLE, Server, wait_until, write_fake
from raw_socket import fd_count, infer_request, ask

COPY = "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n"
STRINGS = "input = X BYTES [-1,n,m]\noutput = Y BYTES [-1,n,m] copy X\n"
ROW = list(range(16))
SUM = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": ROW} for n in ("INPUT0", "INPUT1")]}
DATA = ROOT / "tests/data/models"


def the_other_model_answers(server):
    answer = ask(server, infer_request("good", SUM))
    assert answer.status == 200 and answer.json()["outputs"][0]["data"] == [2 * x for x in ROW], answer


def load(server, model):
    return requests.post(f"{server.url}/v2/repository/models/{model}/load", timeout=60)


def assert_says_nothing_of_the_machine(server, folder):
    text = requests.post(server.url + "/v2/repository/index").text + requests.get(server.url + "/v2/health/ready?verbose").text
    for secret in (str(folder), "/tmp/", "/root", "root:", "0x7f", ".cc:", "/src/"):
        assert secret not in text, text


def warmup(dims, data="zero_data: true", dtype="TYPE_FP32"):
    return (f'max_batch_size: 4\nmodel_warmup [{{name: "w" batch_size: 1 inputs {{key: "X" value: '
            f'{{data_type: {dtype} dims: {dims} {data}}}}}}}]')


CONFIGS = {
    "nested": "a {" * 10000,
    "nested lists": "a: [" * 10000,
    "a megabyte": 'name: "m"\n' * 200000,
    "20001 values": "max_batch_size: 4 dynamic_batching { preferred_batch_size: [" + "1," * 20001 + "1] }",
    "binary": random.Random(1).randbytes(5000),
    "NUL": b'name: "m"\0',
    "string without end": 'name: "abc',
    "another name": 'name: "../../etc"',
    "label file above": 'output [{name: "Y" data_type: TYPE_FP32 dims: [-1] label_filename: "../../../../etc/passwd"}]',
    "label file of the machine": 'output [{name: "Y" data_type: TYPE_FP32 dims: [-1] label_filename: "/etc/passwd"}]',
    "warm-up file above": warmup("[1]", 'input_data_file: "../../../../etc/passwd"'),
    "warm-up file of the machine": warmup("[1]", 'input_data_file: "/etc/passwd"'),
    "2^31 instances": "instance_group [{count: 2147483647}]",
    "negative batch": "max_batch_size: -1",
    "2^64 levels": "max_batch_size: 4 dynamic_batching { priority_levels: 18446744073709551615 }",
    "2^63 dims": 'input [{name: "X" data_type: TYPE_FP32 dims: [9223372036854775807]}]',
}


@pytest.fixture(scope="module")
def explicit(tmp_path_factory):
    """A server that loads on request, and its repository."""
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "good", SIMPLE)
    with Server(root, args=["--repository.mode=explicit", "--repository.load=good"]) as server:
        yield server, root


@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_config_pbtxt(explicit, name):
    server, root = explicit
    text = CONFIGS[name]
    folder = write_fake(root, "m", COPY).parent
    (folder / "config.pbtxt").write_bytes(text if isinstance(text, bytes) else text.encode())
    answer = load(server, "m")
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.text) < 2000
    assert_says_nothing_of_the_machine(server, root)
    the_other_model_answers(server)


@pytest.mark.parametrize("text", ["a: &a [x]\nb: *a\n", "[" * 10000, "a: !!binary aGk=\n", "? [a]\n: b\n", "max_batch_size: 4\n---\na: b\n",
                                  "max_batch_size: 1e400\n", "\ufeff\t: a\n"])
def test_hostile_model_yaml(explicit, text):
    server, root = explicit
    write_fake(root, "y", COPY, config=text)
    assert load(server, "y").status_code == 400
    assert_says_nothing_of_the_machine(server, root)
    the_other_model_answers(server)


@pytest.mark.parametrize("dims, dtype, script", [("[1, 1000000000000]", "TYPE_FP32", COPY.replace("n]", "n,m]")),
                                                 ("[1099511627776, 4194304]", "TYPE_STRING", STRINGS),
                                                 ("[1, 1000000000000]", "TYPE_STRING", STRINGS)])
def test_warm_up_data_larger_than_the_machine(explicit, dims, dtype, script):
    """4 TB of zeros, and a product that is 2^64 times a string's four bytes: refused by its size, before any of it is there."""
    server, root = explicit
    folder = write_fake(root, "w", script).parent
    (folder / "config.pbtxt").write_text(warmup(dims, dtype=dtype))
    answer = load(server, "w")
    assert answer.status_code in (400, 429) and "warm-up" in answer.json()["error"], answer.text
    the_other_model_answers(server)


def test_files_that_are_not_files(explicit, tmp_path):
    server, root = explicit
    secret = tmp_path / "secret.onnx"
    secret.write_bytes((DATA / "mlp/model.onnx").read_bytes())
    makers = {
        "fifo": lambda p: os.mkfifo(p),
        "folder": lambda p: p.mkdir(),
        "socket": lambda p: socket.socket(socket.AF_UNIX).bind(str(p)),
        "link_out": lambda p: p.symlink_to(secret),
        "link_zero": lambda p: p.symlink_to("/dev/zero"),
        "link_loop": lambda p: p.symlink_to(p.name),
        "empty": lambda p: p.write_bytes(b""),
        "sparse": lambda p: os.truncate(os.open(p, os.O_CREAT | os.O_WRONLY), 1 << 42),
    }
    before = fd_count(server)
    for name, make in makers.items():
        path = root / name / "1" / "model.onnx"
        path.parent.mkdir(parents=True)
        cwd = os.getcwd()
        os.chdir(path.parent)  # a socket's path must be short
        try:
            make(pathlib.Path(path.name))
        finally:
            os.chdir(cwd)
        answer = load(server, name)
        assert 400 <= answer.status_code < 500, (name, answer.text)
    write_fake(root, "config_fifo", COPY)
    os.mkfifo(root / "config_fifo" / "model.yaml")
    assert 400 <= load(server, "config_fifo").status_code < 500
    (root / "folder_out").symlink_to("/etc")
    assert 400 <= load(server, "folder_out").status_code < 500
    assert_says_nothing_of_the_machine(server, root)
    the_other_model_answers(server)
    wait_until(lambda: fd_count(server) <= before + 2, what="descriptors are closed")  # of the connections that asked, too


@pytest.mark.parametrize("name", ["a b", "..", "...", "%2e%2e", "a%2f..%2fb", "a%00b", "a" * 200, "%ff", "-", "a%0ab"])
def test_model_names_that_are_none(explicit, name):
    server, _ = explicit
    for verb in ("load", "unload"):
        answer = requests.post(f"{server.url}/v2/repository/models/{name}/{verb}")
        assert answer.status_code in (400, 404, 409), answer.text


def mutate(r, data):
    """Cut, or some bytes changed, put in, taken out or copied."""
    data = bytearray(data)
    if r.random() < 0.25:
        return data[: r.randrange(len(data))]
    for _ in range(r.choice([1, 1, 2, 5, 20])):
        at = r.randrange(len(data))
        kind = r.randrange(5)
        if kind == 0:
            data[at] = r.randrange(256)
        elif kind == 1:
            data[at] = r.choice([0, 0x7F, 0x80, 0xFF])
        elif kind == 2:
            data[at:at] = bytes([r.choice([0x80, 0xFF])] * r.choice([1, 5, 10]))
        elif kind == 3:
            del data[at:at + r.choice([1, 4, 30])]
        else:
            other = r.randrange(len(data))
            data[at:at] = data[other:other + r.randrange(1, 64)]
        if not data:
            break
    return data


@pytest.mark.onnx
def test_cut_and_mutated_onnx_files(explicit):
    server, root = explicit
    r = random.Random(20)
    files = sorted(p for p in DATA.rglob("*.onnx") if 0 < p.stat().st_size < 100000)
    before, refused = fd_count(server), 0
    for i in range(80):
        path = root / f"mutant{i}" / "1" / "model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(mutate(r, r.choice(files).read_bytes()))
        answer = load(server, f"mutant{i}")
        assert answer.status_code in (200, 400, 403, 404, 501), answer.text
        refused += answer.status_code != 200
        if answer.status_code == 200:
            assert requests.post(f"{server.url}/v2/repository/models/mutant{i}/unload", timeout=30).status_code == 200
    assert refused > 40
    assert_says_nothing_of_the_machine(server, root)
    the_other_model_answers(server)
    wait_until(lambda: fd_count(server) <= before + 2, what="descriptors are closed")  # of the connections that asked, too
