#!/usr/bin/env python3
"""Prints the PyTorch values that the tests in tests/nn hold as constants.

Needs torch and torchvision; the constants came from torch 2.15 and torchvision 0.29. Everything is float64
unless it says otherwise.
"""
import math
import warnings

import torch
import torchvision
from torch.optim import lr_scheduler

warnings.filterwarnings("ignore")
torch.set_num_threads(2)


def row(name, values):
    print(f"{name}: " + ", ".join(repr(float(v)) for v in values))


def optimizer_values(name, make):
    """One parameter after five updates."""
    parameter = torch.nn.Parameter(torch.tensor([(i - 2.5) / 4 for i in range(6)], dtype=torch.float64))
    optimizer = make([parameter])
    for step in range(5):
        parameter.grad = torch.tensor([((7 * i + 3 * step) % 11 - 5) / 8 for i in range(6)], dtype=torch.float64)
        optimizer.step()
    row(name, parameter.detach())


def mixed_values(name, make):
    """A float32 parameter after five updates with float16 gradients of 1,024 times their size."""
    parameter = torch.nn.Parameter(torch.tensor([(i - 2.5) / 4 for i in range(6)], dtype=torch.float32))
    optimizer = make([parameter])
    for step in range(5):
        parameter.grad = (pattern(6, step) * 1024).to(torch.float16).to(torch.float32) / 1024
        optimizer.step()
    row(name, parameter.detach())


def loss_scales(name, bad_steps, steps):
    """The scale after each step; a bad step has an infinite gradient."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
    scales = []
    for step in range(steps):
        scaler.scale(torch.zeros(1))
        parameter.grad = torch.full((2,), math.inf if step in bad_steps else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    row(name, scales)


def schedule_values(name, base, make, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    scheduler = make(optimizer)
    rates = []
    for _ in range(max(steps) + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    row(name, [rates[step] for step in steps])


def pattern(count, seed):
    """Numbers in [-0.5, 0.5) that C++ can make as well."""
    index = torch.arange(count, dtype=torch.int64)
    word = (index * 2654435761 + seed * 40503 + 12345) % 2**32
    word = (word ^ (word >> 15)) * 2246822519 % 2**32
    return word.to(torch.float64) / 2**32 - 0.5


def fill_model(model):
    state = model.state_dict()
    for seed, name in enumerate(sorted(state)):
        value = state[name]
        if value.dtype == torch.int64:
            continue
        noise = pattern(value.numel(), seed).reshape(value.shape)
        if value.dim() >= 2:
            fan_in = value[0].numel()
            state[name] = noise * math.sqrt(24 / fan_in)
        elif name.endswith("running_var") or name.endswith("weight"):
            state[name] = 1 + noise
        else:
            state[name] = noise
    model.load_state_dict(state)


def model_values(name, model, extent):
    model.double()
    fill_model(model)
    images = pattern(2 * 3 * extent * extent, 1000).reshape(2, 3, extent, extent)
    labels = torch.tensor([1, 3])
    row(f"{name} eval logits", model.eval()(images).flatten())
    logits = model.train()(images)
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    row(f"{name} train logits", logits.flatten())
    row(f"{name} loss", [loss])
    for parameter_name in ["conv1.weight", "bn1.bias", "layer2.0.downsample.0.weight", "layer3.0.conv2.weight", "fc.weight"]:
        grad = dict(model.named_parameters())[parameter_name].grad
        row(f"{name} gradient of {parameter_name}, norm and projection",
            [grad.norm(), (grad.flatten() * pattern(grad.numel(), 7)).sum()])
    state = model.state_dict()
    row(f"{name} running_var of layer1.0.bn1, sum", [state["layer1.0.bn1.running_var"].sum()])
    print(f"{name} batches tracked:", int(state["bn1.num_batches_tracked"]))


optimizer_values("sgd", lambda p: torch.optim.SGD(p, 0.1))
optimizer_values("sgd momentum", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05))
optimizer_values("sgd dampening", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.3))
optimizer_values("sgd nesterov", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05, nesterov=True))
optimizer_values("adam", lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.95), weight_decay=0.1))
optimizer_values("adamw", lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.95), weight_decay=0.1))
mixed_values("mixed sgd nesterov", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05, nesterov=True))
mixed_values("mixed sgd dampening", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.3))
mixed_values("mixed adam", lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.95), weight_decay=0.1))
mixed_values("mixed adamw", lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.95), weight_decay=0.1))
loss_scales("loss scale", {0, 5, 9, 10}, 16)

schedule_values("step", 0.4, lambda o: lr_scheduler.StepLR(o, 3, 0.5), [0, 2, 3, 5, 6, 11])
schedule_values("multi step", 0.4, lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.1), [0, 1, 2, 4, 5, 9])
schedule_values("cosine", 0.4, lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 0.01), [0, 1, 4, 5, 9, 10])
schedule_values("polynomial", 0.4, lambda o: lr_scheduler.PolynomialLR(o, 10, 2.0), [0, 1, 4, 5, 9, 10, 12])
schedule_values("one cycle", 0.4, lambda o: lr_scheduler.OneCycleLR(o, 0.4, total_steps=20), [0, 1, 4, 5, 6, 12, 19])
schedule_values("one cycle linear", 0.4, lambda o: lr_scheduler.OneCycleLR(
    o, 0.4, total_steps=20, pct_start=0.23, anneal_strategy="linear", div_factor=10, final_div_factor=100),
    [0, 1, 3, 4, 5, 12, 19])
schedule_values("warm-up", 0.4, lambda o: lr_scheduler.SequentialLR(o, [
    lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 8)], [4]),
    [0, 1, 3, 4, 5, 11])

model_values("resnet18", torchvision.models.resnet18(num_classes=5), 64)
model_values("resnet50", torchvision.models.resnet50(num_classes=5), 64)
for depth in [18, 34, 50, 101, 152]:
    model = getattr(torchvision.models, f"resnet{depth}")()
    print(f"resnet{depth}: {sum(p.numel() for p in model.parameters())} parameters, {len(model.state_dict())} names")
