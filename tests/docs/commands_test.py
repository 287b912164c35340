#!/usr/bin/env python3
"""Runs the commands on a page of the documentation as they stand there, in a folder of its own, and compares what they
print with what the page shows.

usage: commands_test.py <project> <build folder> <folder to work in> <page>

Each block of ```sh is run, line by line, under bash, where no folder `run*` of the block before is left. A comment before a block says what else to do with it:

  <!-- not run: why -->            a block that cannot run everywhere; counted and named
  <!-- printed by: command -->     the block is what the command prints, in parts: each of its lines must come, in this
                                   order. Numbers and line breaks may differ, "..." and "…" stand for anything.

A block without a language needs one of them (```text is for what no program prints). A line that asks for more GPUs than the
machine has is passed over, and named.

The pages' programs are found on PATH, `build` is the build folder, and the data sets that pages speak of (cifar10, photos,
faces, ...) are made of some pictures. The programs are given few epochs, small pictures, small batches and small networks.
"""

import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

# What the wrapper of a program adds, unless the page gives the option or says to go on with a run.
SHORTER = {
    "train_resnet": {"--epochs": "1", "--batch": "8"},
    "train_insightface": {"--epochs": "1", "--batch": "4", "--backbone": "iresnet18", "--width": "8", "--dims": "16", "--image-size": "32"},
}
WRAPPER = """#!{python}
import os, sys
arguments, shorter = sys.argv[1:], {shorter}
most = {{"--epochs": 2, "--image-size": 80}}  # up to 64 the stem is that of small pictures, which takes ten times as long
arguments = ["resnet18" if value == "resnet50" else value for value in arguments]
arguments = [str(min(int(value), most[name])) if name in most else value for name, value in zip(["", *arguments], arguments)]
if any(value.startswith("imagenet_resnet") for value in arguments):  # recipes
    arguments += ["--model", "resnet18", "--image-size", "80"]
if "--resume" not in arguments and "--ijb" not in arguments:
    for name, value in shorter.items():
        if not any(argument.split("=")[0] == name for argument in arguments):
            arguments += [name, value]
os.execv({program!r}, [{program!r}, *arguments])
"""


class Block:
    def __init__(self, language, line, directive):
        self.language, self.line, self.directive, self.lines = language, line, directive, []


def read_blocks(page):
    blocks, block, directive = [], None, None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if block is None:
                block = Block(line[3:].strip(), number, directive)
            else:
                blocks.append(block)
                block, directive = None, None
        elif block is not None:
            block.lines.append(line)
        elif match := re.fullmatch(r"<!-- (not run|printed by): (.*) -->", line):
            directive = match.groups()
        elif line:
            directive = None
    return blocks


def write_pictures(folder, pictures, count):
    folder.mkdir(parents=True)
    for i in range(count):
        shutil.copy(pictures[i % len(pictures)], folder / f"{i}.jpg")


def make_data(project, build, folder, page):
    """The data sets that pages speak of: two to four classes or people, some pictures each."""
    images = project / "tests/data/images"
    pictures = [images / name for name in ("rgb.jpg", "gray.jpg", "progressive.jpg")]
    for name, classes, held_out in (("cifar10", 10, "test"), ("photos", 2, "val"), ("flowers", 3, "val"), ("imagenet", 2, "val")):
        for i in range(classes):
            write_pictures(folder / name / "train" / f"class{i}", pictures, 4)
            write_pictures(folder / name / held_out / f"class{i}", pictures, 2)
    for i in range(4):
        write_pictures(folder / "faces" / "train" / f"person{i}", pictures, 4)
        write_pictures(folder / "faces" / "others" / f"stranger{i}", pictures, 3)
    for name, stored in (("resnet18", "state"), ("checkpoint", "checkpoint")):
        shutil.copy(project / f"tests/data/pytorch/{stored}.pth", folder / f"{name}.pth")
    # As InsightFace hands them on: records, and pairs in files of their own.
    subprocess.run([build / "examples/sinter_pack", folder / "faces/train", folder / "ms1mv2"], check=True, capture_output=True)
    shown = [picture.read_bytes() for picture in pictures] * 8
    for place in ("ms1mv2", "faces"):
        for name in ("lfw", "agedb_30", "cfp_fp"):
            (folder / place / f"{name}.bin").write_bytes(pickle.dumps((shown, [True, False] * 6), protocol=4))
    if "--ijb" in page.read_text():
        make_faces(build, folder, pictures)


# In a picture of the documentation's, which is small: a face over all of it.
POINTS = [(10, 8), (25, 7), (17, 12), (11, 18), (24, 17)]
# The same, aligned to 112x112.
ALIGNED = [(35.1, 58.5), (78.5, 57.0), (54.9, 70.7), (37.0, 87.5), (74.6, 85.8)]


def landmarks(names, points):
    numbers = ",".join(f"{number}" for point in points for number in point)
    return "".join(f"{name},{numbers}\n" for name in names)


def make_faces(build, folder, pictures):
    """Photographs with landmarks, IJB-C with six templates of two pictures, its embeddings, and a network for 112x112 pixels."""
    names = [f"{person}/{i}.jpg" for person in ("ann", "bob") for i in (1, 2)]
    for name in names:
        (folder / "portraits" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pictures[0], folder / "portraits" / name)
    (folder / "landmarks.csv").write_text(landmarks(names, POINTS))
    (folder / "points.csv").write_text(landmarks(names, ALIGNED))
    meta = folder / "ijbc/meta"
    meta.mkdir(parents=True)
    files = [f"{i}.jpg" for i in range(1, 13)]
    for i, name in enumerate(files):
        (folder / "ijbc/loose_crop").mkdir(exist_ok=True)
        shutil.copy(pictures[i % 2], folder / "ijbc/loose_crop" / name)
    templates = range(6)
    (meta / "ijbc_face_tid_mid.txt").write_text("".join(f"{name} {i // 2} {i}\n" for i, name in enumerate(files)))
    (meta / "ijbc_name_5pts_score.txt").write_text(landmarks(files, POINTS).replace(",", " ").replace("\n", " 0.9\n"))
    (meta / "ijbc_template_pair_label.txt").write_text(
        "".join(f"{a} {b} {int(a // 2 == b // 2)}\n" for a in templates for b in templates if a < b))
    for name, own in (("gallery_G1", [0]), ("gallery_G2", [2]), ("probe_mixed", [1, 3, 5])):
        (meta / f"ijbc_1N_{name}.csv").write_text("TEMPLATE_ID,SUBJECT_ID\n" + "".join(f"{t},{t // 2}\n" for t in own))
    rows = struct.pack("<36f", *(float(i // 4 == axis) for i in range(12) for axis in range(3)))  # a subject is an axis
    header = b'{"embeddings":{"dtype":"F32","shape":[12,3],"data_offsets":[0,144]}}'
    (folder / "ijbc.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + rows)
    subprocess.run([build / "examples/train_insightface", "--synthetic", "2", "--backbone", "iresnet18", "--width", "8", "--dims", "16",
                    "--batch", "2", "--max-steps", "1", "--save-weights", folder / "r100.safetensors"], check=True, capture_output=True)


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except OSError:
        return 0
    return len(re.findall(r"^GPU ", listed, re.M))


def prepare(project, build, folder, page):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    programs = folder / "bin"
    programs.mkdir()
    for name in ("train_resnet", "train_insightface", "sinter_align", "sinter_convert", "sinter_curves", "sinter_pack", "speedrun"):
        wrapper = programs / name
        wrapper.write_text(WRAPPER.format(python=sys.executable, shorter=SHORTER.get(name, {}), program=str(build / "examples" / name)))
        wrapper.chmod(0o755)
    viewer = programs / "tensorboard"
    viewer.write_text('#!/bin/sh\nls "$2"/events.out.tfevents.* >/dev/null\n')  # what it would show is there
    viewer.chmod(0o755)
    (folder / "scripts").mkdir()
    (folder / "scripts/train.sh").symlink_to(programs / "train_resnet")
    (folder / "build").mkdir()
    for entry in build.iterdir():
        (folder / "build" / entry.name).symlink_to(programs if entry.name == "examples" else entry)
    (folder / "examples").symlink_to(project / "examples")
    make_data(project, build, folder, page)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SINTER_CACHE_DIR": str(folder / "cache"),
            "NO_COLOR": "1", "CUDA_VISIBLE_DEVICES": ""}  # the same on a GPU, where each start takes longer


def run(command, folder, environment):
    """Exit code, and what the command printed on both streams."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    return done.returncode, done.stdout.decode(errors="replace")


NUMBER = r"(?<![A-Za-z_])[-+]?\d[\d.,:]*(?:e[-+]?\d+)?"


def pattern_of(line):
    """What a line must look like; numbers may differ (few epochs are run), and how far words are apart."""
    parts = re.split(rf"(\.\.\.|…|\s+|{NUMBER})", line.strip().replace(" epochs", " epoch"))
    return re.compile("".join(".*?" if part in ("...", "…") else r"\s+" if part.isspace() else
                              r"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?" if re.fullmatch(NUMBER, part) else re.escape(part)
                              for part in parts))


def compare(shown, printed):
    """The first line of what is shown that does not come, or nothing. Lines that differ in numbers alone need come once: few
    epochs are run."""
    rest = " ".join(printed.split()).replace(" epochs", " epoch")
    previous = None
    for line in shown:
        if line.strip() in ("", "...", "…"):
            continue
        pattern = pattern_of(line)
        if pattern == previous:
            continue
        previous = pattern
        found = pattern.search(rest)
        if found is None:
            return line
        rest = rest[found.end():]
    return None


def check_block(block, folder, environment):
    """Errors, and what was not run."""
    kind, text = block.directive or (None, "")
    if kind == "not run":
        return [], [text]
    if kind == "printed by":
        code, printed = run(text, folder, environment)
        missing = compare(block.lines, printed)
        return ([f"'{text}' does not print (exit code {code}): {missing}\nbut:\n{printed}"] if missing else []), []
    if block.language == "":
        return ["a block without a language needs 'not run:' or 'printed by:' before it, or is ```text"], []
    passed_over = []
    if block.language != "sh":
        return [], []
    for run_folder in folder.glob("run*"):
        shutil.rmtree(run_folder)
    for command in "\n".join(block.lines).replace("\\\n", " ").splitlines():
        gpus = re.search(r"--gpus (\d+)", command)
        if gpus and int(gpus.group(1)) > gpu_count():
            passed_over.append(f"needs {gpus.group(1)} GPUs: {command.split('#')[0].strip()}")
            continue
        code, printed = run(command, folder, environment)
        if code != 0:
            return [f"exit code {code} of: {command}\n{printed}"], passed_over
    return [], passed_over


def main():
    project, build, folder, page = (Path(argument).resolve() for argument in sys.argv[1:5])
    environment = prepare(project, build, folder, page)
    failed = 0
    for block in read_blocks(page):
        errors, passed_over = check_block(block, folder, environment)
        for error in errors:
            print(f"{page.name}:{block.line}: {error}")
        for reason in passed_over:
            print(f"{page.name}:{block.line}: not run: {reason}")
        failed += bool(errors)
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
