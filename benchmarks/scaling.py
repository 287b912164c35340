#!/usr/bin/env python3
"""Measures training on one and on several GPUs of this machine, beside PyTorch's DDP, in one run.

Usage: scaling.py BUILD [--gpus 2] [--networks resnet50,iresnet50] [--json FILE] [--no-torch]
BUILD is the folder where Sinter was built with its benchmarks. Efficiency is the speed on N GPUs over what these GPUs
reach each by itself, at the same time and with the same batch: GPUs of one machine differ by some percent. Exit code 77
where there are fewer GPUs.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = {"resnet50": "torch_ddp.py"}
LIMIT = 150  # seconds for one run


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_on_gpus(command, gpus, together):
    """Runs `command` once for each GPU, as ranks of one training or each by itself. The last line of JSON that each has
    printed, or None."""
    port, ranks = str(free_port()), []
    for gpu in range(gpus):
        environment = dict(os.environ, RANK=str(gpu if together else 0), WORLD_SIZE=str(gpus if together else 1),
                           LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port if together else str(free_port()),
                           CUDA_VISIBLE_DEVICES=str(gpu))
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    lines = []
    for rank in ranks:
        try:
            out = rank.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            rank.kill()
            out = rank.communicate()[0]
            print(f"{command[0]}: no end after {LIMIT} s", file=sys.stderr)
        lines.append([line for line in out.splitlines() if line.startswith("{")])
    return [json.loads(of[-1]) if of else None for of in lines]


def count_gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    names = [line.split(": ")[1].split(" (")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return len(names), names[0] if names else ""


def measure(name, command, gpus, rows):
    """Rows of one program on one and on all GPUs."""
    alone = run_on_gpus(command, gpus, together=False)
    if None in alone:
        return
    one = dict(alone[0], img_s=round(sum(row["img_s"] for row in alone) / gpus, 1), of_each=[row["img_s"] for row in alone],
               efficiency=1.0)
    of_counts = {1: one}
    if gpus > 1 and (all_of_them := run_on_gpus(command, gpus, together=True)[0]) is not None:
        of_counts[gpus] = dict(all_of_them, efficiency=round(all_of_them["img_s"] / (gpus * one["img_s"]), 4))
    for count, row in of_counts.items():
        rows.setdefault((row["case"], count), {})[name] = row
        print(f"{name:14} {row['case']:40} {count} GPUs {row['img_s']:10.1f} img/s  efficiency {row['efficiency']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--networks", default="iresnet50,resnet50")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    there, gpu = count_gpus()
    if there < options.gpus:
        print(f"{options.gpus} GPUs are asked for and {there} are here")
        sys.exit(77)
    rows = {}
    for network in options.networks.split(","):
        measure("sinter", [str(options.build / "benchmarks" / "scaling_benchmark"), network], options.gpus, rows)
        if network in PEERS and not options.no_torch:
            peer = [sys.executable, str(HERE / "peers" / PEERS[network])]
            measure("torch_eager", peer, options.gpus, rows)
            measure("torch_compile", [*peer, "--compile"], options.gpus, rows)
    if options.json:
        written = [{"suite": "scaling", "case": case, "gpus": gpus, "img_s": of["sinter"]["img_s"],
                    "ms": of["sinter"]["ms"], "efficiency": of["sinter"]["efficiency"],
                    "peers_img_s": {name: row["img_s"] for name, row in of.items() if name != "sinter"},
                    "peers_efficiency": {name: row["efficiency"] for name, row in of.items() if name != "sinter"}}
                   for (case, gpus), of in sorted(rows.items()) if "sinter" in of]
        content = {"gpu": gpu, "gpus": options.gpus, "date": str(datetime.date.today())}
        text = json.dumps(content, indent=1)[:-2] + ',\n "rows": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in written)
        options.json.write_text(text + "\n ]\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
