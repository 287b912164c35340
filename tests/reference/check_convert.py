"""Checks sinter_convert against the PyTorch that is installed: what it writes, torch.load(weights_only=True) reads, and what
torch.save writes comes through it and back with every bit.

usage: check_convert.py <sinter_convert>     (tests/examples/sinter_convert_test.sh runs it where there is PyTorch)
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

import torch
from torch import nn


def resnet(width=8):
    """Names, shapes and buffers as a residual network has them."""
    block = lambda: nn.ModuleDict({"conv1": nn.Conv2d(width, width, 3, bias=False), "bn1": nn.BatchNorm2d(width)})
    return nn.ModuleDict({"conv1": nn.Conv2d(3, width, 7, bias=False), "bn1": nn.BatchNorm2d(width),
                          "layer1": nn.Sequential(block(), block()), "fc": nn.Linear(width, 10)})


def same(a, b):
    bits = lambda t: t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else t.reshape(-1)
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def cases():
    """name, what is saved, options of torch.save, and the weights in it."""
    torch.manual_seed(1)
    model = resnet()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield "state", state, {}, state
    yield "legacy", state, {"_use_new_zipfile_serialization": False}, state
    for protocol in (3, 4, 5):
        yield f"protocol_{protocol}", state, {"pickle_protocol": protocol}, state
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield "checkpoint", {"model": state, "optimizer": optimizer.state_dict(), "epoch": 1,
                         "args": argparse.Namespace(lr=0.1)}, {}, state
    yield "parallel", {"state_dict": nn.DataParallel(model).state_dict(), "best_acc1": torch.tensor(1.0)}, {}, state
    half = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    yield "bfloat16", half, {}, half
    base = torch.randn(6, 4, 5)
    views = {"t": base.t() if base.dim() == 2 else base.transpose(0, 2), "part": base[2:4], "row": base[:, 1],
             "last": base.permute(2, 0, 1)[1:, ::2], "tied": base, "tied again": base, "scalar": base[0, 0, 0],
             "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)}
    yield "views", views, {}, views
    yield "views_legacy", views, {"_use_new_zipfile_serialization": False}, views
    dtypes = {str(dtype): torch.randint(0, 2, (3, 5)).to(dtype) for dtype in
              (torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)}
    yield "dtypes", dtypes, {}, {**dtypes}
    odd = {"nan": torch.tensor([float("nan"), float("inf"), -0.0]), "none at all": torch.empty(0), "\u00e9": torch.ones(1)}
    yield "odd", odd, {}, odd


def check_metadata(convert, folder):
    """Metadata of a safetensors file become a record that torch.load passes over, and come back."""
    metadata = {"classes": '["cat", "d\u00f6g"]', "mean": "[0.5]"}
    header = json.dumps({"__metadata__": metadata, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "told.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2))
    for source, target in (("told.safetensors", "told.pth"), ("told.pth", "again.safetensors")):
        subprocess.run([convert, folder / source, folder / target], check=True, stdout=subprocess.DEVNULL)
    for options in ({"weights_only": True}, {"weights_only": False}, {"weights_only": True, "mmap": True}):
        state = torch.load(folder / "told.pth", **options)
        assert list(state) == ["w"] and state["w"].tolist() == [1.5, -2], (options, state)
    with zipfile.ZipFile(folder / "told.pth") as archive:
        assert archive.testzip() is None and json.loads(archive.read("archive/extra/metadata.json")) == metadata
    text = (folder / "again.safetensors").read_bytes()
    header = json.loads(text[8:8 + struct.unpack("<Q", text[:8])[0]])
    assert header["__metadata__"] == {**metadata, "format": "pt"}, header


def main():
    convert, count = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, value, options, weights in cases():
            torch.save(value, folder / f"{name}.pth", **options)
            for source, target in ((f"{name}.pth", f"{name}.safetensors"), (f"{name}.safetensors", f"{name}_back.pth")):
                subprocess.run([convert, folder / source, folder / target], check=True, stdout=subprocess.DEVNULL)
            back = torch.load(folder / f"{name}_back.pth", weights_only=True)
            mapped = torch.load(folder / f"{name}_back.pth", weights_only=True, mmap=True)
            assert back.keys() == weights.keys() == mapped.keys(), (name, back.keys())
            for key, tensor in weights.items():
                assert same(back[key], tensor) and same(mapped[key], tensor), (name, key)
                count += 1
        check_metadata(convert, folder)
        module = torch.nn.Sequential(torch.nn.Linear(2, 1))
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            torch.save(module, folder / "module.pt", **options)
            done = subprocess.run([convert, folder / "module.pt", "--list"], capture_output=True, text=True)
            assert done.returncode == 1 and "save its state_dict()" in done.stderr, done
    print(f"PyTorch {torch.__version__}: {count} tensors come back with every bit")


if __name__ == "__main__":
    main()
