"""One rank of PyTorch's DistributedDataParallel on synthetic data: the peer of scaling_benchmark, started by scaling.py.

usage: torch_ddp.py [--compile] [--batch 256]
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch_models import Step, decay_groups, resnet50, set_precision

RUNS, STEPS, WARM_UP = 7, 20, 12


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(rank)
    amp = set_precision("mixed_f16")
    net = resnet50(1000, False).cuda().to(memory_format=torch.channels_last)
    wrapped = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True) if size > 1 else net
    model = torch.compile(wrapped) if options.compile else wrapped
    optimizer = torch.optim.SGD(decay_groups(net, 5e-5), 0.01, momentum=0.9, fused=True)
    images = torch.randn(options.batch, 3, 224, 224, device="cuda").to(amp, memory_format=torch.channels_last)
    labels = torch.randint(1000, (options.batch,), device="cuda")
    step = Step(net, model, optimizer, amp)
    for _ in range(WARM_UP):
        step(images, labels)
    torch.cuda.synchronize()
    seconds = []
    for _ in range(RUNS):
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step(images, labels)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    ms = sorted(seconds)[RUNS // 2] / STEPS * 1e3
    if rank == 0:
        print(json.dumps({"case": f"resnet50 batch {options.batch}", "gpus": size,
                          "img_s": round(size * options.batch / ms * 1e3, 1), "ms": round(ms, 4)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
