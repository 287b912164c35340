"""What the peers share that run whole networks: modes of torch.compile, and processes that compile ahead.

Compiling takes up to a minute a case, one after the other. With --ahead N, N processes first run each compiled case once, for
at most half of --seconds: then it is in inductor's cache on disk, and measuring it takes seconds. Which variant of a kernel
is the fastest is found out again where it is measured, not among processes that share a GPU. Mode max-autotune may take minutes
for one case: with --seconds only --modes brings it.
"""
import gc
import os
import subprocess
import sys
import time

import torch
import torch._inductor.config
from peer_bench import Peers, time_on_host, time_stream

if hasattr(torch._inductor.config, "autotune_local_cache"):
    torch._inductor.config.autotune_local_cache = False

MODES = {"torch_eager": None, "torch_compile": "default", "torch_compile_graphs": "reduce-overhead",
         "torch_max_autotune": "max-autotune"}
AHEAD = {"train_step": ("torch_compile", "torch_compile_graphs"), "infer": ("torch_compile",)}  # there graphs are captured of it
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def compiled(net, mode):
    return net if mode is None else torch.compile(net, mode=mode, dynamic=False)


def is_ahead(key):
    return key[4] in AHEAD[key[0]]


class NetworkPeers(Peers):
    def __init__(self, description, modes):
        super().__init__(
            description,
            modes={"nargs": "+", "choices": modes, "help": "only these"},
            ahead={"type": int, "default": 0, "metavar": "N", "help": "so many processes compile first"},
            part={"type": int, "help": "be one of these"},
            cpu={"action": "store_true", "help": "on the CPU, tiny: tries the program, its times say nothing"})
        if self.options.modes is None:
            self.options.modes = [mode for mode in modes if mode != "torch_max_autotune" or not self.options.seconds]
        self.device = "cpu" if self.options.cpu else "cuda"
        self.cases = []
        self.kept, self.kept_model = (), None  # the case whose compiled model is kept for the next, and the model
        torch.backends.cudnn.benchmark = True

    def add(self, suite, case, dtype, layout, peer, run):
        """`run(True)` runs the case once, so that it is compiled; `run(False)` gives its figures."""
        is_slow = self.quick and MODES.get(peer) is not None
        if peer in self.options.modes and not is_slow and self.wants(suite, case["case"], dtype, layout):
            self.cases.append(((suite, case["case"], dtype, layout, peer), run))

    def sized(self, case):
        """The case, or a tiny one of the same name for --cpu."""
        if not self.options.cpu:
            return case
        return {**case, "batch": 2, "size": case["size"] if case["task"] == "faces" else 32, "classes": min(case["classes"], 100)}

    def time(self, call, calls):
        return time_on_host(call, 1) if self.options.cpu else time_stream(call, calls)

    def synchronize(self):
        if not self.options.cpu:
            torch.cuda.synchronize()

    def keep(self, key, model):
        self.kept, self.kept_model = key, model

    def release(self):
        self.keep((), None)
        torch._dynamo.reset()
        gc.collect()
        if not self.options.cpu:
            torch.cuda.empty_cache()

    def compile_part(self):
        for key, run in [case for case in self.cases if is_ahead(case[0])][self.options.part::self.options.ahead]:
            self.release()
            try:
                run(True)
                self.synchronize()
            except Exception as error:
                print(f"not ahead: {' '.join(key)}: {str(error).strip().splitlines()[:1]}"[:200], flush=True)

    def compile_ahead(self):
        threads = max(1, (os.cpu_count() or 1) // self.options.ahead)
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        began = time.monotonic()
        processes = [subprocess.Popen([sys.executable, *sys.argv, "--part", str(part)], env=environment)
                     for part in range(self.options.ahead)]
        until = began + (self.options.seconds or 1200) / 2
        for process in processes:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        print(f"compiled ahead in {time.monotonic() - began:.0f} s", flush=True)

    def measure_all(self):
        if self.options.part is not None:
            self.compile_part()
            return
        if self.options.ahead and not self.quick and any(is_ahead(key) for key, _ in self.cases):
            self.compile_ahead()
        for key, run in self.cases:
            if key != (*self.kept, "torch_compile_graphs") and self.left() > 0:  # it takes a quarter of a second
                self.release()
            self.measure(*key, lambda: run(False))
        self.end()
