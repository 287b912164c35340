#!/usr/bin/env python3
"""Every file and folder of this tree that a page names in `code` exists, and docs/ops.md names folders of ops."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
tops = "ops core nn autograd passes examples tests benchmarks cmake scripts docs".split()
pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "benchmarks/README.md", *root.glob("examples/**/*.md")]
named = re.compile(r"`(?:sinter/)?((?:%s)/[\w./*-]+)`" % "|".join(tops))
missing, count = [], 0


def expect(page, line, path):
    global count
    count += 1
    path = path.rstrip("/")
    if not any(root.glob(path)) and not any(root.glob(path + ".cpp")):  # or a program
        missing.append(f"{page.relative_to(root)}:{line}: {path}")


for page in sorted(pages):
    if page.name == "CHANGELOG.md":
        continue  # which tells of files that are gone
    for line, text in enumerate(page.read_text().splitlines(), 1):
        for path in named.findall(text):
            expect(page, line, path)
        cells = text.strip("|").split(" | ")
        if page.name == "ops.md" and len(cells) == 3:
            for folder in re.findall(r"`([^`]+)`", cells[2]):
                expect(page, line, "ops/" + folder)

print(f"{count} files and folders are named, {len(missing)} of them do not exist", *missing, sep="\n")
sys.exit(1 if missing or count == 0 else 0)
