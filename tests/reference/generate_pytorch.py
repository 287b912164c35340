"""Writes files of weights as PyTorch saves them, which tests/nn/checkpoint/pytorch_reference_test.cpp reads, to
tests/data/pytorch/: usual ones, and odd ones. expected.safetensors has the values, under "<file>/<name>".

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_pytorch.py
"""

import argparse
import collections
import io
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "pytorch"
expected = {}


def save(name, value, weights=None, **options):
    """Saves a file. `weights` are the tensors that a reader must find in it."""
    torch.save(value, FOLDER / name, **options)
    for key, tensor in (weights or {}).items():
        expected[f"{name}/{key}"] = tensor.detach().clone().contiguous()


class Marked(nn.Parameter):
    pass


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.manual_seed(0)
    x = torch.arange(24.0).reshape(2, 3, 4)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(4, 2))
    state = model.state_dict()

    # State dicts, in every version of the format that is read.
    save("state.pth", state, state)
    save("legacy.pth", state, state, _use_new_zipfile_serialization=False)
    save("protocol_4.pth", state, state, pickle_protocol=4)
    save("protocol_5.pth", state, state, pickle_protocol=5)
    save("odd name.v1.pth", state, state)
    save("empty.pth", collections.OrderedDict())
    torch.serialization.set_crc32_options(False)
    save("no_checksums.pth", state, state)
    torch.serialization.set_crc32_options(True)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    (FOLDER / "buffer.pth").write_bytes(buffer.getvalue())
    expected.update({f"buffer.pth/{key}": tensor.clone() for key, tensor in state.items()})
    with torch.serialization.skip_data():  # the elements are a hole of zeros
        save("skipped_data.pth", state, {key: torch.zeros_like(tensor) for key, tensor in state.items()})

    # Checkpoints.
    others = {"epoch": 3, "arch": "resnet", "best_acc1": torch.tensor(12.5), "rate": 1.5, "np": np.float64(3.25),
              "np32": np.float32(1.0), "npi": np.int64(7), "array": np.arange(3), "big": 1 << 70, "negative": -5, "none": None,
              "true": True, "false": False, "tuple": (1, 2, 3, 4), "unit": (), "list": [1, 2], "size": torch.Size([2, 3]),
              "dtype": torch.float16, "device": torch.device("cpu"), "bytes": b"abc\xff", "text": "h\u00e9\u00e9", "set": {1, 2},
              "n300": 300, "n70000": 70000, "long": "x" * 300, "args": argparse.Namespace(lr=0.1)}
    save("checkpoint.pth", {**others, "state_dict": {"module." + key: tensor for key, tensor in state.items()}}, state)
    save("checkpoint_legacy.pth", {**others, "state_dict": {"module." + key: tensor for key, tensor in state.items()}}, state,
         _use_new_zipfile_serialization=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model[2](torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state = model.state_dict()
    save("optimizer.pth", {"model": state, "optimizer": optimizer.state_dict(), "args": argparse.Namespace(lr=0.1)}, state)
    save("two.pth", {"model": {"w": x[0]}, "model_ema": {"w": x[1]}, "nested": {"deep": {"w": x}}})
    expected.update({"two.pth/model": x[0].clone(), "two.pth/model_ema": x[1].clone(), "two.pth/nested.deep": x.clone()})

    # Tensors.
    views = {"all": x, "transposed": x.transpose(0, 2), "part": x[1], "stepped": x[:, ::2], "scalar": torch.tensor(3.0),
             "empty": torch.empty(0, 3), "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
             "parameter": nn.Parameter(x), "column": x[:, :, 1], "extent_one": torch.arange(6.0).reshape(3, 2)[:, None][:, :, :1]}
    save("views.pth", views, views)
    save("views_legacy.pth", views, views, _use_new_zipfile_serialization=False)
    dtypes = {"bool": torch.tensor([True, False]), "bfloat16": x.bfloat16() / 3, "float16": x.half() / 3, "float64": x.double() / 3,
              "uint8": x.to(torch.uint8), "int32": x.int() - 7, "int64": x.long() << 40}
    save("dtypes.pth", dtypes, dtypes)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    tied = nn.Sequential(first, second).state_dict()
    save("tied.pth", tied, tied)
    marked = Marked(x)
    marked.mark = 1
    save("parameter_state.pth", {"w": marked}, {"w": x})
    noted = torch.zeros(2)
    noted.note = "text"
    save("tensor_state.pth", {"w": noted}, {"w": noted})
    save("extra_state.pth", collections.OrderedDict(w=x, unset=None, _extra_state={"t": x, "n": 1}), {"w": x})

    # What no Tensor can be, each beside one that can.
    for name, value in {"int8": x.to(torch.int8), "int16": x.to(torch.int16), "complex64": x.to(torch.complex64),
                        "uint16": x.to(torch.uint16), "float8": x.to(torch.float8_e4m3fn), "expanded": torch.zeros(1).expand(5),
                        "conj": torch.ones(3, dtype=torch.complex64).conj(), "neg": torch.ones(3, dtype=torch.complex64).conj().imag,
                        "quantised": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "sparse": x[0].to_sparse(),
                        "sparse_rows": x[0].to_sparse_csr(), "meta": torch.empty(3, device="meta"),
                        "nine_axes": torch.zeros([1] * 9)}.items():
        save(f"no_{name}.pth", {"w": x, "odd": value})
    save("module.pt", nn.Sequential(nn.Linear(2, 1)))
    save("tensor.pt", x)
    save("list.pt", [x, x])
    torch.jit.script(nn.Linear(2, 1)).save(FOLDER / "script.pt")
    save_file(expected, FOLDER / "expected.safetensors")


if __name__ == "__main__":
    main()
