#!/usr/bin/env python3
"""Measures training on one and on several GPUs of this machine, beside PyTorch's, in one run.

Usage: scaling.py BUILD [--gpus 1,2] [--cases TEXT,TEXT] [--rows FOLDER] [--seconds N] [--steps N]
                  [--programs sinter,torch_eager,torch_compile]
BUILD is the folder where Sinter was built with its benchmarks; --cases takes those of suite "scaling" in cases.json that
have one of the texts for a name, or in it. Efficiency is the speed on N GPUs over what these GPUs reach each by itself, at
the same time and with the same batch: GPUs of one machine differ by some percent. `of_slowest` is that over N times what
the slowest of them reaches. Both are absent for a case that takes several GPUs ("least_gpus"). Exit code 77 where there are fewer GPUs.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
LIMIT = 200  # seconds for one run


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_on_gpus(command, gpus, together, limit):
    """Runs `command` once for each GPU, as ranks of one training or each by itself. The last line of JSON that each has
    printed, or None."""
    port, ranks = str(free_port()), []
    until = time.monotonic() + limit
    for gpu in range(gpus):
        environment = dict(os.environ, RANK=str(gpu if together else 0), WORLD_SIZE=str(gpus if together else 1),
                           LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port if together else str(free_port()),
                           CUDA_VISIBLE_DEVICES=str(gpu))
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    lines = []
    for rank in ranks:
        try:
            out = rank.communicate(timeout=max(1.0, until - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            rank.kill()
            out = rank.communicate()[0]
            print(f"{' '.join(command[:3])}: no end after {limit:.0f} s", file=sys.stderr)
        lines.append([line for line in out.splitlines() if line.startswith("{")])
    return [json.loads(of[-1]) if of else None for of in lines]


def chosen_cases(texts):
    """All whose name is one of the texts; for a text that is no name, those that have it in theirs."""
    names = [case["case"] for case in CASES["scaling"]]
    return [case for case in CASES["scaling"]
            if case["case"] in texts or any(text in case["case"] for text in texts if text not in names)]


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0, ""
    names = [line.split(": ")[1].split(" (")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return len(names), names[0] if names else ""


def measure(name, command, counts, deadline, least):
    """What one program gives on each number of GPUs; on those that are `least` or more."""
    most, of_counts = max(counts), {}

    def run(gpus, together):
        left = deadline - time.monotonic()
        return run_on_gpus(command, gpus, together, min(LIMIT, left)) if left > 5 else [None]

    def keep(count, row, efficiency):
        of_counts[count] = {**row, **efficiency}
        told = "  ".join(f"{key} {share:.4f}" for key, share in efficiency.items())
        print(f"{name:14} {row['case']:46} {count} GPUs {row['img_s']:10.1f} img/s  {row['peak_gib']:.2f} GiB  {told}", flush=True)

    each = []
    if least == 1:
        alone = run(most, together=False)
        if None in alone:
            print(f"{name:14} {' '.join(command[1:])}: no result", flush=True)
            return {}
        each = [row["img_s"] for row in alone]
        keep(1, dict(alone[0], img_s=round(sum(each) / most, 1), of_each=each), {"efficiency": 1.0, "of_slowest": 1.0})
    for count in counts:
        if count > 1 and count >= least and (row := run(count, together=True)[0]) is not None:
            keep(count, row, {"efficiency": round(row["img_s"] / sum(each[:count]), 4),
                              "of_slowest": round(row["img_s"] / count / min(each[:count]), 4)} if each else {})
    return {count: row for count, row in of_counts.items() if count in counts}


def write(path, gpu, rows):
    head = {"gpu": gpu, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "versions": {}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "rows": rows}, indent=1), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gpus", default="1,2", help="how many, with commas (1,2)")
    parser.add_argument("--cases", default="", help="with commas between them (all)")
    parser.add_argument("--rows", type=pathlib.Path, help="write the rows into this folder, for collect.py")
    parser.add_argument("--seconds", type=float, default=1e9, help="break off after so many")
    parser.add_argument("--steps", type=int, default=20, help="of a timed run (20)")
    parser.add_argument("--programs", default="sinter,torch_eager,torch_compile", help="with commas between them (all)")
    options = parser.parse_args()
    counts, deadline = sorted(int(count) for count in options.gpus.split(",")), time.monotonic() + options.seconds
    there, gpu = count_gpus()
    if there < max(counts):
        print(f"{max(counts)} GPUs are asked for and {there} are here")
        sys.exit(77)
    ours, peers = [], []
    for case in chosen_cases(options.cases.split(",")):
        key = {"suite": "scaling", "dtype": "mixed_f16", "layout": "NHWC"}
        steps = ["--steps", str(options.steps)]
        name_of = case["case"]
        peer = [sys.executable, str(HERE / "peers" / "torch_scaling.py"), name_of, *steps]
        programs = {"sinter": [str(options.build / "benchmarks" / "scaling_benchmark"), name_of, *steps],
                    "torch_eager": peer, "torch_compile": [*peer, "--compile"]}
        for name, command in [(name, programs[name]) for name in options.programs.split(",")]:
            for count, row in measure(name, command, counts, deadline, case.get("least_gpus", 1)).items():
                row = {**key, **row, "case": f"{name_of} on {count} GPU{'s' if count > 1 else ''}"}
                if name == "sinter":
                    ours.append(row)
                else:
                    row.pop("of_each", None)
                    peers.append({**row, "peer": name})
    if options.rows:
        name = "-".join(str(count) for count in counts)
        write(options.rows / f"sinter_scaling_{name}.json", gpu, ours)
        if peers:
            write(options.rows / f"peer_scaling_{name}.json", gpu, peers)


if __name__ == "__main__":
    main()
