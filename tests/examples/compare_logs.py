#!/usr/bin/env python3
"""Fails unless TensorBoard reads from the event files of each folder what is in its scalars.jsonl.

usage: compare_logs.py FOLDER...
"""

import json
import struct
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def as_float32(value):
    """Its bytes, so that NaN equals NaN; JSON has NaN and infinities as texts, which float() takes."""
    return struct.pack("<f", float(value))


def read_json(folder):
    values = {}
    for line in (folder / "scalars.jsonl").read_text().splitlines():
        record = json.loads(line)
        for tag, value in record.items():
            if tag not in ("step", "time"):
                values.setdefault(tag, []).append((record["step"], record["time"], as_float32(value)))
    return values


def read_events(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.wall_time, as_float32(event.value)) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def main():
    for folder in map(Path, sys.argv[1:]):
        expected, found = read_json(folder), read_events(folder)
        for tag in sorted(expected.keys() | found.keys()):
            if expected.get(tag) != found.get(tag):
                sys.exit(f"{folder}: {tag}: scalars.jsonl has {expected.get(tag)}, TensorBoard {found.get(tag)}")
        print(f"{folder}: {len(found)} tags, {sum(map(len, found.values()))} values agree")


if __name__ == "__main__":
    main()
