#!/usr/bin/env python3
"""Prints src/api/grpc_descriptors.c: the files of proto/ as protoc compiles them, with an index of their symbols, for reflection.

    .venv/bin/python tools/make_grpc_descriptors.py > src/api/grpc_descriptors.c

The output is committed, so that a build needs no protoc; ./dev lint checks that it is fresh (tools/generated.txt).
"""
import os
import sys
import tempfile

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
# In the order of their index: what a file imports comes before it.
FILES = ["model_config.proto", "inference.proto", "health.proto", "reflection_v1.proto", "reflection_v1alpha.proto"]


def compile_files():
    with tempfile.NamedTemporaryFile() as out:
        args = ["protoc", f"-I{ROOT}/proto", f"--descriptor_set_out={out.name}", *[f"{ROOT}/proto/{f}" for f in FILES]]
        if protoc.main(args) != 0:
            sys.exit("protoc failed")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read()).file
    by_name = {f.name: f for f in files}
    return [by_name[name] for name in FILES]


def message_symbols(prefix, message):
    name = f"{prefix}.{message.name}"
    yield name
    for f in message.field:
        yield f"{name}.{f.name}"
    for o in message.oneof_decl:
        yield f"{name}.{o.name}"
    for e in message.enum_type:
        yield from enum_symbols(name, e)
    for nested in message.nested_type:
        yield from message_symbols(name, nested)


def enum_symbols(prefix, enum):
    yield f"{prefix}.{enum.name}"
    for v in enum.value:
        yield f"{prefix}.{v.name}"


def symbols(file):
    for m in file.message_type:
        yield from message_symbols(file.package, m)
    for e in file.enum_type:
        yield from enum_symbols(file.package, e)
    for s in file.service:
        yield f"{file.package}.{s.name}"
        for method in s.method:
            yield f"{file.package}.{s.name}.{method.name}"


def main():
    files = compile_files()
    out = ["/* Made by tools/make_grpc_descriptors.py from proto/. */", "/* clang-format off */",
           '#include "api/grpc_descriptors.h"', "", '#include "base/size.h"', ""]
    for i, f in enumerate(files):
        data = f.SerializeToString(deterministic=True)
        out.append(f"static const uint8_t file_{i}[] = {{ /* {f.name} */")
        out += ["    " + ",".join(str(b) for b in data[at:at + 32]) + "," for at in range(0, len(data), 32)]
        out.append("};")
    out += ["", "const struct grpc_file grpc_files[] = {"]
    for i, f in enumerate(files):
        imports = sum(1 << FILES.index(d) for d in f.dependency)
        out.append(f'    {{"{f.name}", file_{i}, sizeof file_{i}, {imports:#x}}},')
    out += ["};", "const size_t grpc_n_files = COUNT_OF(grpc_files);", "", "const char *const grpc_services[] = {"]
    out += [f'    "{f.package}.{s.name}",' for f in files for s in f.service]
    out += ["};", "const size_t grpc_n_services = COUNT_OF(grpc_services);", "",
            "const struct grpc_symbol grpc_symbols[] = { /* sorted */"]
    out += [f'    {{"{name}", {i}}},' for name, i in sorted((n, i) for i, f in enumerate(files) for n in symbols(f))]
    out += ["};", "const size_t grpc_n_symbols = COUNT_OF(grpc_symbols);"]
    print("\n".join(out))


main()
