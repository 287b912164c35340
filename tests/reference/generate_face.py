"""Writes the PyTorch values that tests/nn/iresnet_test.cpp compares with, to tests/data/reference/.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_face.py
The results depend on the inputs of formula.py only, up to rounding; everything is float64.
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

import formula

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference"
F = nn.functional


def tensor(name, shape, **how):
    return torch.from_numpy(formula.values(name, shape, **how)).double()


def leaf(name, shape, **how):
    return tensor(name, shape, **how).requires_grad_()


def margin_logits(cosine, labels, scale=64.0, m1=1.0, m2=0.5, m3=0.0, threshold=0.0, exact=False):
    """Cosines to logits. Unless exact, the margin is a constant that is added: as InsightFace has it, whose arccos, sum and
    cos are out of autograd's sight."""
    rows = torch.nonzero(labels >= 0).flatten()
    own = labels[rows]
    kept = (cosine.detach() <= threshold).double() if threshold > 0 else torch.ones_like(cosine)
    positive = cosine[rows, own]
    moved = torch.cos(m1 * torch.acos(positive) + m2) - m3
    if not exact:
        moved = positive + (moved - positive).detach()
    return scale * (cosine * kept).index_put((rows, own), moved)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x)))))
        return self.bn3(y) + (x if self.downsample is None else self.downsample(x))


class IResNet(nn.Module):
    def __init__(self, blocks, width, last_map, dimensions):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.prelu = nn.PReLU(width)
        channels = width
        self.stages = len(blocks)
        for stage, count in enumerate(blocks):
            chain = []
            for i in range(count):
                chain.append(Block(channels, width << stage, 2 if i == 0 else 1))
                channels = width << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*chain))
        self.bn2 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels * last_map[0] * last_map[1], dimensions)
        self.features = nn.BatchNorm1d(dimensions)
        self.features.weight.requires_grad = False

    def forward(self, x):
        y = self.prelu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            y = getattr(self, f"layer{stage + 1}")(y)
        return self.features(self.fc(self.bn2(y).flatten(1)))


def fill(model, prefix):
    """Every parameter and buffer by the formula of its name; slopes lie in [0, 1/2)."""
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            value.fill_(3)
        elif name.endswith("prelu.weight"):
            value.copy_(tensor(prefix + name, tuple(value.shape), scale=0.25, base=0.25))
        else:
            value.copy_(torch.from_numpy(formula.parameter(prefix + name, tuple(value.shape))))
    return model


def margin_cases(out):
    labels = torch.tensor([3, 0, -1, 6, 2, 2])
    cases = {"arcface": {}, "arcface_exact": dict(exact=True), "cosface": dict(m2=0.0, m3=0.4),
             "sphereface": dict(scale=30.0, m1=1.35, m2=0.0, exact=True),
             "combined": dict(scale=32.0, m1=0.9, m2=0.4, m3=0.15, exact=True), "filter": dict(threshold=0.3)}
    for name, options in cases.items():
        case = "margin." + name
        cosine = leaf(case + ".cosine", (6, 7), scale=0.95)
        logits = margin_logits(cosine, labels, **options)
        loss = F.cross_entropy(logits, labels, ignore_index=-1)
        loss.backward()
        out |= {case + ".logits": logits, case + ".loss": loss, case + ".dcosine": cosine.grad}


def head_loss(embeddings, weight, labels, **options):
    cosine = F.linear(F.normalize(embeddings), F.normalize(weight))
    return F.cross_entropy(margin_logits(cosine, labels, **options), labels, ignore_index=-1)


def head_cases(out):
    labels = torch.tensor([8, 0, 5, -1, 5])
    for name, options in {"arcface": {}, "cosface": dict(m2=0.0, m3=0.4, exact=True)}.items():
        case = "head." + name
        embeddings, weight = leaf(case + ".embeddings", (5, 6), scale=3.0), leaf(case + ".weight", (9, 6))
        loss = head_loss(embeddings, weight, labels, **options)
        loss.backward()
        out |= {case + ".loss": loss, case + ".dembeddings": embeddings.grad, case + ".dweight": weight.grad}


def stage_cases(out):
    """A stage of two blocks, the first with a projection: its output, all gradients and all statistics."""
    model = fill(IResNet([2], 4, (5, 4), 3).double().layer1, "stage.")
    x = leaf("stage.x", (2, 4, 9, 7))
    y = model(x)
    y.backward(tensor("stage.dy", tuple(y.shape)))
    out |= {"stage.y": y, "stage.dx": x.grad}
    out |= {"stage.grad." + name: value.grad for name, value in model.named_parameters()}
    out |= {"stage.buffer." + name: value for name, value in model.named_buffers() if value.dim() == 1}


def is_shift_before_norms(name):
    """Biases that shift what only norms read, maybe through linear layers: these take any shift out again, and the gradients
    are 0 but for rounding."""
    return name in ("bn2.bias", "fc.bias") or name.endswith(("bn3.bias", "downsample.1.bias"))


def iresnet18():
    """A training step of a narrow iresnet18 with its margin head, on images that are not square; then its embeddings in
    evaluation mode."""
    model = fill(IResNet([2, 2, 2, 2], 8, (3, 4), 16), "iresnet.").double()
    weight = leaf("iresnet.head.weight", (10, 16))
    images = tensor("iresnet.images", (3, 3, 48, 56), scale=2.0)
    embeddings = model(images)
    loss = head_loss(embeddings, weight, torch.tensor([1, 7, 3]))
    loss.backward()
    out = {"embeddings": embeddings, "loss": loss, "grad.head.weight": weight.grad}
    for name, value in model.named_parameters():
        if is_shift_before_norms(name):
            assert value.grad.abs().max() < 1e-12, name
        elif value.requires_grad:
            out["grad." + name] = torch.from_numpy(formula.digest("iresnet." + name, value.grad))
    for name, value in model.named_buffers():
        if value.dim() == 1:
            out["buffer." + name] = torch.from_numpy(formula.digest("iresnet." + name, value))
    with torch.no_grad():
        out["eval_embeddings"] = model.eval()(images)
    return out


def counts():
    """Parameters of the full models, and the names of the smallest: printed, for the tests to hold."""
    for depth, blocks in {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 14, 3], 100: [3, 13, 30, 3],
                          200: [6, 26, 60, 6]}.items():
        with torch.device("meta"):
            model = IResNet(blocks, 64, (7, 7), 512)
        print(depth, sum(p.numel() for p in model.parameters()), len(model.state_dict()))


def save(name, tensors):
    path = FOLDER / (name + ".safetensors")
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, path)
    assert path.stat().st_size < 400_000, path
    print(f"{path.stat().st_size:8} {path.name}")


def main():
    counts()
    face = {}
    margin_cases(face)
    head_cases(face)
    stage_cases(face)
    save("face", face)
    save("iresnet18_float64", iresnet18())


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()
