#!/usr/bin/env python3
"""Measures train_insightface on packed JPEGs beside the same step on data that lie on the GPU.

Usage: faces.py BUILD [--images 100000] [--steps 1500] [--folder FOLDER] [--rows FOLDER] [--device cuda]
Makes the faces in FOLDER (a temporary one), trains iResNet-50 with ArcFace on them, batch 128, and runs scaling_benchmark
with as many people. `share_of_synthetic` is the one speed over the other, `compute_img_s` that of the trainer's steps alone.
Needs Python's standard library only.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import scaling

SYNTHETIC = "iresnet50 arcface batch 128, 10000 people"
RECIPE = "--backbone iresnet50 --batch 128 --epochs 20".split()


def train(options, folder):
    """The trainer's report."""
    report = folder / "report.json"
    subprocess.run([options.build / "examples" / "train_insightface", *RECIPE, "--data", folder, "--max-steps", str(options.steps),
                    "--report", report, "--device", options.device], check=True)
    return json.loads(report.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=100000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--folder", type=pathlib.Path, help="where the faces are put, and used if they are there")
    parser.add_argument("--rows", type=pathlib.Path, help="write the row into this folder, for collect.py")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sinter-faces-") as temporary:
        folder = options.folder or pathlib.Path(temporary)
        if not (folder / "train.rec").exists():
            begin = time.perf_counter()
            subprocess.run([options.build / "benchmarks" / "make_faces", folder, str(options.images)], check=True)
            print(f"made in {time.perf_counter() - begin:.1f} s", flush=True)
        report = train(options, folder)
        stored = (folder / "train.rec").stat().st_size / options.images
    images_of_steps = report["steps"] * report["batch"]
    row = {"suite": "faces", "case": "iresnet50 arcface batch 128, packed JPEGs", "dtype": report["precision"].replace("-", "_"),
           "layout": report["layout"], "img_s": report["samples_s"], "compute_img_s": images_of_steps / report["compute_seconds"],
           "wait_seconds": report["wait_seconds"], "peak_gib": report["peak_gib"], "bytes": round(stored),
           "target": {"share_of_synthetic": 0.97}}
    gpu = scaling.count_gpus()[1]
    if options.device == "cuda":
        command = [str(options.build / "benchmarks" / "scaling_benchmark"), SYNTHETIC]
        synthetic = scaling.run_on_gpus(command, 1, False, scaling.LIMIT)[0]
        if synthetic is not None:
            row.update(synthetic_img_s=synthetic["img_s"], share_of_synthetic=row["img_s"] / synthetic["img_s"])
    print(json.dumps(row, indent=1))
    if options.rows:
        scaling.write(options.rows / "sinter_faces.json", gpu, [row])


if __name__ == "__main__":
    main()
