#!/usr/bin/env python3
"""What a compiler says to habits of other libraries: each line of a program must be refused or warned of, with words that name the remedy.

usage: misuse_test.py COMPILER INCLUDE_ROOT     COMPILER is one that takes gcc's options.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

RATE = "the learning rate goes into step(lr)"
MISUSES = [  # code, "error" or "warning", and a text beside it
    ("nn::AdamW adamw(parameters, 1e-3);", "error", RATE),
    ("nn::Adam adam(groups, 1e-3);", "error", RATE),
    ("nn::SGD sgd(parameters, 0.1);", "error", RATE),
    ("nn::RMSprop rmsprop(parameters, 1);", "error", RATE),
    ("nn::LAMB lamb(parameters, 0.1f);", "error", RATE),
    ("optimizer.step();", "error", RATE),
    ("nn::clip_grad_norm(parameters, 5.0);", "warning", "nodiscard"),
    ("NoGrad();", "warning", "nodiscard"),
    ("nn::EvalMode{model};", "warning", "nodiscard"),
]
FINE = """#include <sinter/nn/nn.h>
using namespace sinter;
void fine(const std::vector<nn::Parameter>& parameters, const std::vector<nn::ParameterGroup>& groups, const nn::ModuleBase& model) {
  nn::AdamW plain(parameters), options(groups, {.weight_decay = 0.1});
  nn::SGD optimizer(parameters, {.momentum = 0.9});
  optimizer.step(0.1);
  optimizer.step(0.1, nn::clip_grad_norm(parameters, 5.0).factor);
  const NoGrad no_grad;
  const nn::EvalMode eval(model);
"""


def diagnostics(compiler, root, text):
    """Of each line with some: what the compiler says, up to what it says of the next."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "misuse.cpp").write_text(text)
        environment = dict(os.environ, LC_ALL="C")
        run = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-fmax-errors=0", "-Wall", "-Wno-unused-variable", "-I", root,
                              "misuse.cpp"], cwd=folder, env=environment, capture_output=True, text=True)
    found = {}
    for part in re.split(r"^(?=misuse\.cpp:\d+:\d+: (?:error|warning): )", run.stderr, flags=re.M)[1:]:
        line = int(part.split(":")[1])
        found[line] = found.get(line, "") + part
    return found, run.stderr


def main():
    compiler, root = sys.argv[1], os.path.abspath(sys.argv[2])
    first = FINE.count("\n") + 1
    found, said = diagnostics(compiler, root, FINE + "".join(code + "\n" for code, _, _ in MISUSES) + "}\n")
    wrong = [f"line {line} is fine, but: {text}" for line, text in found.items() if line < first]
    for line, (code, kind, text) in enumerate(MISUSES, first):
        own = found.get(line, "nothing")
        if f": {kind}: " not in own or text not in own:
            wrong.append(f"expected a {kind} with '{text}' for `{code}` but got: {own}")
    if wrong:
        sys.exit("misuse: " + "\n".join(wrong) + ("" if found else "\n" + said))
    print(f"{len(MISUSES)} habits of other libraries are told what to do")


if __name__ == "__main__":
    main()
