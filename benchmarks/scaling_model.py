#!/usr/bin/env python3
"""Computes the time of a data-parallel step against the number of GPUs, from what was measured on two.

usage: benchmarks/scaling_model.py [--step MS] [--gradients MB] [--network GB/S] ...

A model, not a measurement. Sums over the GPUs of one machine take what a straight line through the measured times
gives, scaled by the 2 (n - 1) / n of a ring; between machines each GPU has its own way into the network, so that a sum is
a reduce-scatter within the machine, a ring or tree (whichever is faster) between machines over a part of the data, and an
all-gather. Buckets are summed one after the other as soon as they are ready; what is not done when the last gradient is
there is waited for. All assumptions are options; --help says what they stand for.
"""

import argparse
import math

# All-reduce of float32 over two H200 with NVLink, multicast off: MiB and microseconds.
MEASURED = [(25, 114.0), (50, 207.0), (100, 384.0)]
MIB = 1 << 20


def line_through(points):
    """Least squares: microseconds of latency, and of a byte."""
    xs, ys = [p[0] * MIB for p in points], [p[1] for p in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y - slope * mean_x, slope


def sum_time(count, size, options):
    """Microseconds of one sum of `size` bytes over `count` GPUs."""
    latency, per_byte = line_through(MEASURED)
    here = min(count, options.gpus_per_machine)
    machines = math.ceil(count / options.gpus_per_machine)
    time = latency * math.log2(here) + 2 * (here - 1) / here * size * per_byte
    if machines > 1:
        part = size / here
        wire = part / (options.network * 1e3)  # GB/s are 1e3 bytes per microsecond
        ring = 2 * (machines - 1) / machines * wire + 2 * (machines - 1) * options.hop
        tree = 2 * wire + 2 * math.ceil(math.log2(machines)) * options.hop
        time += min(ring, tree)
    return time


def step_time(count, options):
    """Milliseconds of a step, and of them those that wait for sums, and those that wait for the slowest."""
    compute = options.step * 1e3
    backward = compute * options.backward_share
    size = options.gradients * 1e6
    buckets = max(1, math.ceil(size / (options.bucket * MIB)))
    done = 0.0
    summing = 0.0
    for i in range(buckets):
        ready = compute - backward + backward * (i + 1) / buckets
        time = sum_time(count, size / buckets, options)
        done = max(done, ready) + time
        summing += time
    exposed = max(0.0, done - compute)
    beside = options.slowdown * max(0.0, summing - exposed)
    slowest = options.jitter * compute * math.sqrt(2 * math.log(count)) if count > 1 else 0.0
    return (compute + exposed + beside + slowest) / 1e3, exposed / 1e3, slowest / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--step", type=float, default=27.4, help="milliseconds of a step on one GPU (ResNet-50, batch 256)")
    add("--batch", type=int, default=256, help="images of a step on one GPU")
    add("--gradients", type=float, default=51.0, help="MB of gradients (ResNet-50 in float16)")
    add("--bucket", type=float, default=16.0, help="MiB of a bucket (passes/ranks/gradient_buckets.cpp)")
    add("--backward-share", type=float, default=2 / 3, help="share of the step in which gradients come")
    add("--gpus-per-machine", type=int, default=8)
    add("--network", type=float, default=40.0, help="GB/s of each GPU into the network (400 Gbit/s at 80 %%)")
    add("--hop", type=float, default=5.0, help="microseconds of a message between machines")
    add("--slowdown", type=float, default=0.1, help="what a sum takes of the work that runs beside it, of the sum's time")
    add("--jitter", type=float, default=0.002, help="deviation of a rank's step time: all wait for the slowest")
    options = parser.parse_args()
    latency, per_byte = line_through(MEASURED)
    print(f"on two GPUs: {latency:.0f} us and {1 / per_byte / 1e3:.0f} GB/s\n")
    print("| GPUs | sum of all gradients, ms | waits for sums, ms | waits for the slowest, ms | step, ms | img/s | efficiency |")
    print("|---|---|---|---|---|---|---|")
    for count in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        step, exposed, slowest = step_time(count, options)
        summed = sum_time(count, options.gradients * 1e6, options) / 1e3 if count > 1 else 0.0
        rate = count * options.batch / step * 1e3
        print(f"| {count:,} | {summed:.2f} | {exposed:.2f} | {slowest:.2f} | {step:.2f} | {rate:,.0f} | {options.step / step:.3f} |")


if __name__ == "__main__":
    main()
