#!/usr/bin/env python3
"""Reads the includes between the project's folders and fails on an upward one, a cycle, a module that is too full, a
source that does not say what it is for, or an op that asks what may change between two runs of a kernel.

usage: .ci/check_includes.py [--list] [ROOT]

A folder with sources is a module. The layers are core, ops, autograd, passes, nn from the bottom to the top; an include
may lead to the same layer or to a lower one. Between modules no path of includes may lead back to where it began. A module
holds at most MOST_FILES files. --list prints every module with what it includes. A source begins with a comment that says its
purpose, unless a header of its name, or of its op's (`<op>.h` of `<op>_cpu.cpp`), stands beside it and says it. JSON
is parsed in core/json alone, which bounds its depth. Kernels are prepared once and run often: what the process is set to
they learn from KernelQuery when they are chosen, and from KernelContext, which says the same, when they run.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

LAYERS = ["core", "ops", "autograd", "passes", "nn"]
PROGRAMS = ["examples", "benchmarks", "tests"]
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
MOST_FILES = 16
ASKS = re.compile(r"\b(num_threads|getenv|settings::\w+)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:sinter/)?([^>"]+)[>"]')


def read_includes(root):
    """{module: {module that it includes: [(file, line number, included file)]}} and {module: number of files}."""
    edges, sizes = defaultdict(lambda: defaultdict(list)), defaultdict(int)
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            file = path.relative_to(root)
            module = str(file.parent)
            sizes[module] += 1
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                target = match and Path(match.group(1))
                if not target or target.parts[0] not in LAYERS:
                    continue
                if not (root / target).exists():
                    sys.exit(f"{file}:{number}: there is no {target}")
                if str(target.parent) != module:
                    edges[module][str(target.parent)].append((file, number, target))
    return edges, sizes


def without_purpose(root):
    """The sources, in the whole project, that no comment explains."""
    found = []
    for folder in LAYERS + PROGRAMS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".cpp", ".cu"}:
                continue
            stem = re.sub("_(cpu|cuda|samples)$", "", path.stem)
            headers = [path.with_suffix(".h"), path.with_name(stem + ".h")]
            if not path.read_text().startswith("//") and not any(header.exists() for header in headers):
                found.append(path.relative_to(root))
    return found


def own_parsers(root):
    """The lines, in the library and the examples, that parse JSON past core/json/json.h."""
    for folder in LAYERS + ["examples"]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.parent != root / "core/json":
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    if re.search(r"[jJ]son::(parse|sax_parse|accept)\(", line):
                        yield f"{path.relative_to(root)}:{number}"


def asks_of_ops(root):
    """(file, line number, function) wherever the code of an op asks what the process is set to."""
    found = []
    for path in sorted((root / "ops").rglob("*")):
        if path.suffix not in SOURCES:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = ASKS.search(line.split("//")[0])
            if match:
                found.append((path.relative_to(root), number, match.group(1)))
    return found


def cycles(edges):
    """The groups of modules that include each other in a circle: Tarjan's strongly connected components."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in edges.get(module, {}):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            group = []
            while not group or group[-1] != module:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def layer_of(module):
    return LAYERS.index(module.split("/")[0])


def main(arguments):
    listing = "--list" in arguments
    places = [a for a in arguments if not a.startswith("--")]
    root = Path(places[0] if places else Path(__file__).parent.parent).resolve()
    edges, sizes = read_includes(root)
    if listing:
        for module in sorted(sizes):
            print(f"{module} ({sizes[module]}): {' '.join(sorted(edges.get(module, {})))}")
    wrong = 0
    for module in sorted(edges):
        for target, places in sorted(edges[module].items()):
            if layer_of(target) > layer_of(module):
                for file, number, included in places:
                    print(f"upward: {file}:{number} includes {included}")
                    wrong += 1
    for group in cycles(edges):
        wrong += 1
        print(f"cycle: {' <-> '.join(group)}")
        for module in group:
            for target in group:
                for file, number, included in edges.get(module, {}).get(target, [])[:3]:
                    print(f"    {file}:{number} includes {included}")
    for module, size in sorted(sizes.items()):
        if size > MOST_FILES:
            wrong += 1
            print(f"full: {module} holds {size} files, more than {MOST_FILES}")
    for file in without_purpose(root):
        wrong += 1
        print(f"purpose: {file} begins without a comment that says what it is for")
    for place in own_parsers(root):
        wrong += 1
        print(f"json: {place} parses JSON by itself; parse_json() of core/json/json.h bounds its depth")
    for file, number, function in asks_of_ops(root):
        wrong += 1
        print(f"asks: {file}:{number} calls {function}(), whose answer may change between the choice of a kernel and a run")
    print(f"{len(sizes)} modules, {sum(sizes.values())} files, {wrong} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
