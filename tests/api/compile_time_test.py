#!/usr/bin/env python3
"""What <sinter/sinter.h> costs a program that includes it: at most BAR times what the standard headers in it cost alone.

usage: compile_time_test.py COMPILER INCLUDE_ROOT

Both programs are empty but for their includes and are compiled several times in turn; the least processor time of each counts, so
that other work on the machine moves both or neither. COMPILER is one that takes gcc's options.
"""
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

BAR = 3.2  # 2.9 with g++ 12
ROUNDS = 3


def run(command, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode != 0:
        sys.exit(f"compile_time: {' '.join(command)} fails:\n{result.stderr[:3000]}")
    return after.ru_utime - before.ru_utime, result.stdout


def main():
    compiler, root = sys.argv[1], os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "sinter.cpp").write_text("#include <sinter/sinter.h>\nint main() {}\n")
        command = [compiler, "-std=c++20", "-I", root]
        _, rule = run(command + ["-M", "sinter.cpp"], folder)
        ours = [file for file in re.split(r"[\s\\]+", rule) if file.startswith(root + "/sinter/")]
        standard = {name for file in ours for name in re.findall(r"^#include <([a-z_]+)>$", pathlib.Path(file).read_text(), re.M)}
        if len(ours) < 50 or len(standard) < 10:
            sys.exit(f"compile_time: expected headers below {root}/sinter but got {len(ours)}, with {len(standard)} standard ones")
        (path / "standard.cpp").write_text("".join(f"#include <{name}>\n" for name in sorted(standard)) + "int main() {}\n")
        best = {"sinter": float("inf"), "standard": float("inf")}
        for _ in range(ROUNDS):
            for name in best:
                seconds, _ = run(command + ["-c", f"{name}.cpp", "-o", f"{name}.o"], folder)
                best[name] = min(best[name], seconds)
    ratio = best["sinter"] / best["standard"]
    print(f"<sinter/sinter.h>: {best['sinter']:.2f} s, {len(ours)} headers; the {len(standard)} standard headers in it: {best['standard']:.2f} s; "
          f"ratio {ratio:.2f}, at most {BAR}")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
