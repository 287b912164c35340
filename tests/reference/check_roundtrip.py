"""Checks that PyTorch reads a file that Sinter wrote.

First let Sinter write one, then give its name to this script:
  SINTER_ROUNDTRIP_FILE=/path/of/a.safetensors build/tests/nn_test --gtest_filter='PyTorchFile.*'
  python tests/reference/check_roundtrip.py /path/of/a.safetensors
"""

import sys

import torch
from safetensors.torch import load_file

import generate


def main():
    expected = generate.narrow(generate.torchvision.models.resnet18(), 16, 10)
    generate.fill(expected, "narrow.")
    actual = generate.narrow(generate.torchvision.models.resnet18(), 16, 10)
    actual.load_state_dict(load_file(sys.argv[1]), strict=True)
    for name, value in expected.state_dict().items():
        assert torch.equal(actual.state_dict()[name], value), name
    print(f"{sys.argv[1]}: PyTorch reads all {len(expected.state_dict())} tensors as Sinter wrote them")


if __name__ == "__main__":
    main()
