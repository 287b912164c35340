#!/usr/bin/env python3
"""Runs what export_onnx writes in ONNX Runtime and compares it with what Sinter computes.

usage: onnx_runtime_test.py WRITE_ONNX_CASES FOLDER [TRAIN_RESNET]

WRITE_ONNX_CASES is the program that exports all cases into FOLDER, with Sinter's results. Each file must pass ONNX's
checker with shape inference, and give the same results at batches of 1 and 2, with the runtime's optimiser off and on:
numbers within 1e-4 of the largest, all else equal. Prints the largest difference of each file. What TRAIN_RESNET exports
must tell as many of the digits' test images right, given as bytes, as the trainer says. Without the packages
onnx, onnxruntime and numpy it is skipped (77). SINTER_TEST_ONNX_LARGE=1 also takes the networks in full size, for
minutes; SINTER_TEST_CASES and SINTER_TEST_SEED say how many random networks, from which on.
"""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}; pip install onnx onnxruntime")
    sys.exit(77)

TOLERANCE = 1e-4
DTYPES = {"F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data[8 + size + begin : 8 + size + end], DTYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def difference(actual, expected):
    """How far apart two arrays are: of floats the largest difference, in parts of the largest value."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"expected {expected.dtype} {expected.shape} but got {actual.dtype} {actual.shape}"
    if actual.dtype != np.float32:
        return 0.0 if np.array_equal(actual, expected) else "other values"
    if actual.size == 0:
        return 0.0
    largest = np.abs(expected).max()
    return float(np.abs(actual - expected).max() / (largest if largest > 0 else 1.0))


def check(path):
    """The largest difference of a file, and what is wrong with it."""
    onnx.checker.check_model(str(path), full_check=True)
    tensors = read_safetensors(path.with_suffix(".safetensors"))
    worst, wrong = 0.0, []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.log_severity_level = 3
        options.intra_op_num_threads = 2
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for batch in sorted({name.split("/")[1] for name in tensors}):
            prefix = f"inputs/{batch}/"
            feed = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
            names = [output.name for output in session.get_outputs()]
            for name, actual in zip(names, session.run(names, feed)):
                found = difference(np.asarray(actual), tensors[f"outputs/{batch}/{name}"])
                if isinstance(found, str) or not found <= TOLERANCE:
                    wrong.append(f"{name} at batch {batch}, {level}: {found}")
                else:
                    worst = max(worst, found)
    return worst, wrong


def run_page(page, folder):
    """Runs the Python that a page shows, beside the files."""
    code = page.read_text().split("```python\n")[1].split("```")[0]
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def read_idx(path):
    data = gzip.decompress(path.read_bytes())
    axes = data[3]
    return np.frombuffer(data[4 + 4 * axes :], np.uint8).reshape(struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes]))


def check_trained(train_resnet, folder):
    """What is wrong with a network that was trained on bytes and is run on bytes."""
    path, report = folder / "trained.onnx", folder / "trained.json"
    options = "--epochs 2 --precision f32 --export-preprocessing uint8 --export".split()
    subprocess.run([train_resnet, *options, path, "--report", report], check=True, capture_output=True)
    digits = Path(__file__).parents[3] / "examples/data/digits"
    images = read_idx(digits / "test-images-idx3-ubyte.gz")[..., np.newaxis]
    labels = read_idx(digits / "test-labels-idx1-ubyte.gz")
    (logits,) = onnxruntime.InferenceSession(str(path)).run(None, {"input": images})
    right = int((logits.argmax(axis=1) == labels).sum())
    expected = round(json.loads(report.read_text())["accuracy"] * len(labels))
    print(f"trained on digits: {right} of {len(labels)} right, {expected} as the trainer says")
    return abs(right - expected) > 1  # two classes may be as near as rounding


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.onnx"):
        old.unlink()
    large = ["--large"] if os.environ.get("SINTER_TEST_ONNX_LARGE") == "1" else []
    random = ["--random", os.environ.get("SINTER_TEST_CASES", "60")]
    subprocess.run([program, str(folder), *large, *random], check=True)
    files = sorted(folder.glob("*.onnx"))
    failures = 0 if files else 1
    for path in files:
        try:
            worst, wrong = check(path)
        except Exception as error:  # whatever ONNX or the runtime refuses
            worst, wrong = 0.0, [f"{type(error).__name__}: {error}"]
        print(f"{path.stem}: {worst:.1e}" + "".join(f"\n  {line}" for line in wrong))
        failures += bool(wrong)
    if len(sys.argv) > 3 and sys.argv[3]:
        failures += check_trained(sys.argv[3], folder)
    run_page(Path(__file__).parents[3] / "docs/onnx.md", folder)
    print(f"{len(files)} files, {failures} failures; onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
