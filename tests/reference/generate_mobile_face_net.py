"""Writes PyTorch's values of a training step of MobileFaceNet, which tests/nn/mobile_face_net_test.cpp compares with, to
tests/data/reference/. The network is written from the description of its layers, with InsightFace's names.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_mobile_face_net.py
"""

import torch
from torch import nn

import formula
import generate_face as face


class Block(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def chain(inputs, outputs, kernel=1, stride=1, groups=1, padding=None, activated=True):
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 if padding is None else padding, groups=groups, bias=False),
              nn.BatchNorm2d(outputs)]
    return Block(*layers, *([nn.PReLU(outputs)] if activated else []))


class DepthWise(Block):
    def __init__(self, inputs, middle, outputs, stride, residual=False):
        super().__init__(chain(inputs, middle), chain(middle, middle, 3, stride, middle), chain(middle, outputs, activated=False))
        self.residual = residual

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


def residuals(count, channels, middle):
    return Block(*[DepthWise(channels, middle, channels, 1, True) for _ in range(count)])


class MobileFaceNet(nn.Module):
    def __init__(self, blocks, scale, dimensions=512):
        super().__init__()
        a, b = 64 * scale, 128 * scale
        second = chain(a, a, 3, groups=64) if blocks[0] == 1 else residuals(blocks[0], a, 128)
        self.layers = nn.ModuleList([chain(3, a, 3, 2), second, DepthWise(a, 128, a, 2), residuals(blocks[1], a, 128),
                                     DepthWise(a, 256, b, 2), residuals(blocks[2], b, 256), DepthWise(b, 512, b, 2),
                                     residuals(blocks[3], b, 256)])
        self.conv_sep = chain(b, 512)
        self.features = Block(chain(512, 512, 7, groups=512, padding=0, activated=False), nn.Flatten(),
                              nn.Linear(512, dimensions, bias=False), nn.BatchNorm1d(dimensions))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.features(self.conv_sep(x))


def fill(model, prefix):
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            value.fill_(3)
        elif value.dim() == 1 and name.endswith("layers.2.weight"):
            value.copy_(face.tensor(prefix + name, tuple(value.shape), scale=0.25, base=0.25))
        else:
            value.copy_(torch.from_numpy(formula.parameter(prefix + name, tuple(value.shape))))
    return model


def is_shift_before_norms(name):
    return name.endswith(".layers.2.layers.1.bias") or name == "features.layers.0.layers.1.bias"


def step():
    model = fill(MobileFaceNet([1, 4, 6, 2], 2, 16).double(), "mbf.")
    images = face.tensor("mbf.images", (4, 3, 112, 112), scale=2.0)
    weight = face.leaf("mbf.head.weight", (10, 16))
    embeddings = model(images)
    loss = face.head_loss(embeddings, weight, torch.tensor([1, 7, 3, 0]), scale=8.0, exact=True)
    loss.backward()
    out = {"embeddings": embeddings, "loss": loss}
    largest = 0.0
    for name, value in model.named_parameters():
        if is_shift_before_norms(name):
            largest = max(largest, value.grad.abs().max().item())
        else:
            out["grad." + name] = torch.from_numpy(formula.digest("mbf." + name, value.grad))
    for name, value in model.named_buffers():
        if value.dim() == 1:
            out["buffer." + name] = torch.from_numpy(formula.digest("mbf." + name, value))
    with torch.no_grad():
        out["eval_embeddings"] = model.eval()(images)
    print("loss", loss.item(), "gradients that are 0 but for rounding", largest)
    return out


if __name__ == "__main__":
    for blocks, scale in (([1, 4, 6, 2], 2), ([2, 8, 12, 4], 4)):
        with torch.device("meta"):
            model = MobileFaceNet(blocks, scale)
        print(blocks, sum(p.numel() for p in model.parameters()), len(model.state_dict()))
    face.save("mobile_face_net_float64", step())
