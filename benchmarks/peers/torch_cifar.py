"""PyTorch on CIFAR-10 as a folder of JPEGs, the peer of `train_resnet --model resnet18` with the recipe below.

ResNet-18 with a 3x3 stem; batch 512, SGD with Nesterov momentum 0.9, one cycle to a learning rate of 0.4 (20 % rising,
linear), weight decay 5e-4 on filters and matrices, label smoothing 0.1, crops of images padded by 4 and flips, made on the GPU.
Images lie on the GPU as bytes from the start; `seconds` are those of training, `load_s` those of decoding, `test_s` those
of the test after the last epoch. Figures are means over the seeds, `accuracy_least` is the lowest.
"""
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from peer_bench import Peers
from PIL import Image
from torch_models import Step, case_of, decay_groups, make_trained, set_precision

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH, PAD, SIZE = 512, 4, 32
MODES = {"torch_eager": None, "torch_compile": "default", "torch_compile_graphs": "reduce-overhead"}


def load(root, split):
    """Images (N, 3, H, W) of uint8 and labels (N) on the GPU."""
    folder = os.path.join(root, split)
    names = [(entry, label, file) for label, entry in enumerate(sorted(os.listdir(folder)))
             for file in sorted(os.listdir(os.path.join(folder, entry)))]

    def read(name):
        return np.asarray(Image.open(os.path.join(folder, name[0], name[2])).convert("RGB"))

    with ThreadPoolExecutor() as pool:
        images = np.stack(list(pool.map(read, names)))
    return torch.from_numpy(images).cuda().permute(0, 3, 1, 2).contiguous(), torch.tensor([n[1] for n in names]).cuda()


def normalized(images):
    mean, std = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (MEAN, STD))
    return ((images.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def augmented(padded):
    """Random crops and flips of padded images, as one gather."""
    n = len(padded)
    top, left = (torch.randint(2 * PAD + 1, (n, 1), device="cuda") for _ in range(2))
    rows, columns = (start + torch.arange(SIZE, device="cuda") for start in (top, left))
    columns = torch.where(torch.rand(n, 1, device="cuda") < 0.5, columns.flip(1), columns)
    picked = padded.permute(0, 2, 3, 1)[torch.arange(n, device="cuda")[:, None, None], rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)


def accuracy(net, images, labels, amp):
    net.eval()
    with torch.no_grad(), torch.autocast("cuda", amp, enabled=amp is not None):
        hits = sum((net(x).argmax(1) == y).sum() for x, y in zip(images.split(1000), labels.split(1000)))
    net.train()
    return hits.item() / len(labels)


def train(data, epochs, seed, precision, mode):
    (train_x, train_y), (test_x, test_y) = data
    torch._dynamo.reset()
    torch.manual_seed(seed)
    amp = set_precision(precision)
    images = F.pad(normalized(train_x), (PAD,) * 4, mode="reflect").to(amp or torch.float32)
    images = images.contiguous(memory_format=torch.channels_last)
    tests = normalized(test_x)
    net = make_trained(case_of(network="resnet18_cifar")).cuda().to(memory_format=torch.channels_last)
    model = net if mode is None else torch.compile(net, mode=mode)
    optimizer = torch.optim.SGD(decay_groups(net, 5e-4), 0.1, momentum=0.9, nesterov=True, fused=True)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.4, total_steps=steps * epochs, pct_start=0.2, anneal_strategy="linear", cycle_momentum=False)
    step = Step(net, model, optimizer, amp, label_smoothing=0.1)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    start = time.perf_counter()
    for _ in range(3):  # choosing and compiling kernels is not training: its effect is undone
        with torch.autocast("cuda", amp, enabled=amp is not None):
            F.cross_entropy(model(images[:BATCH, :, PAD:-PAD, PAD:-PAD]).float(), train_y[:BATCH]).backward()
        optimizer.zero_grad(set_to_none=True)
    net.load_state_dict(state)
    torch.cuda.synchronize()
    warm_up = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(epochs):
        order = torch.randperm(len(images), device="cuda")
        for i in range(steps):
            picked = order[i * BATCH:(i + 1) * BATCH]
            step(augmented(images[picked]), train_y[picked])
            schedule.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    result = accuracy(net, tests, test_y, amp)
    return {"img_s": steps * BATCH * epochs / seconds, "seconds": seconds, "accuracy": result, "warm_up_s": warm_up,
            "test_s": time.perf_counter() - start}


def main():
    torch.backends.cudnn.benchmark = True
    peers = Peers(
        __doc__, root={"help": "folder with train/<class>/*.jpg and test/<class>/*.jpg"},
        epochs={"type": int, "default": 30}, seeds={"type": int, "nargs": "+", "default": [0]},
        precision={"default": "mixed_f16", "choices": ["mixed_f16", "mixed_bf16", "tf32", "float32"]})
    options = peers.options
    start = time.perf_counter()
    data = load(options.root, "train"), load(options.root, "test")
    loading = time.perf_counter() - start
    case = f"resnet18, {options.epochs} epochs"
    for peer, mode in MODES.items():
        if peers.quick and mode is not None:
            continue

        def run():
            runs = [train(data, options.epochs, seed, options.precision, mode) for seed in options.seeds]
            means = {name: statistics.mean(one[name] for one in runs) for name in runs[0]}
            least = min(one["accuracy"] for one in runs)
            return dict(means, accuracy_least=least, seeds=len(runs), load_s=loading)

        peers.measure("cifar10", case, options.precision, "NHWC", peer, run)
    peers.end()


if __name__ == "__main__":
    main()
