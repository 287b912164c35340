"""Writes PyTorch's loss and gradients of a critic with a gradient penalty (I. Gulrajani et al., "Improved training of
Wasserstein GANs", 2017), in float64, to tests/data/reference/gradient_penalty.safetensors.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_gradient_penalty.py
tests/nn/gradient_penalty_test.cpp compares with them.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

import formula

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference" / "gradient_penalty.safetensors"


def tensor(name, shape, **how):
    return torch.from_numpy(formula.values(name, shape, **how)).double()


def main():
    critic = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.LeakyReLU(0.2),
                           nn.Conv2d(4, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.SiLU(), nn.MaxPool2d(2),
                           nn.Flatten(), nn.Linear(24, 5), nn.Softmax(-1), nn.Linear(5, 1)).double()
    with torch.no_grad():
        for name, value in critic.named_parameters():
            value.copy_(torch.from_numpy(formula.parameter("critic." + name, tuple(value.shape))))
    real, fake = tensor("critic.real", (4, 2, 8, 8)), tensor("critic.fake", (4, 2, 8, 8))
    share = tensor("critic.share", (4, 1, 1, 1), scale=0.5, base=0.5)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    slope, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    loss.backward()
    out = {"slope": slope.detach(), "penalty": penalty.detach(), "loss": loss.detach()}
    for name, value in critic.named_parameters():
        out["grad." + name] = value.grad
    save_file({name: value.contiguous() for name, value in out.items()}, FILE)


if __name__ == "__main__":
    main()
