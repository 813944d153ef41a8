"""conftest.py: fixtures of the wire tests."""

import pytest

from inferd_server import SIMPLE, Server, write_fake


@pytest.fixture
def repository(tmp_path):
    """An empty model repository."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def simple_server(tmp_path_factory):
    """One server for tests that only ask: Triton's `simple`, and fakes of several shapes and dtypes."""
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "unbatched", "input = X FP32 [3]\noutput = Y FP32 [3] copy X\nbatchable = false\n")
    write_fake(root, "text", "input = X BYTES [-1,n]\noutput = Y BYTES [-1,n] copy X\n")
    write_fake(root, "wide", "input = X INT64 [-1,n]\noutput = Y INT64 [-1,n] copy X\n")
    write_fake(root, "unsigned", "input = X UINT64 [-1,n]\noutput = Y UINT64 [-1,n] copy X\n")
    write_fake(root, "real", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    write_fake(root, "half", "input = X FP16 [-1,n]\noutput = Y FP16 [-1,n] copy X\n")
    write_fake(root, "brain", "input = X BF16 [-1,n]\noutput = Y BF16 [-1,n] copy X\n")
    write_fake(root, "flags", "input = X BOOL [-1,n]\noutput = Y BOOL [-1,n] copy X\n")
    write_fake(root, "scalar", "input = X FP32 []\noutput = Y FP32 [] copy X\nbatchable = false\n")
    with Server(root) as server:
        yield server
