#!/usr/bin/env python3
"""Joins the rows of Sinter's programs and of the peers into one result file, and prints it as a table.

Usage: collect.py FOLDER RESULTS [--commit HASH]
FOLDER holds sinter_*.json and peer_*.json as run.sh leaves them; the result is RESULTS/<gpu>.json.
The format is described in README.md. Needs Python's standard library only.
"""
import argparse
import datetime
import json
import pathlib
import re
import sys

FIGURES = {"us": True, "host_us": True, "img_s": False}  # whether less is better
KEY = ("suite", "case", "dtype", "layout")


def read(folder, pattern):
    for path in sorted(folder.glob(pattern)):
        yield json.loads(path.read_text(encoding="utf-8"))


def key_of(row):
    return tuple(row[name] for name in KEY)


def figure_of(row):
    return next(name for name in FIGURES if name in row)


def speedup(row, peer):
    """How many times as fast as the peer; None if it did not run."""
    figure = figure_of(row)
    theirs = row.get("peers_" + figure, {}).get(peer)
    if theirs is None:
        return None
    return theirs / row[figure] if FIGURES[figure] else row[figure] / theirs


def judge(row):
    """Whether the row's target is met: True, False, or None without a target or with a peer missing."""
    target = row.get("target", {})
    reached = [row[figure] >= target[figure] for figure in ("share_of_copy", "accuracy") if figure in target]
    for peer, least in target.get("speedup", {}).items():
        ratio = speedup(row, peer)
        reached.append(None if ratio is None else ratio >= least)
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
    rows = [row for part in ours for row in part["rows"]]
    alone = join(rows, [row for part in peers for row in part["rows"]])
    versions = {name: version for part in ours + peers for name, version in part["versions"].items()}
    gpu = gpus.pop()
    result = {"gpu": gpu, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
              "commit": options.commit, "versions": versions, "rows": rows}
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / (file_name(gpu) + ".json")
    # One row a line: results are read as differences between commits.
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
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
