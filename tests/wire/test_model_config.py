"""test_model_config.py: `inferd config --model` against google.protobuf over Triton's own model_config.proto.

The descriptor comes from the tritonclient wheel. protobuf's text_format and json_format are the reference: what they read from a
config.pbtxt, inferd must read too, and what inferd renders must be a ModelConfig to them.
"""
import importlib.util
import os
import pathlib
import random
import re
import subprocess

import pytest
from google.protobuf import json_format, text_format

BINARY = os.environ.get("INFERD_BINARY", "build/debug/inferd")


def load_proto():
    import tritonclient

    path = pathlib.Path(tritonclient.__file__).parent / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pb = load_proto()
OURS = {"batching", "default_deadline_ms", "max_queue_rows", "max_queue_bytes", "instances_max", "response_cache_size"}


def run(path):
    return subprocess.run([BINARY, "config", "--model", str(path)], capture_output=True, timeout=60)


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return run(path)


def served(m):
    """What inferd serves of a ModelConfig, with the defaults that it fills in taken out."""
    out = pb.ModelConfig()
    for field in ("name", "platform", "backend", "max_batch_size", "default_model_filename"):
        setattr(out, field, getattr(m, field))
    for kind in ("input", "output"):
        for io in getattr(m, kind):
            new = getattr(out, kind).add(name=io.name, data_type=io.data_type, dims=io.dims)
            if kind == "input":
                new.optional = io.optional
            else:
                new.label_filename = io.label_filename
    out.version_policy.CopyFrom(m.version_policy)
    if not m.version_policy.WhichOneof("policy_choice"):
        out.version_policy.latest.num_versions = 1
    if m.HasField("dynamic_batching") and m.max_batch_size > 0:
        out.dynamic_batching.CopyFrom(m.dynamic_batching)
        if out.dynamic_batching.default_queue_policy == pb.ModelQueuePolicy():
            out.dynamic_batching.ClearField("default_queue_policy")
    out.instance_group.add(count=sum(g.count or 1 for g in m.instance_group) or 1)
    for key, value in m.parameters.items():
        if key not in OURS:
            out.parameters[key].CopyFrom(value)
    for w in m.model_warmup:
        new = out.model_warmup.add(name=w.name, batch_size=w.batch_size or 1, count=w.count or 1)
        for key, value in w.inputs.items():
            new.inputs[key].CopyFrom(value)
            if not value.WhichOneof("input_data_type") or value.WhichOneof("input_data_type") == "zero_data":
                new.inputs[key].zero_data = True
    out.response_cache.enable = m.response_cache.enable
    return out


def agree(tmp_path, want, name, text):
    result = read(tmp_path, name, text)
    assert result.returncode == 0, result.stderr.decode() + str(text)
    got = json_format.Parse(result.stdout, pb.ModelConfig())
    assert served(got) == served(want), text


WORDS = ["x", "INPUT0", "a.b/c", "prob:0", "\u00e9\u4e2d\U0001f600", 'q"uo\'te', "tab\tnew\nline", "back\\slash", "data_type: TYPE_FP32", "# no"]


def random_config(r):
    m = pb.ModelConfig()
    for field, values in (("name", ["", "resnet50", "a-b.c"]), ("platform", ["", "onnxruntime_onnx"]), ("backend", ["", "onnxruntime"])):
        setattr(m, field, r.choice(values))
    m.max_batch_size = r.choice([0, 1, 8, 128])
    types = [v for v in pb.DataType.values()]
    names = r.sample(WORDS, r.randint(0, 4))
    for n in names:
        m.input.add(name=n, data_type=r.choice(types), dims=[r.choice([-1, 1, 3, 224, 1 << 40]) for _ in range(r.randint(0, 4))],
                    optional=r.random() < 0.3, format=r.choice([0, 1, 2]))
    for n in r.sample(WORDS, r.randint(0, 3)):
        m.output.add(name=n, data_type=r.choice(types), dims=[r.choice([-1, 5])] * r.randint(0, 2), label_filename=r.choice(["", "l.txt"]))
    policy = r.choice(["", "latest", "all", "specific"])
    if policy == "latest":
        m.version_policy.latest.num_versions = r.randint(1, 9)
    elif policy == "all":
        m.version_policy.all.SetInParent()
    elif policy == "specific":
        m.version_policy.specific.versions.extend(r.sample(range(1, 99), r.randint(1, 4)))
    for _ in range(r.randint(0, 2)):
        m.instance_group.add(count=r.randint(0, 4), kind=r.choice([0, 2, 3]))
    if r.random() < 0.6:
        d = m.dynamic_batching
        d.SetInParent()
        d.preferred_batch_size.extend(sorted(r.sample(range(1, 129), r.randint(0, 3))) if m.max_batch_size == 128 else [])
        d.max_queue_delay_microseconds = r.choice([0, 100, 1 << 62])
        d.preserve_ordering = r.random() < 0.5
        d.priority_levels = r.choice([0, 3])
        d.default_priority_level = 2 if d.priority_levels else 0
        if r.random() < 0.5:
            d.default_queue_policy.max_queue_size = r.randint(0, 9)
            d.default_queue_policy.timeout_action = r.choice([0, 1])
        for level in range(1, d.priority_levels + 1):
            if r.random() < 0.5:
                d.priority_queue_policy[level].default_timeout_microseconds = r.choice([0, 1, (1 << 64) - 1])
    for key in r.sample(WORDS, r.randint(0, 3)):
        m.parameters[key].string_value = r.choice(WORDS)
    for i in range(r.randint(0, 2)):
        w = m.model_warmup.add(name=r.choice(WORDS), batch_size=r.choice([0, 1]), count=r.randint(0, 3))
        for n in names[:2]:
            w.inputs[n].data_type = r.choice(types[1:])
            w.inputs[n].dims.extend([r.randint(1, 9)] * r.randint(0, 3))
            choice = r.choice(["zero_data", "random_data", "input_data_file"])
            setattr(w.inputs[n], choice, "f.bin" if choice == "input_data_file" else True)
    if r.random() < 0.3:
        m.response_cache.enable = True
    return m


@pytest.mark.parametrize("seed", range(60))
def test_random_configurations_in_every_spelling(tmp_path, seed):
    r = random.Random(seed)
    m = random_config(r)
    agree(tmp_path, m, "config.pbtxt", text_format.MessageToString(m, as_utf8=r.random() < 0.5))
    agree(tmp_path, m, "config.pbtxt", text_format.MessageToString(m, as_one_line=True, use_short_repeated_primitives=True))
    agree(tmp_path, m, "config.pbtxt", text_format.MessageToString(m, pointy_brackets=True, use_index_order=True))
    agree(tmp_path, m, "config.json", json_format.MessageToJson(m, preserving_proto_field_name=True))
    agree(tmp_path, m, "config.json",
          json_format.MessageToJson(m, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, use_integers_for_enums=True))


ACCEPTED = [
    "",
    "name: 'a' 'b'\n  \"c\"",
    'name: "\\x41\\102\\u0043\\U00000044"',
    "max_batch_size: 0x10",
    "max_batch_size: 010",
    "max_batch_size: 8;",
    "max_batch_size: 8,name: 'a';",
    "max_batch_size:8#c\nname:'a'#d",
    "input { name: 'x' data_type: 11 optional: t }",
    "input { name: 'x' optional: True } input < name: 'y' optional: 1 >",
    "input: { name: 'x' dims: 1 dims: 2 }",
    "input: [{ name: 'x' dims: [1, 2] dims: 3 }, <name: 'y' dims: []>]",
    "input [ { name: 'x' } ] input { name: 'y' }",
    "input { name: 'x' dims: -1 }",
    "version_policy { all { } }",
    "version_policy: { specific: { versions: 1 versions: [2, 3] } }",
    "dynamic_batching { } max_batch_size: 4",
    "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 1 value: { max_queue_size: 1 } } } max_batch_size: 2",
    "parameters { key: 'k' value { } } parameters { key: 'l' }",
    "parameters { value { string_value: 'v' } }",
    "parameters [ { key: 'k' value { string_value: 'v' } } ]",
]

REFUSED = [
    "name 'a'",
    "name: a",
    'name: "a',
    'name: "a\nb"',
    "max_batch_size: 1.5",
    "max_batch_size: '1'",
    "max_batch_size: 1 max_batch_size: 2",
    "max_batch_size: 99999999999",
    "max_batch_size:",
    "input { name: 'x'",
    "input { name: 'x' >",
    "input { name: 'x' } }",
    "input { name: 'x' dims: [1, ] }",
    "input { name: 'x' dims: [[1]] }",
    "input { name: 'x' dims: [1 2] }",
    "input { name: 'x' data_type: TYPE_FP99 }",
    "input { name: 'x' optional: 2 }",
    "input { name: 'x' nme: 'y' }",
    "version_policy { all { } latest { num_versions: 1 } }",
    "version_policy { all { } } version_policy { all { } }",
    "no_such_field: 1",
    "parameters { key: 'k' value: 'v' }",
    "[a.b]: 1",
    ": 1",
    "}",
    "name: 'a' ;;",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_protobuf_reads_is_read_the_same(tmp_path, text):
    agree(tmp_path, text_format.Parse(text, pb.ModelConfig()), "config.pbtxt", text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_protobuf_refuses_is_refused(tmp_path, text):
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, pb.ModelConfig())
    result = read(tmp_path, "config.pbtxt", text)
    assert result.returncode == 1
    assert result.stderr.startswith(b"inferd: " + str(tmp_path).encode()), result.stderr


def test_every_field_of_the_proto_is_known(tmp_path):
    """No field of Triton's ModelConfig may be an unknown key: each is read, or warned about by name."""

    def visit(descriptor, path, seen):
        for f in descriptor.fields:
            yield path + [f]
            if f.message_type and not f.message_type.GetOptions().map_entry and f.message_type.full_name not in seen:
                yield from visit(f.message_type, path + [f], seen | {f.message_type.full_name})

    for path in visit(pb.ModelConfig.DESCRIPTOR, [], frozenset()):
        leaf = path[-1]
        if leaf.message_type:
            text = leaf.name + " { }"
        elif leaf.enum_type:
            text = leaf.name + ": " + leaf.enum_type.values[-1].name
        else:
            text = leaf.name + ": " + {leaf.CPPTYPE_STRING: "'a'", leaf.CPPTYPE_BOOL: "true"}.get(leaf.cpp_type, "1")
        for f in reversed(path[:-1]):
            text = f.name + " { " + text + " }"
        text_format.Parse(text, pb.ModelConfig())
        result = read(tmp_path, "config.pbtxt", text)
        assert b"unknown field" not in result.stderr, (text, result.stderr)


def test_the_reference_page_names_every_field():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/reference/model-config.md").read_text()
    known = set(re.findall(r"[a-z_]+", page))
    messages = [pb.ModelConfig, pb.ModelInput, pb.ModelOutput, pb.ModelInstanceGroup, pb.ModelDynamicBatching, pb.ModelQueuePolicy,
                pb.ModelWarmup, pb.ModelWarmup.Input, pb.ModelVersionPolicy, pb.ModelOptimizationPolicy, pb.ModelResponseCache,
                pb.ModelTransactionPolicy]
    missing = {f.name for m in messages for f in m.DESCRIPTOR.fields} - known
    assert not missing


def test_the_reference_page_examples_are_accepted(tmp_path):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/reference/model-config.md").read_text()
    blocks = re.findall(r"(?:^    .*\n)+", page, re.M)
    assert len(blocks) == 2
    yaml, pbtxt = (re.sub("^    ", "", b, flags=re.M) for b in blocks)
    for name, text in (("model.yaml", yaml), ("config.pbtxt", pbtxt)):
        result = read(tmp_path, name, text)
        assert result.returncode == 0 and not result.stderr, result.stderr
        json_format.Parse(result.stdout, pb.ModelConfig())
