"""onnx_backend.py: the ONNX project's own backend test data, and what ONNX Runtime itself makes of each case.

A case is a folder with model.onnx and test_data_set_N/{input,output}_K.pb. The oracle for "should work" is ONNX Runtime's Python
package on the same file: where that can't load or gets the expected outputs wrong, the case is listed in onnx_backend_exceptions.txt
with the reason, and inferd is not blamed. Run this file to print that list anew.
"""
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

HERE = pathlib.Path(__file__).parent
EXCEPTIONS = HERE / "onnx_backend_exceptions.txt"
SYSTEM_DATA = pathlib.Path("/usr/share/libonnx-testdata/data")
WHEEL_DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
KSERVE = {"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
          "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64", "object": "BYTES",
          "bfloat16": "BF16"}
RTOL, ATOL = 1e-3, 1e-7  # the ONNX backend runner's own

onnxruntime.set_default_logger_severity(4)


def cases():
    """{name: folder} of every case that has data."""
    found = {}
    for root in (WHEEL_DATA, SYSTEM_DATA):
        for kind in ("node", "simple", "pytorch-operator", "pytorch-converted"):
            folder = root / kind
            for case in sorted(folder.iterdir()) if folder.is_dir() else []:
                if (case / "model.onnx").is_file() and (case / "test_data_set_0").is_dir():
                    found.setdefault(case.name, case)
    return found


def exceptions():
    """{name: reason} as committed."""
    if not EXCEPTIONS.exists():
        return {}
    lines = (line.split(":", 1) for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, reason in lines}


def read_tensor(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    array = numpy_helper.to_array(tensor)
    if tensor.data_type == onnx.TensorProto.STRING:
        return np.array([x if isinstance(x, str) else x.decode("utf-8", "replace") for x in array.ravel()], object).reshape(array.shape)
    return array


def data_sets(case):
    """[(inputs by name, expected outputs by name)]; raises ValueError where a value is no tensor."""
    model = onnx.load(case / "model.onnx")
    constants = {i.name for i in model.graph.initializer}
    names_in = [i for i in model.graph.input if i.name not in constants]
    for value in [*names_in, *model.graph.output]:
        if value.type.WhichOneof("value") != "tensor_type":
            raise ValueError(f"{value.name} is a {value.type.WhichOneof('value')}")
    sets = []
    for folder in sorted(case.glob("test_data_set_*")):
        n_in = len(list(folder.glob("input_*.pb")))
        inputs = {names_in[k].name: read_tensor(folder / f"input_{k}.pb") for k in range(n_in)}
        outputs = {o.name: read_tensor(folder / f"output_{k}.pb") for k, o in enumerate(model.graph.output)
                   if (folder / f"output_{k}.pb").exists()}
        sets.append((inputs, outputs))
    return sets


def same(got, want):
    """Equal as the ONNX runner sees it: shape, then values within its tolerance; strings exactly."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    if want.dtype == object or got.dtype == object:
        return got.ravel().tolist() == want.ravel().tolist()
    wide = np.float64 if want.dtype.kind not in "biu" else want.dtype
    return np.allclose(got.astype(wide), want.astype(wide), rtol=RTOL, atol=ATOL, equal_nan=True)


def reason_not_served(case):
    """Why ONNX Runtime itself doesn't get this case right; None when it does."""
    try:
        sets = data_sets(case)
    except ValueError as e:
        return f"not tensors: {e}"
    except Exception as e:  # a tensor type that numpy has not
        return f"data: {type(e).__name__}"
    for inputs, outputs in sets:
        odd = [str(a.dtype) for a in [*inputs.values(), *outputs.values()] if str(a.dtype) not in KSERVE]
        if odd:
            return f"type {odd[0]} is not in the protocol"
    try:
        session = onnxruntime.InferenceSession(case / "model.onnx", providers=["CPUExecutionProvider"])
    except Exception as e:
        return "ONNX Runtime can't load it: " + str(e).splitlines()[0].split("]")[-1].split(" : ")[-1][:90]
    for inputs, outputs in sets:
        try:
            got = session.run(list(outputs), inputs)
        except Exception as e:
            return "ONNX Runtime can't run it: " + str(e).splitlines()[0].split(" : ")[-1][:90]
        for name, value in zip(outputs, got):
            if not same(value, outputs[name]):
                return f"ONNX Runtime's {name} differs from the expected one"
    return None


if __name__ == "__main__":
    print("# Cases of the ONNX backend test data that ONNX Runtime %s itself does not get right (python tests/wire/onnx_backend.py)."
          % onnxruntime.__version__)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for case_name, path in cases().items():
        why = reason_not_served(path)
        if why:
            print(f"{case_name}: {why}")
