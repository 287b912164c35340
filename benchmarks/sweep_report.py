#!/usr/bin/env python3
"""How the rows of a sweep are distributed: share of copy, and speed beside the better PyTorch.

Usage: sweep_report.py FOLDER_OR_RESULTS [--worst N]
Reads the rows that sweep.py left in FOLDER, of all its seeds together, or those of suite sweep in a result file
(results/<gpu>.json). Needs Python's standard library only.
"""
import argparse
import json
import pathlib

import collect

LARGE = 16 << 20  # bytes of the tensor from which goals hold
PLAN = 160  # letters of a plan on a line


def quantile(values, share):
    """Between the two values beside the place `share` of the way from the smallest to the largest."""
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def better_peer(row):
    """The quickest way in which PyTorch did it: (name, how many times as fast as that Sinter is), or None."""
    peers = row.get("peers_us", {})
    if not peers:
        return None
    name = min(peers, key=peers.get)
    return name, peers[name] / row["us"]


def line_of(name, values, goals, note=""):
    """`goals`: quantile -> least value."""
    text = f"  {name:32}" + "".join(f"{quantile(values, q):8.2f}" for q in (0.0, 0.05, 0.5)) + f"  {len(values):5}"
    missed = [f"{q:g}" for q, least in goals.items() if quantile(values, q) < least]
    if goals:
        text += "  MISSED at " + ", ".join(missed) if missed else "  met"
    return text + note


def worst_lines(rows, figure, most):
    lines = []
    for row in sorted(rows, key=figure)[:most]:
        better = better_peer(row)
        beside = f"{better[1]:5.2f}x {better[0]}" if better else ""
        lines.append(f"    {100 * row.get('share_of_copy', 0):5.1f} % {row['us']:9.2f} us  {beside:20} {row['case']} {row['dtype']}"
                     f" {row['layout']} {row['bytes'] / 2**20:.1f} MiB  [{row['kernel']}] {row.get('plan', '')[:PLAN]}".rstrip())
    return lines


def family_report(family, rows, worst):
    lines = [f"\n{family}" + " " * (34 - len(family)) + "     min     5 %  median  cases"]
    shares = [row for row in rows if "share_of_copy" in row]
    large = [row for row in shares if row["bytes"] >= LARGE]
    share, speed = lambda row: row["share_of_copy"], lambda row: better_peer(row)[1]
    if shares:
        lines.append(line_of("share of copy", list(map(share, shares)), {}))
    if large:
        lines.append(line_of("... of 16 MiB and more", list(map(share, large)), {0.05: 0.75, 0.5: 0.9}))
    paired = [row for row in rows if better_peer(row)]
    if paired:
        without = sum("torch_compile" not in row["peers_us"] for row in paired)
        note = f"  ({without} without torch_compile)" if without else ""
        lines.append(line_of("speed beside the better PyTorch", list(map(speed, paired)), {0.0: 0.8, 0.5: 1.0}, note))
    if shares:
        lines += ["  lowest share of copy:", *worst_lines(shares, share, worst)]
    if paired:
        lines += ["  slowest beside the better PyTorch:", *worst_lines(paired, speed, worst)]
    return lines


def report(rows, worst=10):
    """The text for joined rows (collect.join)."""
    rows = [row for row in rows if row["suite"] == "sweep"]
    lines = ["Goals: share of copy of tensors of 16 MiB and more 0.75 at 5 % and 0.90 median; beside the better PyTorch 0.8 at least",
             "and 1.0 median."]
    for family in dict.fromkeys(row["family"] for row in rows):
        lines += family_report(family, [row for row in rows if row["family"] == family], worst)
    return "\n".join(lines)


def read(path):
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["rows"]
    ours = [row for part in collect.read(path, "sinter_sweep*.json") for row in part["rows"]]
    collect.join(ours, [row for part in collect.read(path, "peer_sweep*.json") for row in part["rows"]])
    return ours


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst to name (10)")
    options = parser.parse_args()
    print(report(read(options.rows), options.worst))


if __name__ == "__main__":
    main()
