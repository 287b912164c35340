#!/usr/bin/env python3
"""Lists the public declarations that <sinter/sinter.h> reaches, one a line, sorted: what programs may rely on.

usage: scripts/list_api.py INCLUDE_ROOT [--compare FILE] [--compiler CLANG]

INCLUDE_ROOT holds `sinter/`: build/include, or that of an installation. A line is `scope: declaration`, as in the source but
without comments, bodies and initialisers of constructors; fields have their place behind the scope, since designated initialisers
depend on it. Left out are private members, and the namespaces detail, ops::vjp, ops::fused and ops::update, which a minor version
may change. --compare FILE prints the difference from FILE and fails if there is one. Without clang it exits with 77. A change of the API commits its listing:
    scripts/list_api.py build/include > api/sinter.txt
"""

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

CLOSED = {"detail", "vjp", "fused", "update"}
FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXConversionDecl", "CXXDestructorDecl"}
SKIPPED = 77  # what ctest takes for a test that was not run


def parse(compiler, root):
    """The syntax trees of the namespaces in which there is something of Sinter's."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "api.cpp")
        with open(source, "w") as file:
            file.write("#include <sinter/sinter.h>\n")
        dump = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-fno-color-diagnostics", "-I", root, "-Xclang", "-ast-dump=json",
                               "-Xclang", "-ast-dump-filter=sinter", source], capture_output=True, text=True)
    if dump.returncode != 0:
        sys.exit(f"list_api: {compiler} fails: {dump.stderr[:2000]}")
    decoder, text, place, trees = json.JSONDecoder(), dump.stdout, 0, []
    while place < len(text):
        tree, place = decoder.raw_decode(text, place)
        trees.append(tree)
        while place < len(text) and text[place].isspace():
            place += 1
    return trees


def name_files(tree):
    """Gives every location its file, which clang leaves out where it is that of the location printed before."""
    current, open_nodes = None, [tree]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, list):
            open_nodes.extend(reversed(node))
            continue
        if "offset" in node:
            current = node.setdefault("file", current)
        open_nodes.extend(reversed([value for key, value in node.items() if isinstance(value, (dict, list)) and key != "includedFrom"]))


def ends(node):
    """(file, first offset, offset behind the last character), or None for what stands in no file."""
    def real(location):
        return location.get("expansionLoc", location)
    begin, end = (real(node.get("range", {}).get(which, {})) for which in ("begin", "end"))
    if "offset" not in begin or "offset" not in end or begin.get("file") != end.get("file"):
        return None
    return begin["file"], begin["offset"], end["offset"] + end["tokLen"]


class Listing:
    def __init__(self, root):
        self.root = os.path.join(root, "sinter") + os.sep
        self.sources, self.lines = {}, set()

    def text(self, node, end=None):
        place = ends(node)
        if place is None:
            return ""
        path, begin, behind = place
        if path not in self.sources:
            with open(path, "rb") as file:
                self.sources[path] = file.read()
        piece = self.sources[path][begin:end or behind].decode(errors="replace")
        return re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", piece)).strip()

    def add(self, scope, text):
        if text:
            self.lines.add(f"{'::'.join(scope)}: {text}")

    def is_ours(self, node):
        place = ends(node)
        return place is not None and place[0].startswith(self.root)

    def function(self, scope, outer, node):
        """`outer` is the whole declaration, with its template parameters; `node` the function in it."""
        body = [child for child in node.get("inner", []) if child.get("kind") in ("CompoundStmt", "CXXTryStmt")]
        text = self.text(outer, ends(body[0])[1] if body and ends(body[0]) else None)
        if node["kind"] == "CXXConstructorDecl":  # what initialises members is no part of the interface
            depth = 0
            for i, c in enumerate(text):
                depth += (c in "(<{[") - (c in ")>}]")
                if c == ":" and depth == 0 and text[i - 1] == " " and text[i + 1:i + 2] == " ":
                    text = text[:i].strip()
                    break
        self.add(scope, text)

    def record(self, scope, outer, node):
        place = ends(outer)
        whole = self.text(outer)
        self.add(scope, whole[:whole.index("{")].strip())
        inner_scope, order = scope + [node["name"]], 0
        access = "private" if node.get("tagUsed") == "class" else "public"
        for child in node.get("inner", []):
            kind = child.get("kind")
            if kind == "AccessSpecDecl":
                access = child["access"]
            elif kind == "FieldDecl":
                if access != "private":
                    self.add(inner_scope[:-1] + [f"{node['name']} #{order:02}"], self.text(child))
                order += 1
            elif access != "private":
                self.walk(inner_scope, child, place)

    def walk(self, scope, node, _=None):
        kind, name = node.get("kind"), node.get("name", "")
        if node.get("isImplicit"):
            return
        inner = node.get("inner", [])
        if kind == "NamespaceDecl":
            if name not in CLOSED:
                for child in inner:
                    self.walk(scope + [name], child)
            return
        if not self.is_ours(node):
            return
        if kind == "FriendDecl":
            for child in inner:
                if child.get("kind") in FUNCTIONS:
                    self.function(scope, node, child)
        elif kind in ("ClassTemplateDecl", "FunctionTemplateDecl"):
            for child in inner:
                if child.get("kind") == "CXXRecordDecl":
                    if child.get("completeDefinition"):
                        self.record(scope, node, child)
                    break
                if child.get("kind") in FUNCTIONS:
                    self.function(scope, node, child)
                    break
        elif kind == "CXXRecordDecl":
            if node.get("completeDefinition") and name:
                self.record(scope, node, node)
        elif kind in FUNCTIONS:
            if not node.get("previousDecl"):
                self.function(scope, node, node)
        elif kind == "UsingEnumDecl":
            self.add(scope, "using " + self.text(node))
        elif kind in ("EnumDecl", "VarDecl", "VarTemplateDecl", "TypeAliasDecl", "TypeAliasTemplateDecl", "UsingDecl", "ConceptDecl"):
            self.add(scope, self.text(node))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--compare")
    parser.add_argument("--compiler", metavar="CLANG", default="clang++")
    arguments = parser.parse_args()
    compiler = shutil.which(arguments.compiler)
    if compiler is None:
        print(f"list_api: not run: there is no {arguments.compiler}", file=sys.stderr)
        return SKIPPED
    root = os.path.abspath(arguments.root)
    listing = Listing(root)
    for tree in parse(compiler, root):
        name_files(tree)
        if tree.get("kind") == "NamespaceDecl" and tree.get("name") == "sinter":
            listing.walk([], tree)
    lines = sorted(listing.lines)
    if not lines:
        sys.exit(f"list_api: expected declarations below {root}/sinter but found none")
    if not arguments.compare:
        print("\n".join(lines))
        return 0
    with open(arguments.compare) as file:
        before = file.read().splitlines()
    changed = [line for line in difflib.unified_diff(before, lines, arguments.compare, "the headers", lineterm="", n=0) if not line.startswith("@@")]
    if changed:
        print("\n".join(changed))
        print(f"list_api: the public API differs from {arguments.compare}; if that is meant: scripts/list_api.py {arguments.root} > {arguments.compare}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
