"""Writes PyTorch's 100 steps of the speed run, which tests/examples/speedrun_test.cpp compares with, to tests/data/reference/.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_speedrun.py
"""

import math
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

import formula

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference"
WIDTH, BATCH, BATCHES, STEPS, THAWED = 8, 32, 8, 100, 30
# Rounding errors grow with the rate, since max-pooling then chooses other elements: at the full rate float32 and float64 are
# 1.8 % apart after 100 steps, at this share of it 0.01 %.
RATE = 1 / 16


def block(inputs, outputs):
    norm = lambda: nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.MaxPool2d(2), norm(), nn.GELU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), norm(), nn.GELU())


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.blocks = nn.Sequential(nn.GELU(), block(24, WIDTH), block(WIDTH, 4 * WIDTH), block(4 * WIDTH, 4 * WIDTH),
                                    nn.MaxPool2d(3))
        self.head = nn.Linear(4 * WIDTH, 10, bias=False)

    def forward(self, x):
        return self.head(self.blocks(self.whiten(x)).flatten(1)) / 9


def learning_rate(step):
    peak = math.floor(0.23 * STEPS)
    shape = 0.2 + 0.8 * step / peak if step < peak else 1 - 0.93 * (step - peak) / (STEPS - peak)
    return RATE * 11.5 / (1024 * (1 + 1 / (1 - 0.85))) * shape


def steps(dtype):
    network = Network().to(dtype)
    for name, value in network.named_parameters():
        value.data.copy_(torch.from_numpy(formula.parameter("speedrun." + name, tuple(value.shape))))
        is_norm = name.startswith("blocks") and value.dim() == 1
        value.requires_grad = name != "whiten.weight" and not (is_norm and name.endswith("weight"))
    trained = [(name, value) for name, value in network.named_parameters() if value.requires_grad]
    is_shift = lambda name: name.startswith("blocks") and name.endswith("bias")
    decay = 0.0153 / 11.5 * BATCH
    optimizer = torch.optim.SGD(
        [dict(params=[v for n, v in trained if is_shift(n)], weight_decay=decay / 64, scale=64),
         dict(params=[v for n, v in trained if not is_shift(n)], weight_decay=decay, scale=1)],
        lr=1.0, momentum=0.85, nesterov=True)
    images = torch.from_numpy(formula.values("speedrun.images", (BATCHES * BATCH, 3, 32, 32), scale=2.0)).to(dtype)
    labels = torch.from_numpy(formula.words("speedrun.labels", BATCHES * BATCH).astype("int64") % 10)
    averages = {n: v.clone() for n, v in network.state_dict().items() if v.is_floating_point()}
    losses = []
    for step in range(STEPS):
        network.whiten.bias.requires_grad = step < THAWED
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step) * group["scale"]
        rows = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        loss = nn.functional.cross_entropy(network(images[rows]), labels[rows], label_smoothing=0.2, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 5 == 0:
            decay_now = 1.0 if step + 1 == STEPS else 0.95 ** 5 * ((step + 1) / STEPS) ** 3
            with torch.no_grad():
                for name, value in network.state_dict().items():
                    if name in averages:
                        averages[name].lerp_(value, 1 - decay_now)
                        value.copy_(averages[name])
    logits = network.eval()(images[:BATCH]).detach()
    return torch.tensor(losses, dtype=torch.float64), logits.double()


if __name__ == "__main__":
    torch.set_num_threads(1)
    losses, logits = steps(torch.float64)
    for_float32 = steps(torch.float32)
    print("losses", losses[0].item(), losses[-1].item())
    print("float32: relative error of losses", ((for_float32[0] - losses).abs() / losses).max().item(), "of logits",
          ((for_float32[1] - logits).abs().max() / logits.abs().max()).item())
    save_file({"losses": losses, "logits": logits}, FOLDER / "speedrun_float64.safetensors")
