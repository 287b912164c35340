#!/usr/bin/env python3
"""Joins the rows of Sinter's programs and of the peers into one result file, and prints it as a table.

Usage: collect.py FOLDER RESULTS [--commit HASH]
FOLDER holds sinter_*.json and peer_*.json as run.sh leaves them; the result is RESULTS/<gpu>.json. Rows that are there
already and were not measured again stay, but for those that are older than what they measure: whose commit git does not know,
or since whose commit one of the files that SOURCES names for the suite has changed.
The format is described in README.md. Needs Python's standard library only.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = {"us": True, "host_us": True, "img_s": False}  # whether less is better
KEY = ("suite", "case", "dtype", "layout")
# What each suite measures, or each family of the sweep.
STEPS = ["ops", "passes", "core/executor", "core/plan", "core/cuda", "nn/job", "nn/layers", "nn/models", "nn/optim"]
SOURCES = {"copy": [], "prelu": ["ops/prelu"], "permute": ["ops/permute"], "batch_norm": ["ops/batch_norm", "ops/norm"],
           "matvec": ["ops/gemv", "ops/matmul"], "linear": ["ops/matmul"], "conv2d": ["ops/conv2d"], "pool": ["ops/pool"],
           "image_ops": ["ops/crop_images", "ops/resize_images"], "ops": ["ops"], "eager_overhead": ["autograd", "core", "ops"],
           "loader": ["nn/data"], "train_step": STEPS, "infer": STEPS, "predict": [*STEPS, "nn/predict", "nn/data"],
           "scaling": [*STEPS, "core/comm", "nn/parallel", "nn/loss"], "cifar10": [*STEPS, "examples/train_resnet", "nn/data"],
           "faces": [*STEPS, "examples/train_insightface", "nn/data", "nn/loss"]}


def read(folder, pattern):
    for path in sorted(folder.glob(pattern)):
        yield json.loads(path.read_text(encoding="utf-8"))


def key_of(row):
    return tuple(row[name] for name in KEY)


def figure_of(row):
    return next(name for name in FIGURES if name in row)


def speedup(row, peer):
    """How many times as fast as the peer, or as the "best" of all; None if it did not run."""
    figure = figure_of(row)
    peers = row.get("peers_" + figure, {})
    theirs = peers.get(peer)
    if peer == "best" and peers:
        theirs = min(peers.values()) if FIGURES[figure] else max(peers.values())
    if theirs is None:
        return None
    return theirs / row[figure] if FIGURES[figure] else row[figure] / theirs


def latency_share(row):
    """Of the least latency of all peers; None without one."""
    theirs = [peer["p50_us"] for peer in row.get("peers", {}).values() if "p50_us" in peer]
    return row["p50_us"] / min(theirs) if theirs else None


def judge(row):
    """Whether the row's target is met: True, False, or None without a target or with a peer missing."""
    target = row.get("target", {})
    reached = [row[figure] >= target[figure] if figure in row else None
               for figure in ("share_of_copy", "accuracy", "share_of_synthetic") if figure in target]
    for peer, least in target.get("speedup", {}).items():
        ratio = speedup(row, peer)
        reached.append(None if ratio is None else ratio >= least)
    if "latency" in target:
        share = latency_share(row)
        reached.append(None if share is None else share <= target["latency"])
    if False in reached:
        return False
    return None if not reached or None in reached else True


def join(ours, peers):
    """Adds the peers' figures to our rows; gives the peer rows that have none of ours."""
    by_key = {}
    for row in ours:
        by_key.setdefault(key_of(row), []).append(row)  # several, of different modes
    alone = []
    for peer in peers:
        figure = figure_of(peer)
        rows = [row for row in by_key.get(key_of(peer), []) if figure in row]
        if not rows:
            alone.append(peer)
        rest = {k: float(f"{v:.5g}") for k, v in peer.items() if k not in (*KEY, "peer", figure)}
        for row in rows:
            row.setdefault("peers_" + figure, {})[peer["peer"]] = float(f"{peer[figure]:.5g}")
            if rest:
                row.setdefault("peers", {})[peer["peer"]] = rest
    for row in ours:
        row.pop("met", None)
        met = judge(row)
        if met is not None:
            row["met"] = met
    return alone


def table(rows):
    lines, suite = [], None
    for row in rows:
        if row["suite"] != suite:
            suite = row["suite"]
            lines.append(f"\n{suite}")
        figure = figure_of(row)
        line = f"  {row['case']:38} {row['dtype']:9} {row['layout']:4} {row.get('mode', ''):5} {row[figure]:10.2f} {figure:7}"
        line += f" {100 * row['share_of_copy']:5.1f} % of copy" if "share_of_copy" in row else " " * 16
        ratios = {peer: speedup(row, peer) for peer in row.get("peers_" + figure, {})}
        line += "".join(f"  {ratio:.2f}x {peer}" for peer, ratio in ratios.items())
        if "p50_us" in row:
            theirs = latency_share(row)
            line += f"  p50 {row['p50_us']:.0f} us" + (f", {theirs:.2f} of the least" if theirs else "")
        if "met" in row:
            line += "  met" if row["met"] else "  MISSED"
        lines.append(line.rstrip())
    return "\n".join(lines)


def summary(rows):
    lines = []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        judged = [row for row in rows if row["suite"] == suite and "target" in row]
        if judged:
            met = sum(row.get("met") is True for row in judged)
            unknown = sum("met" not in row for row in judged)
            note = f", {unknown} without the peer they need" if unknown else ""
            lines.append(f"{suite}: {met} of {len(judged)} targets met{note}")
    return "\n".join(lines)


def git(*arguments):
    """What it prints; None if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def why_stale(row, known):
    """Why a row is too old to keep; None if it is not. `known` remembers answers."""
    paths = SOURCES.get(row.get("family", row["suite"]))
    commit = row.get("commit")
    if commit is None or paths is None:
        return "nobody knows its commit" if commit is None else "nobody knows what it measures"
    if (commit, *paths) not in known:
        if git("cat-file", "-e", commit + "^{commit}") is None:
            known[(commit, *paths)] = f"git does not know commit {commit}"
        else:
            changed = git("log", "-1", "--format=%h", f"{commit}..HEAD", "--", *paths) if paths else ""
            known[(commit, *paths)] = f"{changed} changed what it measures" if changed else None
    return known[(commit, *paths)]


def mode_key(row):
    return (*key_of(row), row.get("mode", ""))


def kept(path, rows):
    """The rows of an older file that `rows` do not replace and that are not stale; prints how many went, and why."""
    if not path.exists():
        return []
    old = json.loads(path.read_text(encoding="utf-8"))
    measured, known, gone, stay = {mode_key(row) for row in rows}, {}, {}, []
    for row in old["rows"]:
        if mode_key(row) in measured:
            continue
        if "date" not in row:  # of the whole file's run
            row.update({name: old[name] for name in ("commit", "date") if name in old})
        reason = why_stale(row, known)
        if reason is None:
            stay.append(row)
        else:
            gone[reason, row["suite"]] = gone.get((reason, row["suite"]), 0) + 1
    for (reason, suite), count in gone.items():
        print(f"dropped {count} older rows of {suite}: {reason}")
    return stay


def file_name(gpu):
    """"NVIDIA H200" gives "h200"."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower().replace("nvidia", "")).strip("-")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()

    ours, peers = list(read(options.folder, "sinter_*.json")), list(read(options.folder, "peer_*.json"))
    gpus = {part["gpu"] for part in ours + peers if "gpu" in part}
    if not ours or len(gpus) != 1:
        sys.exit(f"expected rows of one GPU in {options.folder} but found {sorted(gpus) or 'none'}")
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    rows = [{**row, "commit": options.commit, "date": part.get("date", today)} for part in ours for row in part["rows"]]
    alone = join(rows, [row for part in peers for row in part["rows"]])
    versions = {name: version for part in ours + peers for name, version in part["versions"].items()}
    gpu = gpus.pop()
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / (file_name(gpu) + ".json")
    result = {"gpu": gpu, "date": max((row["date"] for row in rows), default=today), "commit": options.commit, "versions": versions}
    # One row a line: results are read as differences between commits.
    lines = ",\n".join("  " + json.dumps(row) for row in rows + kept(path, rows))
    head = json.dumps({**result, "rows": []}, indent=1)
    path.write_text(head.replace('"rows": []', f'"rows": [\n{lines}\n ]') + "\n", encoding="utf-8")

    print(table(rows))
    print("\n" + summary(rows))
    if alone:
        print(f"\n{len(alone)} peer rows without one of ours:")
        print("\n".join("  " + " ".join([*key_of(row), row["peer"]]) for row in alone))
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
