"""PyTorch's training steps on the CPU: the peer of train_step_cpu, which train_step_cpu.py runs in turns with it.

Usage: torch_train_cpu.py CASE PRECISION LAYOUT BATCH THREADS [--compile]
Answers as train_step_cpu does.
"""
import resource
import sys
import time

import torch
from torch_models import CASES, Step, case_of, decay_groups, make_images, make_labels, make_trained, set_precision


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    name, precision, layout, batch, threads = sys.argv[1:6]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    listed = next(case for case in CASES["train_step_cpu"] if case["case"] == name)
    case = {**case_of(**listed), "batch": int(batch)}
    memory_format = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}[layout]
    amp = set_precision(precision)
    net = make_trained(case).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(decay_groups(net, 5e-5), 0.01, momentum=0.9, fused=True)
    images = make_images(case, torch.float32, memory_format, "cpu")
    labels = make_labels(case, "cpu")
    step = Step(net, torch.compile(net, dynamic=False) if "--compile" in sys.argv else net, optimizer, amp)
    for _ in range(2):
        step(images, labels)
    print("ready", flush=True)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), processor_seconds()
        for _ in range(int(line)):
            loss = step(images, labels).item()
        print(time.perf_counter() - wall, processor_seconds() - processor, loss, flush=True)


if __name__ == "__main__":
    main()
