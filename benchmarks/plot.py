#!/usr/bin/env python3
"""Draws the share of copy of every row with such a target, one SVG per suite, from a result file of run.sh.

Usage: plot.py results/h100-80gb-hbm3.json [--output ../docs/images] [--dtypes float32 float16]
Bars are Sinter, markers its peers, the short line is the target. Needs Python's standard library only.
"""
import argparse
import json
import pathlib
from xml.sax.saxutils import escape

LEFT, WIDTH, RIGHT, ROW, TOP = 330, 520, 60, 16, 64
MOST = 1.1  # the right end of the axis
PEERS = {"torch_eager": ("PyTorch eager", "#d95f02"), "torch_compile": ("PyTorch compiled", "#1b9e77"),
         "torch_mv": ("PyTorch mv", "#d95f02"), "torch_mm": ("PyTorch mm", "#1b9e77"),
         "cudnn": ("cuDNN", "#7570b3"), "cublas": ("cuBLAS", "#7570b3")}
BAR, GRID, TEXT = "#8fb8de", "#d0d0d0", "#303030"


def x_of(share):
    return LEFT + WIDTH * min(share, MOST) / MOST


def label(x, y, content, anchor="start", size=11, fill=TEXT):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{escape(content)}</text>'


def legend(peers, with_target):
    parts, x = [f'<rect x="{LEFT}" y="30" width="14" height="9" fill="{BAR}"/>', label(LEFT + 18, 39, "Sinter")], LEFT + 75
    for peer in peers:
        name, colour = PEERS[peer]
        parts += [f'<circle cx="{x + 5}" cy="35" r="3.5" fill="{colour}"/>', label(x + 13, 39, name)]
        x += 25 + 7 * len(name)
    if with_target:
        parts += [f'<line x1="{x + 5}" y1="30" x2="{x + 5}" y2="40" stroke="{TEXT}" stroke-width="2"/>', label(x + 12, 39, "target")]
    return parts


def bars(row, y):
    middle = y + ROW / 2
    share = row["share_of_copy"]
    parts = [
        label(LEFT - 8, middle + 4, f"{row['case']}  {row['dtype']} {row['layout']}".rstrip(), "end"),
        f'<rect x="{LEFT}" y="{y + 3}" width="{x_of(share) - LEFT:.1f}" height="{ROW - 6}" fill="{BAR}"/>',
        label(LEFT + WIDTH + 8, middle + 4, f"{100 * share:.0f} %"),
    ]
    target = x_of(row["target"]["share_of_copy"])
    parts.append(f'<line x1="{target:.1f}" y1="{y + 1}" x2="{target:.1f}" y2="{y + ROW - 1}" stroke="{TEXT}" stroke-width="2"/>')
    for peer, us in row.get("peers_us", {}).items():
        if peer in PEERS:
            parts.append(f'<circle cx="{x_of(row["copy_us"] / us):.1f}" cy="{middle}" r="3.5" fill="{PEERS[peer][1]}"/>')
    return parts


def chart(title, rows):
    bottom = TOP + ROW * len(rows)
    width, height = LEFT + WIDTH + RIGHT, bottom + 34
    peers = [peer for peer in PEERS if any(peer in row.get("peers_us", {}) for row in rows)]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="#ffffff"/>', label(LEFT, 18, title, size=14)]
    parts += legend(peers, True)
    for tenth in range(0, 11, 2):
        x = x_of(tenth / 10)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom + 4}" stroke="{GRID}"/>')
        parts.append(label(x, bottom + 18, f"{10 * tenth} %", "middle"))
    for i, row in enumerate(rows):
        parts += bars(row, TOP + ROW * i)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent / "../docs/images")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16"])
    options = parser.parse_args()
    result = json.loads(options.result.read_text(encoding="utf-8"))
    rows = [row for row in result["rows"] if row["dtype"] in options.dtypes and "share_of_copy" in row.get("target", {})]
    options.output.mkdir(parents=True, exist_ok=True)
    for suite in dict.fromkeys(row["suite"] for row in rows):
        path = options.output / f"{options.result.stem}-{suite}.svg"
        title = f"{suite}: share of a copy's speed, {result['gpu']}, {result['date']}"
        path.write_text(chart(title, [row for row in rows if row["suite"] == suite]), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
