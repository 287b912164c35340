#!/usr/bin/env python3
"""Makes examples/data/digits from scikit-learn's digits.csv.gz: IDX files with a fixed, stratified split.

usage: make_digits.py digits.csv.gz OUTPUT_FOLDER

The input has one image a line: 64 values from 0 to 16, row by row, then the label. Values become round(v * 255 / 16).
The test set has 360 images: of every class the share that rounds best, spread evenly over its lines. The output is
the same byte for byte on every run.
"""

import csv
import gzip
import io
import struct
import sys
from pathlib import Path

TEST_IMAGES = 360
SIDE = 8


def read_digits(path):
    with gzip.open(path, "rt", newline="") as file:
        rows = [[int(float(cell)) for cell in row] for row in csv.reader(file)]
    for number, row in enumerate(rows):
        if len(row) != SIDE * SIDE + 1 or not all(0 <= v <= 16 for v in row[:-1]) or not 0 <= row[-1] <= 9:
            sys.exit(f"{path}: line {number + 1} is not 64 values from 0 to 16 and a digit")
    return rows


def test_counts(rows):
    """How many images of each class to test with: proportional, by largest remainders, TEST_IMAGES in all."""
    sizes = [sum(row[-1] == digit for row in rows) for digit in range(10)]
    shares = [size * TEST_IMAGES / len(rows) for size in sizes]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(10), key=lambda digit: (counts[digit] - shares[digit], digit))
    for digit in by_remainder[: TEST_IMAGES - sum(counts)]:
        counts[digit] += 1
    return sizes, counts


def split(rows):
    sizes, counts = test_counts(rows)
    seen = [0] * 10
    train, test = [], []
    for row in rows:
        digit = row[-1]
        # Evenly spread: the k-th of n goes to the test set where the running share of m tests steps up.
        k, n, m = seen[digit], sizes[digit], counts[digit]
        (test if (k + 1) * m // n > k * m // n else train).append(row)
        seen[digit] += 1
    return train, test


def write_idx(path, dims, values):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(struct.pack(">BBBB", 0, 0, 8, len(dims)))
        file.write(struct.pack(f">{len(dims)}I", *dims))
        file.write(bytes(values))
    path.write_bytes(buffer.getvalue())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "test"), split(read_digits(sys.argv[1]))):
        pixels = [(v * 255 + 8) // 16 for row in rows for v in row[:-1]]
        write_idx(folder / f"{name}-images-idx3-ubyte.gz", (len(rows), SIDE, SIDE), pixels)
        write_idx(folder / f"{name}-labels-idx1-ubyte.gz", (len(rows),), [row[-1] for row in rows])
        print(f"{name}: {len(rows)} images")


if __name__ == "__main__":
    main()
