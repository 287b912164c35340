#!/usr/bin/env python3
"""Trains ResNet-18 on CIFAR-10 with train_resnet, once per seed, and writes the rows that peers/torch_cifar.py joins.

Usage: cifar10.py BUILD DATA [--modes eager job] [--epochs 30] [--seeds 0 1 2] [--precision mixed_f16] [--json FILE]
DATA holds train/<class>/*.jpg and test/<class>/*.jpg. A short run comes first in which the convolutions' plans are
chosen (`warm_up_s`). `seconds` are those of training, waiting for data included; building the chosen plans in each process
(`prepare_s`) comes before them, as the peer's warm-up does. `wall_s` are those of the whole program, JPEG decoding included.
Needs Python's standard library only.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

# Batch 512, SGD with Nesterov momentum, one cycle to 0.4, label smoothing 0.1, crops of images mirrored at the border.
RECIPE = ("--device cuda --model resnet18 --layout nhwc --batch 512 --lr 0.4 --schedule one-cycle --warmup 0.2 --momentum 0.9 "
          "--nesterov --weight-decay 5e-4 --label-smoothing 0.1 --crop-padding 4 --crop-mode reflect --flip").split()
TARGET_ACCURACY = 0.903


def train(program, options, mode, *more):
    """Seconds of a whole run, and its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [program, *RECIPE, "--" + mode, "--data", options.data, "--epochs", str(options.epochs),
                   "--precision", options.precision.replace("_", "-"), "--report", report, *more]
        start = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - start
        return seconds, json.loads(report.read_text(encoding="utf-8"))


def measure(program, options, mode):
    """The row of one way to make steps."""
    warm_up, _ = train(program, options, mode, "--max-steps", "3")
    runs = [train(program, options, mode, "--seed", str(seed)) for seed in options.seeds]
    reports = [report for _, report in runs]

    def mean(name):
        return statistics.mean(report[name] for report in reports)

    return {"suite": "cifar10", "case": f"resnet18, {options.epochs} epochs", "mode": mode,
            "dtype": "float32" if options.precision == "f32" else options.precision, "layout": "NHWC", "img_s": mean("img_s"),
            "seconds": mean("seconds"), "prepare_s": mean("prepare_seconds"), "wait_seconds": mean("wait_seconds"),
            "accuracy": mean("accuracy"), "accuracy_least": min(report["accuracy"] for report in reports), "seeds": len(runs),
            "warm_up_s": warm_up, "wall_s": statistics.mean(seconds for seconds, _ in runs),
            "peak_gib": max(report["peak_gib"] for report in reports),
            "target": {"speedup": {"torch_eager": 1.0}, "accuracy": TARGET_ACCURACY}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("data")
    parser.add_argument("--modes", nargs="+", choices=["eager", "job"], default=["job"])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--precision", default="mixed_f16", choices=["mixed_f16", "mixed_bf16", "tf32", "f32"])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    program = options.build / "examples" / "train_resnet"

    rows = [measure(program, options, mode) for mode in options.modes]
    print(json.dumps(rows, indent=1))
    if options.json:
        head = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "versions": {}}
        options.json.write_text(json.dumps({**head, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
