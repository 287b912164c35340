"""What the PyTorch peers share: the measuring method of common/gpu_bench.h, rows, and the command line.

A row is {"suite", "case", "dtype", "layout", "peer"} with one of "us", "img_s" and "host_us"; collect.py joins it
with Sinter's row of the same suite, case, dtype and layout.
"""
import argparse
import datetime
import json
import signal
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("skipped: python3 has no torch")

FLUSH_BYTES = 256 << 20
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Graph:
    """A captured call. It runs three times before, on the stream that captures."""

    def __init__(self, call, stream=None):
        stream = stream or torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.kept = call()  # the replay writes there
        torch.cuda.synchronize()


def time_cold(call, repeats=30, stream=None):
    """Median microseconds of one captured call replayed, with 256 MB written before each replay."""
    flush = torch.empty(FLUSH_BYTES // 4, device="cuda", dtype=torch.int32)
    graph = Graph(call, stream)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(-2, repeats):
        flush.zero_()
        start.record()
        graph.graph.replay()
        stop.record()
        stop.synchronize()
        if i >= 0:
            times.append(start.elapsed_time(stop) * 1e3)
    return statistics.median(times)


def time_backward_cold(function, inputs, wanted, dy):
    """time_cold of the gradients of `wanted` alone; `dy` gives that of the result, as part of what is timed."""
    # A gradient runs on the stream of its forward op: that must be the one which captures.
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = function(*inputs)
    return time_cold(lambda: torch.autograd.grad(y, wanted, dy(), retain_graph=True), stream=stream)


def time_on_host(call, calls):
    """The same as time_stream on the CPU, to try a program."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) * 1e6 / calls


def time_stream(call, calls, repeats=5):
    """Microseconds from one call to the next, gaps included: median of `repeats` runs after one that warms up."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for i in range(-1, repeats):
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        if i >= 0:
            times.append(start.elapsed_time(stop) * 1e3 / calls)
    return statistics.median(times)


def host_us_per_call(call, calls=200, repeats=15):
    """Microseconds that the host spends in one call: median of `repeats` runs with the stream empty at the start."""
    times = []
    for i in range(-3, repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        elapsed = time.perf_counter() - start
        if i >= 0:
            times.append(elapsed * 1e6 / calls)
    torch.cuda.synchronize()
    return statistics.median(times)


class TimeIsOver(BaseException):
    """No Exception, so that nothing between the alarm and `measure` takes it for an error of its own."""


def ring(*_):
    raise TimeIsOver


class Peers:
    """Rows of one program. Cases that fail are named, and leave the others alone."""

    def __init__(self, description, **extra):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--json", help="write the rows to this file")
        parser.add_argument("--filter", default="", 
                            help='only rows whose "suite case dtype layout" contains this, or one of several with | between')
        parser.add_argument("--quick", action="store_true", help="fewer cases, and no torch.compile")
        parser.add_argument("--suites", nargs="+", help="only these")
        parser.add_argument("--seconds", type=float, default=0, help="break off after so many (0: no limit)")
        for name, options in extra.items():
            parser.add_argument(name if name == "root" else "--" + name, **options)
        self.options = parser.parse_args()
        self.deadline = time.monotonic() + self.options.seconds if self.options.seconds else float("inf")
        self.left_out = 0
        if not getattr(self.options, "cpu", False) and not torch.cuda.is_available():
            sys.exit("skipped: this torch sees no CUDA device")
        self.rows = []

    @property
    def quick(self):
        return self.options.quick

    def left(self):
        """Seconds before it is broken off."""
        return self.deadline - time.monotonic()

    def wants_suite(self, suite):
        return not self.options.suites or suite in self.options.suites

    def wants(self, suite, case, dtype, layout):
        row = f"{suite} {case} {dtype} {layout}"
        return self.wants_suite(suite) and any(text in row for text in self.options.filter.split("|"))

    def measure(self, suite, case, dtype, layout, peer, run):
        """`run` gives a dict with the figure and whatever belongs to it; it is not run if --filter leaves the row out, and
        broken off after --seconds."""
        if not self.wants(suite, case, dtype, layout):
            return
        name, left = f"{suite} {case} {dtype} {layout} {peer}", self.left()
        if left <= 0:
            self.left_out += 1
            return
        try:
            if left < float("inf"):
                signal.signal(signal.SIGALRM, ring)
                signal.setitimer(signal.ITIMER_REAL, left, 5)  # again, if it is swallowed
            row = dict(suite=suite, case=case, dtype=dtype, layout=layout, peer=peer, **run())
        except TimeIsOver:
            print(f"{name} was broken off", flush=True)
            return
        except Exception as error:  # a peer that cannot do a case has no row there
            print(f"{name} failed: {(str(error).strip() or repr(error)).splitlines()[0]}"[:200], flush=True)
            return
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.rows.append(row)
        self.finish()
        figures = "  ".join(f"{k} {v:.6g}" for k, v in row.items() if isinstance(v, (int, float)))
        print(f"{suite:14} {case:36} {dtype:9} {layout:4} {peer:20} {figures}", flush=True)

    def finish(self):
        """Writes the rows, which `measure` does too, so that a run that is cut short leaves what it has."""
        if self.options.json:
            on_gpu = torch.cuda.is_available()
            versions = {"torch": torch.__version__, "torch_cudnn": str(torch.backends.cudnn.version())}
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump({"gpu": torch.cuda.get_device_name(0) if on_gpu else "none", "date": today(), "versions": versions,
                           "rows": self.rows}, file, indent=1)

    def end(self):
        self.finish()
        if self.left_out:
            print(f"{self.left_out} rows were not begun within {self.options.seconds:g} s")


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
