#!/usr/bin/env python3
"""Measures every registered op at a large and an odd shape, beside PyTorch eager: the tables benchmarks/results/ops-*.csv, of
which docs/ops_speed.md tells how to read them.

Usage: ops_speed.py BUILD [--table FILE] [--rows FOLDER] [--cpu [--seed N] [--dtype D]]
BUILD is the folder where Sinter was built with its benchmarks. --table names the CSV file to write; without it the rows are
printed only.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import sys
import time

import sweep

COLUMNS = ["op", "size", "dtype", "layout", "inputs", "us", "of copy", "rate", "of peak", "eager us", "beside eager", "weak", "measured"]
TINY_BYTES = 1 << 20  # ops that move less say nothing about memory
ENOUGH = 0.5  # of a copy, or of the peak
LEVEL = 0.97  # of PyTorch eager: nearer to 1 two runs of one program may lie
# Dense products, 10^12 operations per second, from the makers' data sheets; float32 without TF32.
PEAKS = {"H200": {"float16": 989.5, "float32": 66.9}, "H100 PCIe": {"float16": 756.5, "float32": 51.2},
         "H100": {"float16": 989.5, "float32": 66.9}, "A100": {"float16": 312.0, "float32": 19.5}}


def peak_of(gpu, dtype):
    return next((peaks.get(dtype) for name, peaks in PEAKS.items() if name in gpu), None)


def shape_of(case):
    shapes = [f"({','.join(map(str, spec['shape']))})" for spec in case["inputs"] if spec]
    return ", ".join(shapes[:2]) + (", ..." if len(shapes) > 2 else "")


class Row:
    """One measured case."""

    def __init__(self, case, reply, peer_us, gpu):
        self.case, self.us, self.peer_us = case, reply["us"], peer_us
        self.kernel = f"{reply['kernel']} {reply['plan']}".strip()
        self.copy_us, self.share = reply.get("copy_us"), reply.get("share_of_copy")
        self.is_tiny = reply["minimum_bytes"] < TINY_BYTES
        self.teraflops = reply["flops"] / self.us / 1e6 if reply["flops"] else None
        peak = peak_of(gpu, case["dtype"])
        self.of_peak = self.teraflops / peak if self.teraflops and peak else None

    @property
    def speed(self):
        return self.peer_us / self.us if self.peer_us else None

    @property
    def is_weak(self):
        """Slower than PyTorch eager by more than two runs differ, or below half of a copy and of the peak and not shown to be at
        least as fast as PyTorch eager."""
        share = max(self.share or 0.0, self.of_peak or 0.0)
        is_low = not self.is_tiny and 0 < share < ENOUGH
        if self.speed is None:
            return is_low
        return self.speed < LEVEL or (is_low and self.speed < 1)

    def cells(self):
        share = "" if self.is_tiny or self.share is None else f"{100 * self.share:.0f} %"
        rate = ""
        if self.teraflops:
            rate = f"{self.teraflops:.0f} TFLOP/s" if self.teraflops >= 1 else f"{1000 * self.teraflops:.0f} GFLOP/s"
        of_peak = f"{100 * self.of_peak:.0f} %" if self.of_peak else ""
        peer = f"{self.peer_us:.1f}" if self.peer_us else ""
        speed = f"{self.speed:.2f}" if self.speed else ""
        name = " ".join([self.case["op"], self.case["variant"]]).strip()
        return [name, self.case["size"], self.case["dtype"], self.case["layout"], shape_of(self.case), f"{self.us:.1f}", share,
                rate, of_peak, peer, speed, "weak" if self.is_weak else ""]

    def line(self):
        return "  ".join(filter(None, self.cells()))

    def json(self):
        row = {k: self.case[k] for k in ("suite", "case", "dtype", "layout")}
        row["us"] = sweep.rounded(self.us)
        for name in ("copy_us", "teraflops"):
            if getattr(self, name):
                row[name] = sweep.rounded(getattr(self, name))
        if self.share:
            row["share_of_copy"] = sweep.rounded(self.share)
        return {**row, "kernel": self.kernel}


def write_table(path, rows, measured):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*row.cells(), measured] for row in rows)


def write_rows(folder, head, rows, torch_version):
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"gpu": head["gpu"], "versions": head["versions"], "rows": [row.json() for row in rows]}
    (folder / "sinter_ops.json").write_text(json.dumps(ours, indent=1), encoding="utf-8")
    peers = [{**{k: row.case[k] for k in ("suite", "case", "dtype", "layout")}, "peer": "torch_eager", "us": sweep.rounded(row.peer_us)}
             for row in rows if row.peer_us]
    if peers:
        peers = {"gpu": head["gpu"], "versions": torch_version, "rows": peers}
        (folder / "peer_ops.json").write_text(json.dumps(peers, indent=1), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, help="write the table into this file")
    parser.add_argument("--rows", type=pathlib.Path, help="write the rows into this folder, for collect.py")
    parser.add_argument("--ops", default="", help="only these, with commas between them")
    parser.add_argument("--no-torch", action="store_true", help="Sinter alone")
    parser.add_argument("--cpu", action="store_true", help="on the CPU, one thread")
    parser.add_argument("--seed", help="on the CPU: two random shapes instead")
    parser.add_argument("--dtype", help="of both shapes")
    parser.add_argument("--small", action="store_true", help="small shapes: tries the program, its times say nothing")
    parser.add_argument("--rounds", type=int, default=1, help="of which the shortest times count (1)")
    options = parser.parse_args()
    if options.seed and not options.cpu:
        parser.error("--seed draws shapes of a CPU's scale: it needs --cpu")

    command = [str(options.build / "benchmarks" / "sweep"), "--ops"]
    command += [flag for flag, wanted in (("--cpu", options.cpu), ("--small", options.small)) if wanted]
    for flag, value in (("--seed", options.seed), ("--dtype", options.dtype)):
        command += [flag, value] if value else []
    if options.cpu:
        os.environ["SINTER_THREADS"] = "1"  # as PyTorch below
    sinter = sweep.Sinter(command)
    torch_sweep = sweep.load_torch(options)
    if torch_sweep:
        import torch_ops  # beside torch_sweep
        if options.cpu:
            torch_sweep.torch.set_num_threads(1)
        torch_sweep.torch.backends.cudnn.benchmark = True
        torch_sweep.torch.backends.cudnn.allow_tf32 = False  # as Sinter's convolutions unless asked to
    wanted = set(filter(None, options.ops.split(",")))
    device, began = "cpu" if options.cpu else "cuda", time.monotonic()
    cpu_seconds = 0.0 if options.small else 0.05
    rows, failed, without = [], [], set()
    for index, case in enumerate(sinter.head["cases"]):
        if wanted and case["op"] not in wanted:
            continue
        best, peers = None, []
        for _ in range(options.rounds):  # in turns
            reply = sinter.measure(index, "-")
            if "error" in reply or not math.isfinite(reply["us"]):
                failed.append(f"{case['case']} {case['dtype']} {case['layout']}: {reply.get('error', 'no time')}")
                break
            best = reply if best is None or reply["us"] < best["us"] else best
            if torch_sweep:
                peer_us, failure = torch_ops.measure(case, device, cpu_seconds)
                torch_sweep.release(device)
                peers += [peer_us] if peer_us else []
                if failure:
                    failed.append(f"{case['case']} {case['dtype']} {case['layout']}: PyTorch: {failure}")
                elif peer_us is None:
                    without.add(case["op"])
        if best is None:
            continue
        rows.append(Row(case, best, min(peers, default=None), sinter.head["gpu"]))
        print(f"{rows[-1].line()}  {rows[-1].kernel[:200]}", flush=True)
    sinter.close()
    torch_version = {"torch": torch_sweep.torch.__version__} if torch_sweep else {}
    versions = [f"{name} {version}" for name, version in {**sinter.head["versions"], **torch_version}.items()]
    measured = "; ".join([sinter.head["gpu"], *versions, time.strftime("%Y-%m-%d")])
    if options.table:
        write_table(options.table, rows, measured)
    if options.rows:
        write_rows(options.rows, sinter.head, rows, torch_version)
    print(f"\n{measured}: {len(rows)} rows, {sum(row.is_weak for row in rows)} of them weak:")
    print("\n".join(f"  {row.line()}  {row.kernel[:200]}" for row in rows if row.is_weak))
    if without:
        print(f"\nwithout a counterpart: {', '.join(sorted(without))}")
    if failed:
        print("\nfailed:\n" + "\n".join("  " + line for line in failed))
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if any("PyTorch: " not in line for line in failed) else 0)


if __name__ == "__main__":
    main()
