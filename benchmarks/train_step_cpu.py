#!/usr/bin/env python3
"""Measures training steps on the CPU beside PyTorch, eager and compiled: the cases "train_step_cpu" of cases.json.

Usage: train_step_cpu.py BUILD [--rows FOLDER] [--precisions float32 mixed_bf16] [--layouts NHWC] [--filter TEXT]
                         [--modes torch_eager torch_compile] [--batch N] [--rounds 5] [--slice 4] [--threads 2]
All programs of a case are started once and then take turns for slices of about --slice seconds, so that they share what else
goes on on the machine. What counts is the least time of a step over all slices; in brackets the processor's seconds a step.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
MODES = {"torch_eager": [], "torch_compile": ["--compile"]}


class Program:
    """One of the programs of a case, which waits between its turns."""

    def __init__(self, name, command, threads):
        environment = dict(os.environ, SINTER_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        self.name, self.wall, self.processor, self.steps = name, float("inf"), float("inf"), 1
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.is_ready = self.process.stdout.readline().strip() == "ready"

    def turn(self, seconds):
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        wall, processor, _ = map(float, self.process.stdout.readline().split())
        self.wall, self.processor = min(self.wall, wall / self.steps), min(self.processor, processor / self.steps)
        self.steps = max(1, round(seconds / self.wall))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(case, precision, layout, options):
    batch = options.batch or case["batch"]
    of_case = [case["case"], precision, layout, str(batch)]
    programs = [Program("sinter", [str(options.build / "benchmarks" / "train_step_cpu"), *of_case], options.threads)]
    peer = HERE / "peers" / "torch_train_cpu.py"
    for mode in options.modes:
        programs.append(Program(mode, [sys.executable, str(peer), *of_case, str(options.threads), *MODES[mode]], options.threads))
    failed = [program.name for program in programs if not program.is_ready]
    programs = [program for program in programs if program.is_ready]
    for _ in range(options.rounds):
        for program in programs:
            program.turn(options.slice)
    for program in programs:
        program.close()
    if failed:
        print(f"did not start: {case['case']} {precision} {layout}: {', '.join(failed)}", flush=True)
    return {program.name: (batch / program.wall, program.processor) for program in programs}


def processor_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rows", type=pathlib.Path, help="write train_step_cpu.json into this folder")
    parser.add_argument("--precisions", nargs="+", default=["float32", "mixed_bf16"])
    parser.add_argument("--layouts", nargs="+", default=["NHWC"])
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES))
    parser.add_argument("--filter", default="", help="only cases with this in their name")
    parser.add_argument("--batch", type=int, help="instead of the case's own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["train_step_cpu"]
    rows = []
    for case in cases:
        for precision in options.precisions:
            for layout in options.layouts:
                if options.filter not in case["case"]:
                    continue
                figures = measure(case, precision, layout, options)
                if "sinter" not in figures:
                    continue
                peers = {name: img_s for name, (img_s, _) in figures.items() if name != "sinter"}
                row = {"suite": "train_step_cpu", "case": case["case"], "dtype": precision, "layout": layout,
                       "img_s": figures["sinter"][0], "peers_img_s": peers}
                rows.append(row)
                shown = "  ".join(f"{name} {img_s:.2f} ({seconds:.2f} s)" for name, (img_s, seconds) in figures.items())
                ratio = f"  {row['img_s'] / max(peers.values()):.2f} x" if peers else ""
                print(f"{case['case']} {precision} {layout}, img/s: {shown}{ratio}", flush=True)
    if options.rows:
        options.rows.mkdir(parents=True, exist_ok=True)
        result = {"processor": processor_name(), "threads": options.threads, "date": time.strftime("%Y-%m-%d"), "rows": rows}
        (options.rows / "train_step_cpu.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
