#!/usr/bin/env python3
"""Runs the sweep: random shapes of four families, Sinter beside PyTorch eager and compiled, each result compared.

Usage: sweep.py BUILD [options]
BUILD is the folder where Sinter was built with its benchmarks. See README.md for what is drawn and measured; the rows
go to sinter_sweep_<seed>.json and peer_sweep_<seed>.json in the folder that --rows names, for collect.py. Without a
PyTorch that sees the GPU, Sinter runs alone. Exit code 1: a result differs from PyTorch's, or a case failed.
"""
import argparse
import gc
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

import sweep_report

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120  # seconds for one case, after which the program counts as hanging
MOST_RESTARTS = 10
EXCHANGE_BYTES = 3 << 30  # of the outputs of the largest case, and some more
COMPILE_SHARE = 0.4  # of the time, at most, to compile ahead


class Sinter:
    """The program that measures Sinter, one case at a time."""

    def __init__(self, command):
        self.command, self.restarts = command, 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(self.process.wait() or 1)
        self.head = json.loads(line)

    def measure(self, index, folder):
        try:
            self.process.stdin.write(f"{index} {folder}\n")
            self.process.stdin.flush()
            ready = select.select([self.process.stdout], [], [], PATIENCE)[0]
            line = self.process.stdout.readline() if ready else ""
            if line:
                reply = json.loads(line)
                if reply.get("lost"):
                    reply["error"] += "; " + self.restart("lost the GPU")
                return reply
        except (BrokenPipeError, json.JSONDecodeError):
            ready = True
        return {"error": self.restart("ended" if ready else "did not answer")}

    def restart(self, what):
        self.process.kill()
        code = self.process.wait()
        self.restarts += 1
        if self.restarts > MOST_RESTARTS:
            sys.exit(f"Sinter's program failed {self.restarts} times")
        self.start()
        return f"Sinter's program {what} (exit code {code}) and was started again"

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def exchange_folder():
    """In memory if there is room."""
    shared = "/dev/shm"
    has_room = os.path.isdir(shared) and shutil.disk_usage(shared).free >= EXCHANGE_BYTES
    return tempfile.TemporaryDirectory(prefix="sinter-sweep-", dir=shared if has_room else None)


def load_torch(options):
    """The module that measures PyTorch, or None with a word why."""
    if options.no_torch:
        return None
    sys.path.insert(0, str(HERE / "peers"))
    try:
        import torch_sweep
    except (SystemExit, ImportError) as error:
        print(f"without PyTorch: {error}")
        return None
    if not options.cpu and not torch_sweep.torch.cuda.is_available():
        print("without PyTorch: it sees no CUDA device")
        return None
    gc.freeze()  # the interpreter's own objects need not be looked through at every case
    return torch_sweep


class Compilers:
    """Processes that compile cases ahead, into the cache on disk that torch.compile keeps."""

    def __init__(self, options, cases, folder):
        listed = pathlib.Path(folder) / "cases.json"
        listed.write_text(json.dumps(cases), encoding="utf-8")
        workers = min(options.workers, len(cases))
        command = [sys.executable, str(HERE / "peers" / "torch_sweep.py"), str(listed), "--parts", str(workers),
                   "--device", "cpu" if options.cpu else "cuda"]
        self.logs = [pathlib.Path(folder) / f"compile_{part}.txt" for part in range(workers)]
        self.processes = []
        for part, log in enumerate(self.logs):
            with log.open("w", encoding="utf-8") as file:
                self.processes.append(subprocess.Popen([*command, "--part", str(part)], stdout=file,
                                                       stderr=subprocess.STDOUT))

    def finish(self, deadline):
        """Waits no longer than until `deadline`; the indices that are compiled, and a line for each that failed."""
        for process in self.processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        lines = [line for log in self.logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        failed = [line for line in lines if line.startswith("failed ")]
        ready = {int(line.split()[1]) for line in lines if line.startswith("compiled ")}
        if not ready and not failed:
            failed = lines[-5:]  # whatever ended the processes
        return ready, failed


class Sweep:
    """What has been measured so far."""

    def __init__(self, options, head, torch_version):
        self.options, self.head, self.torch_version = options, head, torch_version
        self.ours, self.peers, self.failed, self.wrong = [], [], [], []
        self.worst = {}  # family -> the largest difference, as a share of what is allowed
        self.compared = 0

    def add(self, case, reply, times, different, failed):
        name = f"{case['case']} {case['dtype']} {case['layout']}".rstrip()
        self.failed += [f"{name}: {text}" for text in failed]
        if "error" in reply:
            self.failed.append(f"{name}: Sinter: {reply['error']}")
            return
        key = {k: case[k] for k in ("suite", "case", "dtype", "layout")}
        row = {**key, "mode": f"seed {self.options.seed}", "us": rounded(reply["us"])}
        for figure in ("copy_us", "share_of_copy"):
            if figure in reply:
                row[figure] = rounded(reply[figure])
        row.update(family=case["family"], bytes=case["bytes"], kernel=reply["kernel"], plan=reply["plan"])
        self.ours.append(row)
        self.peers += [{**key, "peer": peer, "us": rounded(us)} for peer, us in times.items()]
        if different:
            self.compared += 1
            largest = max(different.values())
            self.worst[case["family"]] = max(self.worst.get(case["family"], 0.0), largest)
            if largest > 1:
                self.wrong.append(f"{name}: {', '.join(f'{k} {v:.3g}' for k, v in different.items())} times what is allowed"
                                  f" [{reply['kernel']}]")
        if not self.options.quiet:
            print(self.line(name, row, times, different), flush=True)

    @staticmethod
    def line(name, row, times, different):
        share = f"{100 * row['share_of_copy']:6.1f} %" if "share_of_copy" in row else " " * 8
        beside = "".join(f"  {us / row['us']:.2f}x {peer}" for peer, us in times.items())
        check = "  DIFFERS" if different and max(different.values()) > 1 else ""
        return f"{row['us']:10.2f} us {share}  {name}{beside}{check}  [{row['kernel']}]"

    def write(self):
        """Whatever there is: a sweep that is stopped leaves its rows."""
        folder, seed = self.options.rows, self.options.seed
        if folder is None or not self.ours:
            return
        folder.mkdir(parents=True, exist_ok=True)
        ours = {"gpu": self.head["gpu"], "date": time.strftime("%Y-%m-%d", time.gmtime()), "versions": self.head["versions"],
                "rows": self.ours, "wrong": self.wrong, "failed": self.failed}
        (folder / f"sinter_sweep_{seed}.json").write_text(json.dumps(ours, indent=1), encoding="utf-8")
        if self.peers:
            peers = {"gpu": self.head["gpu"], "versions": self.torch_version, "rows": self.peers}
            (folder / f"peer_sweep_{seed}.json").write_text(json.dumps(peers, indent=1), encoding="utf-8")

    def print_report(self):
        rows = [dict(row) for row in self.ours]
        sweep_report.collect.join(rows, [dict(row) for row in self.peers])
        print("\n" + sweep_report.report(rows, self.options.worst))
        print(f"\n{self.compared} of {len(self.ours)} results compared with PyTorch's, {len(self.wrong)} differ; the farthest,"
              " as a share of what is allowed: " + ", ".join(f"{k} {v:.2f}" for k, v in self.worst.items()))
        for title, lines in (("differ", self.wrong), ("failed", self.failed)):
            print("\n".join([f"\n{title}:", *("  " + line for line in lines[:40])]) if lines else "", end="")
            if len(lines) > 40:
                print(f"\n  ... and {len(lines) - 40} more", end="")
        print()


def rounded(value):
    return float(f"{value:.5g}")


def to_compile(options, cases):
    """The first --compiled cases of each family."""
    taken, chosen = {}, []
    for index, case in enumerate(cases):
        taken[case["family"]] = taken.get(case["family"], 0) + 1
        if taken[case["family"]] <= options.compiled:
            chosen.append({**case, "index": index})
    return chosen


def measure_all(options, sinter, torch, sweep, deadline, compiled):
    device = "cpu" if options.cpu else "cuda"
    seconds = {"Sinter": 0.0, "PyTorch and comparing": 0.0}
    with exchange_folder() as folder:
        for index, case in enumerate(sinter.head["cases"]):
            began = time.monotonic()
            if began > deadline:
                print(f"\nthe time is over after {index} of {len(sinter.head['cases'])} cases")
                break
            reply = sinter.measure(index, folder if torch and not options.no_check else "-")
            done = time.monotonic()
            times, different, failed = {}, {}, []
            if torch and "error" not in reply:
                times, different, failed = torch.measure(case, device, reply.get("outputs", []), index in compiled)
                torch.release(device, collect=index % 10 == 9 or bool(failed))
            sweep.add(case, reply, times, different, failed)
            for output in reply.get("outputs", []):
                os.remove(output["file"])
            if index % 20 == 19:
                sweep.write()
            seconds["Sinter"] += done - began
            seconds["PyTorch and comparing"] += time.monotonic() - done
    return seconds


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=150, help="of each family (150)")
    parser.add_argument("--families", default="prelu,permute,batch_norm,matvec", help="with commas between them (all)")
    parser.add_argument("--compiled", type=int, default=None, help="how many cases of each family PyTorch compiles too (all)")
    parser.add_argument("--budget-seconds", type=float, default=600, help="then stop, with what there is (600)")
    parser.add_argument("--rows", type=pathlib.Path, help="write the rows into this folder")
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst to name (10)")
    parser.add_argument("--quiet", action="store_true", help="no line for each case")
    parser.add_argument("--workers", type=int, default=max(1, min(12, (os.cpu_count() or 2) - 2)),
                        help="processes that compile ahead (%(default)s)")
    parser.add_argument("--smallest-mib", type=float, default=1)
    parser.add_argument("--largest-mib", type=float, default=512)
    parser.add_argument("--no-torch", action="store_true", help="Sinter alone")
    parser.add_argument("--no-check", action="store_true", help="compare no results")
    parser.add_argument("--cpu", action="store_true", help="on the CPU: tries the program, its times say nothing")
    options = parser.parse_args()
    if options.compiled is None:
        options.compiled = 0 if options.cpu else options.cases
    return options


def main():
    options = read_options()
    began = time.monotonic()
    command = [str(options.build / "benchmarks" / "sweep"), "--seed", str(options.seed), "--cases", str(options.cases),
               "--families", options.families, "--smallest-mib", str(options.smallest_mib), "--largest-mib",
               str(options.largest_mib)]
    sinter = Sinter(command + (["--cpu"] if options.cpu else []))
    torch = load_torch(options)
    sweep = Sweep(options, sinter.head, {"torch": torch.torch.__version__} if torch else {})
    compiled = set()
    chosen = to_compile(options, sinter.head["cases"]) if torch else []
    if chosen:
        with tempfile.TemporaryDirectory(prefix="sinter-compile-") as folder:
            compilers = Compilers(options, chosen, folder)
            compiled, failed = compilers.finish(began + COMPILE_SHARE * options.budget_seconds)
        print(f"PyTorch compiled {len(compiled)} of {len(chosen)} cases in {time.monotonic() - began:.0f} s"
              f" in {len(compilers.processes)} processes; {len(failed)} failed")
        sweep.failed += ["compiling ahead: " + line for line in failed]
    compile_seconds = time.monotonic() - began
    seconds = measure_all(options, sinter, torch, sweep, began + options.budget_seconds, compiled)
    sinter.close()
    sweep.write()
    sweep.print_report()
    if compiled:
        print("torch.compile found {} graphs in its cache and compiled {} anew".format(*torch.cache_hits()))
    print(f"{time.monotonic() - began:.0f} s: {compile_seconds:.0f} s to start and compile ahead, "
          + ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()))
    sys.exit(1 if sweep.wrong or sweep.failed else 0)


if __name__ == "__main__":
    main()
