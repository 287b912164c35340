#!/usr/bin/env python3
"""Whether each kernel that the host launches is one that was compiled for the GPU.

nvcc reads a .cu file twice, as GPU code and, rewritten, as the host's. Where the two passes deduce different template arguments (seen:
a parameter pack of several types inside a lambda), the host launches a kernel that is nowhere, and cudaErrorInvalidDeviceFunction
comes at run time, on a machine with a GPU alone. Both kernels are among the object's symbols, so this finds it without one.

Usage: check_kernels.py BUILD
"""
import pathlib
import re
import subprocess
import sys

STUB = re.compile(r"L(\d+)(__device_stub_)")
OWN = re.compile(r"L(?=\d)")  # internal linkage, which stubs' names do not tell
# A kernel's name and template arguments; behind them comes its return type, void. Types of its parameters that depend on the
# arguments are written in two ways.
KERNEL = re.compile(r"_ZN.*?\d+(\w*?_kernel)I.*?E(?=v)")


def unregistered(symbols):
    """Those among an object's `symbols` that are kernels, by their names, without a stub that launches them."""
    stubs, kernels = {}, {}
    for kind, name in symbols:
        stub = STUB.search(name)
        is_function = kind in "tTwW" and "__device_stub" not in name and not name.startswith("_ZZ")
        if stub:
            kernel, found = name[stub.end():stub.start(2) + int(stub[1])], stubs
        elif is_function:
            kernel, found = name, kernels
        else:
            continue
        match = KERNEL.match(OWN.sub("", kernel))
        if match:
            found[match[0]] = match[1]
    return sorted(kernel for kernel, base in kernels.items() if kernel not in stubs and base in stubs.values())


def main():
    objects = sorted(pathlib.Path(sys.argv[1]).rglob("*.cu.o"))
    failures = 0
    for path in objects:
        listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        symbols = [line.split()[-2:] for line in listed.splitlines()]
        for kernel in unregistered(symbols):
            failures += 1
            print(f"{path.name}: launched, but not compiled for the GPU: {kernel}")
    print(f"{len(objects)} objects, {failures} kernels that are launched but not there")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
