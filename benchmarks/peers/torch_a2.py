#!/usr/bin/env python3
"""PyTorch by the options of examples/recipes/cifar10_resnet18_a2.json: the peer of train_resnet with that recipe.

Usage: torch_a2.py DATA [--seed 0] [--epochs 30] [--batch 512] [--precision mixed_f16] [--device cuda] [--max-steps N] [--report FILE]

DATA holds CIFAR-10's binary files (data_batch_1.bin ... data_batch_5.bin, test_batch.bin). ResNet-18 with a 3x3 stem, fresh; LAMB
(0.005, weight decay 0.02 on filters and matrices, gradients cut to a norm of 1), cosine after 5 epochs of warm-up, binary
cross-entropy with targets above 0.2 counted as 1, mixup 0.1 or CutMix 1 by turns, RandAugment m7-mstd0.5-inc1, crops and flips,
each image three times in an epoch. No averages of weights, no stochastic depth. Steps are eager, in channels-last.
Prints a JSON object: the accuracy on the test images after the last epoch, and the seconds of training.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_augment import rand_augment
from torch_models import case_of, make_network

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PAD, SIZE, REPEATS, CLASSES = 4, 32, 3, 10
LR, WARMUP_EPOCHS, DECAY, CLIP = 0.005, 5, 0.02, 1.0
MIXUP, CUTMIX, THRESHOLD, MAGNITUDE, DEVIATION = 0.1, 1.0, 0.2, 7, 0.5


def load(folder, names, device):
    """Pixels (N, 3, 32, 32) of uint8 and labels (N)."""
    rows = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 1 + 3 * SIZE * SIZE) for name in names])
    images = torch.from_numpy(np.ascontiguousarray(rows[:, 1:])).view(-1, 3, SIZE, SIZE)
    return images.to(device), torch.from_numpy(rows[:, 0].astype(np.int64)).to(device)


class Lamb:
    """LAMB after You et al. (2020), with bias correction; norms and biases have neither weight decay nor a trust ratio."""

    def __init__(self, net, decay, beta1=0.9, beta2=0.999, epsilon=1e-6):
        self.parameters = list(net.parameters())
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.decay, self.beta1, self.beta2, self.epsilon, self.steps = decay, beta1, beta2, epsilon, 0

    @torch.no_grad()
    def step(self, lr):
        self.steps += 1
        gradients = [p.grad for p in self.parameters]
        torch._foreach_lerp_(self.means, gradients, 1 - self.beta1)
        torch._foreach_mul_(self.squares, self.beta2)
        torch._foreach_addcmul_(self.squares, gradients, gradients, 1 - self.beta2)
        below = torch._foreach_sqrt(self.squares)
        torch._foreach_div_(below, math.sqrt(1 - self.beta2**self.steps))
        torch._foreach_add_(below, self.epsilon)
        updates = torch._foreach_div(torch._foreach_div(self.means, 1 - self.beta1**self.steps), below)
        large = [i for i, p in enumerate(self.parameters) if p.ndim > 1]
        values, own = [self.parameters[i] for i in large], [updates[i] for i in large]
        torch._foreach_add_(own, values, alpha=self.decay)
        one = torch.ones((), device=values[0].device)
        ratios = [torch.where((a > 0) & (b > 0), a / b, one)
                  for a, b in zip(torch._foreach_norm(values), torch._foreach_norm(own))]
        torch._foreach_mul_(own, ratios)
        torch._foreach_add_(self.parameters, updates, alpha=-lr)


def normalized(pixels):
    mean, std = (torch.tensor(v, device=pixels.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    return ((pixels / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def cropped(padded, rng):
    """Random crops and flips of padded images, as one gather."""
    n, device = len(padded), padded.device
    top, left = (torch.from_numpy(rng.integers(2 * PAD + 1, size=(n, 1))).to(device, non_blocking=True) for _ in range(2))
    rows, columns = (start + torch.arange(SIZE, device=device) for start in (top, left))
    turned = torch.from_numpy(rng.random((n, 1)) < 0.5).to(device, non_blocking=True)
    columns = torch.where(turned, columns.flip(1), columns)
    picked = padded.permute(0, 2, 3, 1)[torch.arange(n, device=device)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2).float().contiguous()


def mixed(images, targets, rng):
    """Mixup or CutMix with the image before, one share for the batch."""
    others, own = images.roll(1, 0), 1.0
    if rng.random() < 0.5:
        half = 0.5 * math.sqrt(1 - rng.beta(CUTMIX, CUTMIX))
        y, x = rng.integers(SIZE), rng.integers(SIZE)
        reach = int(half * SIZE)
        top, bottom, left, right = max(y - reach, 0), min(y + reach, SIZE), max(x - reach, 0), min(x + reach, SIZE)
        images = images.clone()
        images[:, :, top:bottom, left:right] = others[:, :, top:bottom, left:right]
        own = 1 - (bottom - top) * (right - left) / SIZE**2
    else:
        own = rng.beta(MIXUP, MIXUP)
        images = images * own + others * (1 - own)
    return images, targets * own + targets.roll(1, 0) * (1 - own)


def order_of_epoch(count, batch, rng):
    """For each batch its images: of a third as many all views are there, and neighbours differ."""
    shuffled = rng.permutation(count)
    distinct = -(-batch // REPEATS)
    for i in range(count // batch):
        own = shuffled[i * distinct:(i + 1) * distinct]
        yield np.tile(own, REPEATS)[:batch]


def rate(step, steps, warmup):
    if step < warmup:
        return LR * step / warmup
    return LR * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def accuracy(net, images, labels, autocast):
    net.eval()
    with torch.no_grad(), autocast():
        hits = sum((net(normalized(x.float())).argmax(1) == y).sum() for x, y in zip(images.split(1000), labels.split(1000)))
    net.train()
    return hits.item() / len(labels)


class Step:
    """Forward, backward and update; steps whose gradients are not finite change nothing."""

    def __init__(self, net, autocast, scaled):
        self.net, self.autocast, self.lamb = net, autocast, Lamb(net, DECAY)
        self.scaler = torch.amp.GradScaler(enabled=scaled)
        # GradScaler unscales what an optimiser holds; the update itself is Lamb's.
        self.holder = torch.optim.SGD(net.parameters(), 0.0)

    def __call__(self, images, targets, lr):
        self.holder.zero_grad(set_to_none=True)
        with self.autocast():
            logits = self.net(images)
        loss = F.binary_cross_entropy_with_logits(logits.float(), (targets > THRESHOLD).float())
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.holder)
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
        if not self.scaler.is_enabled() or torch.isfinite(norm):
            self.lamb.step(lr)
        self.scaler.step(self.holder)  # of rate 0: it only tells the scaler that a step was made
        self.scaler.update()
        return loss


def train(options, data):
    device, rng = options.device, np.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    (train_x, train_y), (test_x, test_y) = data
    dtype = {"mixed_f16": torch.float16, "mixed_bf16": torch.bfloat16}.get(options.precision)
    padded = F.pad(train_x.float(), (PAD,) * 4, mode="reflect").to(torch.uint8)
    net = make_network(case_of(network="resnet18_cifar")).to(device).to(memory_format=torch.channels_last)

    def autocast():
        return torch.autocast(torch.device(device).type, dtype, enabled=dtype is not None)

    step = Step(net, autocast, dtype == torch.float16 and "cuda" in device)
    per_epoch = len(train_x) // options.batch
    steps, done, loss = per_epoch * options.epochs, 0, torch.zeros(())
    start = time.perf_counter()
    for _ in range(options.epochs):
        for rows in order_of_epoch(len(train_x), options.batch, rng):
            if done == options.max_steps:
                break
            index = torch.from_numpy(rows).to(device, non_blocking=True)
            pixels = rand_augment(cropped(padded[index], rng), rng, MAGNITUDE, DEVIATION)
            images, targets = mixed(normalized(pixels), F.one_hot(train_y[index], CLASSES).float(), rng)
            loss = step(images, targets, rate(done, steps, WARMUP_EPOCHS * per_epoch))
            done += 1
    loss = loss.item()
    seconds = time.perf_counter() - start
    return {"seed": options.seed, "accuracy": accuracy(net, test_x, test_y, autocast), "loss": loss, "steps": done,
            "seconds": seconds, "img_s": done * options.batch / seconds, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="mixed_f16", choices=["mixed_f16", "mixed_bf16", "float32"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    data = [load(options.data, names, options.device)
            for names in ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"])]
    text = json.dumps(train(options, data))
    print(text)
    if options.report:
        options.report.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
