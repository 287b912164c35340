"""Writes the values of torchvision's and timm's residual networks that tests/nn/resnet_reference_test.cpp compares with, to
tests/data/reference/.

Run by maintainers, with PyTorch, torchvision, timm and safetensors installed: python tests/reference/generate_resnets.py
The stored ones came from torch 2.15, torchvision 0.29 and timm 1.0. The results depend on the inputs of formula.py only, up
to rounding; everything is float64. The networks are a quarter as wide as their names say, but for their names and shapes.
"""

import pathlib
import zlib

import numpy as np
import timm
import torch
import torchvision
from safetensors.torch import save_file

import formula

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference"
WIDTH = 16
TORCHVISION = ["resnet18", "resnet152", "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2",
               "wide_resnet101_2"]
TIMM = ["resnet18d", "resnet34d", "resnet50d", "resnet101d", "seresnet18", "seresnet34", "seresnet50", "seresnet101"]


def make(name, narrow):
    if name in TIMM:
        how = dict(channels=[WIDTH << i for i in range(4)], num_classes=5) if narrow else {}
        if narrow and name.endswith("d"):
            how["stem_width"] = WIDTH // 2
        model = timm.create_model(name, **how)
        if narrow and not name.endswith("d"):
            narrow_stem(model)
        return model
    if not narrow:
        return getattr(torchvision.models, name)()
    whole = torchvision.models.ResNet._make_layer

    def make_layer(self, block, planes, blocks, stride=1, dilate=False):
        if planes == 64:
            self.inplanes = WIDTH
        return whole(self, block, planes * WIDTH // 64, blocks, stride, dilate)

    torchvision.models.ResNet._make_layer = make_layer
    try:
        model = getattr(torchvision.models, name)(num_classes=5)
    finally:
        torchvision.models.ResNet._make_layer = whole
    narrow_stem(model)
    model.fc = torch.nn.Linear(8 * WIDTH * model.layer4[-1].expansion, 5)
    return model


def narrow_stem(model):
    """Neither has an option for the width of the plain stem, nor timm for the first block's input then."""
    model.conv1 = torch.nn.Conv2d(3, WIDTH, 7, stride=2, padding=3, bias=False)
    model.bn1 = torch.nn.BatchNorm2d(WIDTH)
    block = model.layer1[0]
    if block.conv1.in_channels == WIDTH:
        return
    block.conv1 = torch.nn.Conv2d(WIDTH, WIDTH, block.conv1.kernel_size, padding=block.conv1.padding, bias=False)
    block.downsample = None if not hasattr(block, "conv3") else torch.nn.Sequential(
        torch.nn.Conv2d(WIDTH, 4 * WIDTH, 1, bias=False), torch.nn.BatchNorm2d(4 * WIDTH))


def names_and_shapes(model):
    """How many names, how many parameters, and a checksum of all names with their shapes."""
    lines = [f"{name} ({', '.join(str(extent) for extent in value.shape)})\n"
             for name, value in sorted(model.state_dict().items())]
    return torch.tensor([len(lines), sum(p.numel() for p in model.parameters()), zlib.crc32("".join(lines).encode())],
                        device="cpu")


def step(name):
    """A training step, then logits in evaluation mode, from statistics that the step moved."""
    model = make(name, True)
    for key, value in model.state_dict().items():
        if value.dim() > 0:
            value.copy_(torch.from_numpy(formula.parameter(f"{name}.{key}", tuple(value.shape))))
    model.double().train()
    images = torch.from_numpy(formula.values(f"{name}.images", (3, 3, 41, 50), scale=2.0)).double()
    logits = model(images)
    torch.nn.functional.cross_entropy(logits, torch.tensor([1, 4, 0])).backward()

    def digest(kind, named):
        return torch.from_numpy(formula.digest(f"{name}.{kind}", torch.cat(
            [value.detach().flatten() for _, value in sorted(named) if value.dim() > 0])))

    out = {"logits": logits,
           "gradients": digest("gradients", [(key, value.grad) for key, value in model.named_parameters()]),
           "buffers": digest("buffers", list(model.named_buffers()))}
    with torch.no_grad():
        out["eval_logits"] = model.eval()(images)
    return out


def main():
    out = {}
    for name in TORCHVISION + TIMM:
        with torch.device("meta"):
            out[name + ".names"] = names_and_shapes(make(name, False))
        out |= {f"{name}.{key}": value.detach().clone().contiguous() for key, value in step(name).items()}
    path = FOLDER / "resnets_float64.safetensors"
    save_file(out, path)
    print(path.stat().st_size, path.name)


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()
