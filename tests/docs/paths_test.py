#!/usr/bin/env python3
"""Every file and folder of this tree that a page names in `code` exists, docs/ops.md names folders of ops, and every link from a page
to a file of this tree, or to a heading, leads somewhere."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
tops = "ops core nn autograd passes examples tests benchmarks cmake scripts docs".split()
pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "benchmarks/README.md", *root.glob("examples/**/*.md")]
named = re.compile(r"`(?:sinter/)?((?:%s)/[\w./*-]+)`" % "|".join(tops))
link = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
missing, count = [], 0


def prose(page):
    """Lines of a page with their numbers, without blocks of code."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def anchors(page):
    """What GitHub calls the headings of a page."""
    headings = (line.lstrip("# ").lower() for _, line in prose(page) if line.startswith("#"))
    return [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings]


def expect_link(page, line, file, anchor):
    global count
    count += 1
    target = (page.parent / file).resolve() if file else page
    if not target.exists() or (anchor and anchor not in anchors(target)):
        missing.append(f"{page.relative_to(root)}:{line}: {file}" + (f"#{anchor}" if anchor else ""))


def expect(page, line, path):
    global count
    count += 1
    path = path.rstrip("/")
    if not any(root.glob(path)) and not any(root.glob(path + ".cpp")):  # or a program
        missing.append(f"{page.relative_to(root)}:{line}: {path}")


for page in sorted(pages):
    if page.name == "CHANGELOG.md":
        continue  # which tells of files that are gone
    for line, text in prose(page):
        for file, anchor in link.findall(re.sub(r"`[^`]*`", "", text)):
            expect_link(page, line, file, anchor)
    for line, text in enumerate(page.read_text().splitlines(), 1):
        for path in named.findall(text):
            expect(page, line, path)
        cells = text.strip("|").split(" | ")
        if page.name == "ops.md" and len(cells) == 3:
            for folder in re.findall(r"`([^`]+)`", cells[2]):
                expect(page, line, "ops/" + folder)

print(f"{count} files, folders and headings are named, {len(missing)} of them do not exist", *missing, sep="\n")
sys.exit(1 if missing or count == 0 else 0)
