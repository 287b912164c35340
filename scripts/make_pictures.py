#!/usr/bin/env python3
"""Draws the pictures of README.md from real data: a run in a terminal, its curves, images a second, a fused block.

Usage: make_pictures.py run BUILD               trains on the digits in a terminal of 80 columns -> training.svg, curves.svg, fusion.svg
       make_pictures.py speed RESULTS.json      a result file of benchmarks/run.sh -> speed.svg
Pictures go to docs/images. `run` needs util-linux's `script`; nothing else beyond Python's standard library.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
STYLE = """<style>
svg { background: #ffffff; font: 13px sans-serif; } text { fill: #24292f; } .faint { fill: #57606a; } .strong { font-weight: bold; }
.mono { font: 13px ui-monospace, Menlo, Consolas, monospace; white-space: pre; } .frame { fill: #f6f8fa; stroke: #d0d7de; }
.ours { fill: #0969da; } .peer { fill: #afb8c1; } .fused { fill: #ddf4ff; stroke: #0969da; } .plain { fill: #f6f8fa; stroke: #57606a; }
.arrow { stroke: #57606a; fill: none; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; } text { fill: #e6edf3; } .faint { fill: #9198a1; } .frame { fill: #151b23; stroke: #3d444d; }
.ours { fill: #4493f8; } .peer { fill: #656c76; } .fused { fill: #121d2f; stroke: #4493f8; } .plain { fill: #151b23; stroke: #9198a1; }
.arrow { stroke: #9198a1; } }
</style>"""


def write_svg(name, title, width, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    (IMAGES / name).write_text("\n".join([head, f"<title>{escape(title)}</title>", STYLE, *parts, "</svg>", ""]))


def text(x, y, content, kind="", anchor="start"):
    return f'<text xml:space="preserve" x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def shown_lines(recording):
    """The lines that stay on the terminal, and one of the progress bars half way: what follows the last carriage return of each."""
    lines, bar = [], ""
    for raw in recording.split("\n")[1:]:
        parts = [part.replace("\x1b[K", "") for part in raw.rstrip("\r").split("\r")]
        lines.append(next((part for part in reversed(parts) if part.strip()), ""))
        bars = [part for part in parts if "[=" in part and "ETA" in part]
        if len(lines) < 20 and bars:
            bar = bars[len(bars) // 2]
    return [line.rstrip() for line in lines if not line.startswith("Script ")], bar


def draw_terminal(recording):
    lines, bar = shown_lines(recording)
    epochs = [i for i, line in enumerate(lines) if line.startswith("epoch ")]
    end = max(i for i, line in enumerate(lines) if line.startswith("test accuracy"))
    shown = ["$ scripts/train.sh --checkpoints run"] + lines[:epochs[0]] + [lines[i] for i in epochs[:3]] + [bar, "  ..."]
    shown += [lines[i] for i in epochs[-2:]] + lines[epochs[-1] + 1:end + 1]
    width, top, step = 80 * 8 + 40, 44, 17
    height = top + step * len(shown) + 12
    parts = [f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8" class="frame"/>']
    parts += [f'<circle cx="{20 + 18 * i}" cy="18" r="5" fill="{colour}"/>' for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))]
    for i, line in enumerate(shown):
        parts.append(text(20, top + step * i, line, "mono strong" if line.startswith(("$", "test accuracy")) else "mono"))
    write_svg("training.svg", "A terminal: scripts/train.sh trains a ResNet-20 on handwritten digits and ends with its test accuracy", width, height,
              parts)


def block_calls(dump, block):
    """What the calls of one residual block do, in a dump of the graph."""
    calls = []
    for line in dump.read_text().splitlines():
        found = re.match(r"%\d+: .* = (\w+)\(.*# *(\S+)$", line)
        if found and (found.group(2) + ".").startswith(block + "."):
            fused = (" + add" if re.search(r"none, none, %\d+\)", line) else "") + (" + relu" if "activation=relu" in line else "")
            calls.append(found.group(1).replace("_act", "") + fused)
    return calls


def draw_fusion(dumps):
    before = block_calls(next(dumps.glob("*/*_channels_last.txt")), "layer1.0")
    after = block_calls(next(dumps.glob("*/*_fuse_normalization.txt")), "layer1.0")
    assert len(before) > len(after), (before, after)
    width, row, box = 680, 44, 250
    height = 60 + row * len(before)
    parts = ['<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
             '<path d="M0 0 L8 4 L0 8 z" fill="#57606a"/></marker></defs>']
    for x, heading, calls in ((40, f"as traced: {len(before)} calls", before), (390, f"after the passes: {len(after)} calls", after)):
        parts.append(text(x + box / 2, 24, heading, "strong", "middle"))
        space = (height - 60) / len(calls)
        # The shortcut, from what the block reads to the call that adds it.
        added = 40 + space * next(i for i, name in enumerate(calls) if "add" in name) + space / 2
        parts.append(f'<path d="M{x + box / 2} 32 V{40 + (space - 30) / 2 - 1:.0f}" class="arrow" marker-end="url(#tip)"/>')
        parts.append(f'<path d="M{x + box / 2} 34 H{x + box + 20} V{added:.0f} H{x + box + 1}" class="arrow" marker-end="url(#tip)"/>')
        for i, name in enumerate(calls):
            y = 40 + space * i + (space - 30) / 2
            parts.append(f'<rect x="{x}" y="{y:.0f}" width="{box}" height="30" rx="5" class="{"fused" if "+" in name else "plain"}"/>')
            parts.append(text(x + box / 2, round(y) + 20, name, "mono", "middle"))
            if i + 1 < len(calls):
                parts.append(f'<path d="M{x + box / 2} {y + 30:.0f} V{y + space - 1:.0f}" class="arrow" marker-end="url(#tip)"/>')
    write_svg("fusion.svg", f"A residual block of ResNet-20: {len(before)} calls as traced, {len(after)} after fusion", width, height, parts)


def draw_run(build):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        command = f"stty cols 80; {build.resolve()}/examples/train_resnet --checkpoints run"
        subprocess.run(["script", "-qec", command, "recording"], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, SINTER_DUMP=str(folder / "dump")))
        draw_terminal((folder / "recording").read_bytes().decode())
        draw_fusion(folder / "dump")
        shutil.copy(folder / "run" / "curves.svg", IMAGES / "curves.svg")


def draw_speed(results):
    data = json.loads(results.read_text())
    names = {"resnet18_cifar batch 512": "CIFAR ResNet-18, batch 512", "resnet50 batch 256": "ResNet-50, batch 256",
             "iresnet50 arcface batch 128": "iResNet-50 + ArcFace, batch 128", "resnext50_32x4d batch 256": "ResNeXt-50, batch 256",
             "vgg16_prelu batch 128": "VGG-16 with PReLU, batch 128"}
    wanted = {(row["case"]): row for row in data["rows"] if row["suite"] == "train_step" and row["dtype"] == "mixed_f16" and
              row["layout"] == "NHWC" and row.get("mode") == "job"}
    kinds = (("Sinter", "ours"), ("PyTorch compiled, the better mode", "peer"), ("PyTorch eager", "peer"))
    left, bar, y, parts = 250, 280, 40, []

    def group(name, values):
        nonlocal y
        parts.append(text(20, y + 11, name))
        for (kind, style), value in zip(kinds, values):
            length = round(bar * value / max(values))
            parts.append(f'<rect x="{left}" y="{y}" width="{length}" height="13" class="{style}"/>')
            parts.append(text(left + length + 6, y + 11, f"{value:,.0f} {kind}", "faint"))
            y += 17
        y += 12

    parts.append(text(20, 24, f"Training steps: images a second on one {data['gpu']} (float16, NHWC)", "strong"))
    for case, name in names.items():
        row, peers = wanted[case], wanted[case]["peers_img_s"]
        group(name, (row["img_s"], max(peers[mode] for mode in ("torch_compile", "torch_compile_graphs")), peers["torch_eager"]))
    versions = data["versions"]
    parts.append(text(20, y + 10, f"PyTorch {versions['torch']}, cuDNN {versions['cudnn']}; measured {wanted['resnet50 batch 256'].get('date', data['date'])}",
                      "faint"))
    write_svg("speed.svg", "Images a second of five networks in training: Sinter, PyTorch compiled, PyTorch eager", 800, y + 24, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("run").add_argument("build", type=pathlib.Path)
    kinds.add_parser("speed").add_argument("results", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.kind == "run":
        draw_run(arguments.build)
    else:
        draw_speed(arguments.results)


if __name__ == "__main__":
    main()
