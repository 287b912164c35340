"""One rank of PyTorch's training on synthetic data: the peer of scaling_benchmark, started by scaling.py.

Networks under DistributedDataParallel; the centres of people are divided among the ranks, and of each rank's part a share is
drawn for every step, with the rows and momenta of the centres fetched before it and put back after it. Source: X. An et al.,
"Killing two birds with one stone: Efficient and robust training of face recognition CNNs by Partial FC", CVPR 2022.

usage: torch_scaling.py CASE [--compile] [--steps N] [--cpu]        CASE: of suite "scaling" in cases.json
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch_models import CASES, Step, arcface, case_of, decay_groups, make_images, make_labels, make_network, make_trained, set_precision

RUNS, WARM_UP = 7, 12
DECAY, MOMENTUM, RATE = 5e-5, 0.9, 0.01


class Gather(torch.autograd.Function):
    """The rows of all ranks; the gradient of a rank's rows is the sum of all ranks'."""

    @staticmethod
    def forward(ctx, rows):
        out = rows.new_empty(dist.get_world_size() * len(rows), rows.shape[1])
        dist.all_gather_into_tensor(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = gradient.new_empty(len(gradient) // dist.get_world_size(), gradient.shape[1])
        dist.reduce_scatter_tensor(out, gradient.contiguous())
        return out * dist.get_world_size()  # DistributedDataParallel divides by it


class ShardedCrossEntropy(torch.autograd.Function):
    """The mean over rows, of softmax over the columns of all ranks; each row's label is on one rank, and -1 on the others."""

    @staticmethod
    def forward(ctx, logits, labels):
        largest = logits.amax(1, keepdim=True)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        p = (logits - largest).exp_()
        total = p.sum(1, keepdim=True)
        dist.all_reduce(total)
        p.div_(total)
        rows = torch.arange(len(labels), device=labels.device)
        is_here = labels >= 0
        own = torch.where(is_here, p[rows, labels.clamp(min=0)], 0.0)
        dist.all_reduce(own)
        ctx.save_for_backward(p, labels)
        return -own.clamp(min=1e-30).log().mean()

    @staticmethod
    def backward(ctx, gradient):
        p, labels = ctx.saved_tensors
        p = p.scatter_add(1, labels.clamp(min=0)[:, None], -(labels >= 0).to(p.dtype)[:, None])
        return p * (gradient / len(labels)), None


def logits_of(embeddings, centres, labels):
    return arcface(F.linear(F.normalize(embeddings), F.normalize(centres)), labels)


class Recognition:
    def __init__(self, case, device, amp, compile_too):
        self.amp = amp
        self.rank, self.size, self.device = dist.get_rank(), dist.get_world_size(), device
        self.case = case
        base, rest = divmod(case["classes"], self.size)
        self.first = self.rank * base + min(self.rank, rest)
        self.own = base + (self.rank < rest)
        self.drawn = min(self.own, max(int(self.own * case["sample_rate"]), self.size * case["batch"]))
        self.table = torch.randn(self.own, 512, device=device) * 0.01
        self.momenta = torch.zeros_like(self.table)
        net = make_network(case).to(device, memory_format=torch.channels_last)
        wrapped = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True) if self.size > 1 else net
        self.model = torch.compile(wrapped) if compile_too else wrapped
        self.logits = torch.compile(logits_of) if compile_too else logits_of
        self.centres = torch.nn.Parameter(torch.empty(self.drawn, 512, device=device))
        groups = [*decay_groups(net, DECAY), {"params": [self.centres], "weight_decay": DECAY}]
        self.optimizer = torch.optim.SGD(groups, RATE, momentum=MOMENTUM, fused=True)
        self.optimizer.state[self.centres]["momentum_buffer"] = torch.zeros_like(self.centres)
        # All ranks must skip the same steps: none is skipped.
        self.scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=10**9)

    def draw(self, labels):
        """The classes of a step, sorted, and the labels among them."""
        labels = labels - self.first
        labels = torch.where((labels >= 0) & (labels < self.own), labels, -1)
        if self.drawn == self.own:
            return None, labels
        order = torch.rand(self.own, device=self.device)
        order[labels[labels >= 0]] = 2.0
        drawn = torch.topk(order, self.drawn, sorted=False).indices.sort().values
        return drawn, torch.where(labels >= 0, torch.searchsorted(drawn, labels.clamp(min=0)), -1)

    def __call__(self, images, _):
        labels = make_labels(self.case, self.device)
        if self.size > 1:
            everyone = labels.new_empty(self.size * len(labels))
            dist.all_gather_into_tensor(everyone, labels)
            labels = everyone
        drawn, labels = self.draw(labels)
        momentum = self.optimizer.state[self.centres]["momentum_buffer"]
        if drawn is not None:
            torch.index_select(self.table, 0, drawn, out=self.centres.data)
            torch.index_select(self.momenta, 0, drawn, out=momentum)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.amp, enabled=self.amp is not None):
            embeddings = self.model(images)
            gathered = Gather.apply(embeddings) if self.size > 1 else embeddings
            logits = self.logits(gathered, self.centres, labels)
        loss = ShardedCrossEntropy.apply(logits, labels) if self.size > 1 else F.cross_entropy(logits, labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if drawn is not None:
            self.table[drawn] = self.centres.data
            self.momenta[drawn] = momentum
        return loss


def classification(case, device, amp, compile_too):
    net = make_trained(case).to(device, memory_format=torch.channels_last)
    wrapped = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True) if dist.get_world_size() > 1 else net
    optimizer = torch.optim.SGD(decay_groups(net, DECAY), RATE, momentum=MOMENTUM, fused=True)
    return Step(net, torch.compile(wrapped) if compile_too else wrapped, optimizer, amp)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cpu", action="store_true", help="tiny: tries the program, its times say nothing")
    options = parser.parse_args()
    case = case_of(**next(listed for listed in CASES["scaling"] if listed["case"] == options.case))
    device, runs, warm_up = "cuda", RUNS, WARM_UP
    if options.cpu:
        case.update(batch=2, classes=100, network="mobile_face_net" if case["task"] == "faces" else "resnet18_cifar", size=112)
        device, runs, warm_up = "cpu", 1, 1
    else:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("gloo" if options.cpu else "nccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(rank)
    amp = None if options.cpu else set_precision("mixed_f16")
    step = (Recognition if case["task"] == "faces" else classification)(case, device, amp, options.compile)
    images, labels = make_images(case, amp or torch.float32, torch.channels_last, device), make_labels(case, device)

    def steps(count):
        for _ in range(count):
            loss = step(images, labels)
        if not options.cpu:
            torch.cuda.synchronize()
        return loss

    steps(warm_up)
    seconds = []
    for _ in range(runs):
        dist.barrier()
        start = time.perf_counter()
        loss = steps(options.steps)
        seconds.append(time.perf_counter() - start)
    ms = sorted(seconds)[runs // 2] / options.steps * 1e3
    if rank == 0:
        peak = 0 if options.cpu else torch.cuda.max_memory_allocated() / 2**30
        print(json.dumps({"case": options.case, "gpus": size, "img_s": round(size * case["batch"] / ms * 1e3, 1), "ms": round(ms, 4),
                          "peak_gib": round(peak, 3), "loss": round(loss.item(), 4)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
