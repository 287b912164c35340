#!/usr/bin/env python3
"""Writes the tables of speeds in the pages from the result files.

Usage: tables.py [--check] [PAGE...]
A table stands between `<!-- results/h200.json: train_step -->` and `<!-- end of results -->`; other kinds: memory, infer,
scaling, faces. Pages are README.md and docs/*.md if none is named. --check changes nothing: exit code 1 if a page differs.
Needs Python's standard library only.
"""
import argparse
import json
import pathlib
import re
import sys

import collect

HERE = pathlib.Path(__file__).resolve().parent
MARKED = re.compile(r"(<!-- (results/\S+\.json): (\w+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
PEERS = {"torch_eager": "eager", "torch_compile": "compiled", "torch_compile_graphs": "with graphs", "torch_max_autotune": "max-autotune",
         "torch_eager_nchw": "eager, NCHW", "onnx_runtime": "ONNX Runtime"}
DTYPES = {"mixed_f16": "float16", "mixed_bf16": "bfloat16", "tf32": "TF32", "float32": "float32"}


def number(value):
    return "" if value is None else f"{value:,.0f}"


def grid(head, rows):
    """A table without the columns that are empty throughout."""
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line[i] for i in used) + " |\n" for line in lines)


def name_of(row):
    dtype = "" if row["dtype"] == "mixed_f16" else f", {DTYPES.get(row['dtype'], row['dtype'])}"
    return row["case"] + dtype


def beside(row):
    """Figures of the peers, and how many times as fast as the best of them the row is."""
    peers = row.get("peers_img_s", {})
    ratio = collect.speedup(row, "best")
    return [*(number(peers.get(peer)) for peer in PEERS), f"{ratio:.2f}" if ratio else ""]


def by_mode(rows, suite):
    """For each case under NHWC, in order: its rows by mode."""
    cases = {}
    for row in rows:
        if row["suite"] == suite and row["layout"] == "NHWC":
            cases.setdefault((row["case"], row["dtype"]), {})[row.get("mode", "")] = row
    return cases.values()


def train_step(rows):
    head = ["images a second", "Sinter's job", "eager", *(f"PyTorch {name}" for name in PEERS.values()), "job / the best of PyTorch's"]
    return grid(head, [[name_of(modes["job"]), number(modes["job"]["img_s"]), number(modes.get("eager", {}).get("img_s")),
                        *beside(modes["job"])] for modes in by_mode(rows, "train_step") if "job" in modes])


def memory(rows):
    limits = {"job": "no limit", "job in 0.85 of its memory": "0.85 of it", "job in the least memory": "the least"}

    def cell(row):
        return f"{number(row['img_s'])} in {row['peak_gib']:.2f} GiB"

    return grid(["", *limits.values()], [[name_of(modes["job"]), *(cell(modes[mode]) for mode in limits)]
                                         for modes in by_mode(rows, "train_step") if all(mode in modes for mode in limits)])


def infer(rows):
    def latency(row, what):
        return f"{row[what + 'p50_us']:,.0f} ({row[what + 'p99_us']:,.0f})" if what + "p50_us" in row else ""

    head = ["images a second", "Sinter", *PEERS.values(), "/ the best", "p50 (p99), µs", "/ the least", "from the host"]
    lines = []
    for modes in by_mode(rows, "infer"):
        row = modes[""]
        share = collect.latency_share(row) if "p50_us" in row else None
        lines.append([name_of(row), number(row["img_s"]), *beside(row), latency(row, ""), f"{share:.2f}" if share else "",
                      latency(row, "host_")])
    return grid(head, lines)


def scaling(rows):
    head = ["images a second", "Sinter", "efficiency", "GiB", *(f"PyTorch {name}" for name in PEERS.values()), "/ the best"]
    return grid(head, [[row["case"], number(row["img_s"]), f"{row['efficiency']:.3f}" if "efficiency" in row else "", f"{row['peak_gib']:.1f}", *beside(row)]
                       for modes in by_mode(rows, "scaling") for row in modes.values()])


def faces(rows):
    head = ["images a second", "from the files", "step alone", "data on the GPU", "share"]
    return grid(head, [[row["case"], number(row["img_s"]), number(row["compute_img_s"]), number(row.get("synthetic_img_s")),
                        f"{row['share_of_synthetic']:.3f}" if "share_of_synthetic" in row else ""] for modes in by_mode(rows, "faces") for row in modes.values()])


KINDS = {"train_step": train_step, "memory": memory, "infer": infer, "scaling": scaling, "faces": faces}


def with_tables(text):
    def table(match):
        result = json.loads((HERE / match[2]).read_text(encoding="utf-8"))
        suite = "train_step" if match[3] == "memory" else match[3]
        runs = {(row.get("date", result["date"]), row.get("commit", result["commit"] if "date" not in row else "a commit that was not noted"))
                for row in result["rows"] if row["suite"] == suite}
        measured = ", ".join(f"{date} at {commit}" for date, commit in sorted(runs))
        return f"{match[1]}{KINDS[match[3]](result['rows'])}\nMeasured {measured}.\n{match[4]}"

    return MARKED.sub(table, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    root, differ = HERE.parent, []
    for page in options.pages or [root / "README.md", *sorted(root.glob("docs/**/*.md"))]:
        text = page.read_text(encoding="utf-8")
        written = with_tables(text)
        if written != text:
            differ.append(str(page))
            if not options.check:
                page.write_text(written, encoding="utf-8")
    print("\n".join(f"{page}: {'is not what the results say: run benchmarks/tables.py' if options.check else 'written'}" for page in differ)
          or "all tables are those of the results")
    sys.exit(1 if options.check and differ else 0)


if __name__ == "__main__":
    main()
