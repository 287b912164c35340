"""The PyTorch peer of `train_resnet --data <cifar> --model resnet20` on a CPU: same model, recipe and data.

Usage: torch_resnet20_cpu.py DIR [--epochs 3] [--seed 0] [--threads 2] [--steps N] [--channels-last] [--compile]
DIR holds train/<class>/*.jpg and test/<class>/*.jpg. Needs torch, numpy and pillow.
With --steps it stops after N training steps and only reports the speed.
"""
import argparse
import glob
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

MEAN = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32)
STD = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32)


class Block(nn.Module):
    """Basic block of He et al.; where the shape changes the shortcut is a 1x1 convolution with batch norm."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + shortcut, inplace=True)


def resnet20(classes):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    width = 16
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            layers.append(Block(width, outputs, stride if i == 0 else 1))
            width = outputs
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def load(root, split):
    classes = sorted(os.listdir(os.path.join(root, split)))
    files = [(f, i) for i, c in enumerate(classes) for f in sorted(glob.glob(os.path.join(root, split, c, "*.jpg")))]
    with ThreadPoolExecutor(2) as pool:
        images = list(pool.map(lambda f: np.asarray(Image.open(f[0]).convert("RGB")), files))
    return np.stack(images), np.array([i for _, i in files])


def augment(images, rng, pad=4):
    n, size = len(images), images.shape[1]
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    out = np.empty_like(images)
    for i in range(n):
        y, x = rng.integers(0, 2 * pad + 1, 2)
        crop = padded[i, y : y + size, x : x + size]
        out[i] = crop[:, ::-1] if rng.random() < 0.5 else crop
    return out


def normalise(images):
    return torch.from_numpy(((images.astype(np.float32) / 255 - MEAN) / STD).transpose(0, 3, 1, 2).copy())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    train_x, train_y = load(options.root, "train")
    test_x, test_y = load(options.root, "test")

    net = resnet20(10)
    if options.channels_last:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    model = torch.compile(net) if options.compile else net
    per_epoch = len(train_x) // options.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.lr, total_steps=per_epoch * options.epochs, pct_start=0.2, anneal_strategy="linear"
    )
    steps, compute, seen = 0, 0.0, 0
    for epoch in range(options.epochs):
        net.train()
        order = rng.permutation(len(train_x))
        for i in range(per_epoch):
            pick = order[i * options.batch : (i + 1) * options.batch]
            x = normalise(augment(train_x[pick], rng))
            y = torch.from_numpy(train_y[pick])
            if options.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            begin = time.perf_counter()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            value = loss.item()
            if steps >= 5:  # the first steps warm up
                compute += time.perf_counter() - begin
                seen += len(x)
            steps += 1
            if steps == options.steps:
                print(f"train: {seen / compute:.1f} img/s over {steps} steps, loss {value:.3f}")
                return
        net.eval()
        with torch.no_grad():
            right = sum(
                (net(normalise(test_x[i : i + 500])).argmax(1).numpy() == test_y[i : i + 500]).sum()
                for i in range(0, len(test_x), 500)
            )
        print(f"epoch {epoch + 1} loss {value:.3f} accuracy {100 * right / len(test_x):.2f} % train {seen / compute:.1f} img/s", flush=True)
    print(f"test accuracy: {100 * right / len(test_x):.2f} %")


if __name__ == "__main__":
    main()
