"""PyTorch on the cases of a sweep: its times, eager and compiled, and the results that Sinter's are compared with.

sweep.py uses this module, and runs it as a program to compile cases ahead in several processes: torch_sweep.py LIST
--part K --parts N takes every Nth case of the list, and prints the index of each that is then in inductor's cache.
"""
import argparse
import gc
import json
import math
import os
import sys
import time

# Both before torch is imported, and the same in all processes: they share what they compile.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
import peer_bench  # noqa: E402
import torch  # noqa: E402
import torch._dynamo.utils  # noqa: E402
import torch._functorch.config  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch_kernels import batch_norm_function  # noqa: E402  it also sets donated_buffer

# Which variant of a kernel is the fastest is found out where it is measured, not among processes that share a GPU.
if hasattr(torch._inductor.config, "autotune_local_cache"):
    torch._inductor.config.autotune_local_cache = False

PERIOD = 1_000_003
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
EPSILON = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def hashed(count, which, device):
    """The hash of sweep_call.cpp for elements 0 to count - 1 of tensor `which`, as int64."""
    mask = 0xFFFFFFFF
    h = (torch.arange(count, dtype=torch.int64, device=device) * 0x9E3779B1 + which * 0x85EBCA77) & mask
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
    return h ^ (h >> 16)


def repeated(block, shape):
    count = math.prod(shape)
    return block.repeat(-(-count // len(block)))[:count].view(shape)


def numbers(shape, dtype, which, device):
    h = hashed(min(PERIOD, math.prod(shape)), which, device)
    return repeated((((h & 0xFF) * 2 - 255).to(torch.float32) / 128).to(dtype), shape)


def bits(shape, dtype, which, device):
    h = hashed(min(PERIOD, math.prod(shape)), which, device)
    if dtype.itemsize == 8:
        h = h | ((h ^ 0x5BD1E995) << 32)
    elif dtype.itemsize < 4:
        h &= (1 << 8 * dtype.itemsize) - 1
    return repeated(h.to(BITS[dtype.itemsize]), shape).view(dtype)


class Case:
    """A case's inputs, the functions that users may run on them, and what comes out.

    `functions` are the eager peers by name, the first of which is compiled too; `wanted` are the inputs whose gradients are
    measured, none for a forward case.
    """

    def __init__(self, description, device):
        self.description, self.device = description, device
        self.dtype = getattr(torch, description["dtype"])
        self.shape = description["shape"]
        self.nhwc = description["layout"] == "NHWC"
        self.backward = description["direction"] == "backward"
        self.inputs, self.names, self.wanted, self.dy = [], [], [], None
        getattr(self, "make_" + description["family"])()
        if self.backward:
            self.wanted = [x.requires_grad_() for x in self.inputs]

    # ---- what runs

    def images(self, which):
        """Logically (N, C, H, W), whatever the layout."""
        n, c, h, w = self.shape
        if self.nhwc:
            return numbers((n, h, w, c), self.dtype, which, self.device).permute(0, 3, 1, 2)
        return numbers((n, c, h, w), self.dtype, which, self.device)

    def add_input(self, name, tensor):
        self.names.append(name)
        self.inputs.append(tensor)

    def make_prelu(self):
        slopes = 1 if self.description["kind"] == "one slope" else self.shape[1]
        self.add_input("x", self.images(1))
        self.add_input("alpha", numbers((slopes,), self.dtype, 5, self.device))
        dy = self.images(2) if self.backward else None
        self.dy = lambda: dy
        self.functions = {"torch_eager": F.prelu}

    def make_batch_norm(self):
        kind, channels = self.description["kind"], self.shape[1]
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        parameter = lambda which, dtype=wide: numbers((channels,), dtype, which, self.device)
        self.add_input("x", self.images(1))
        self.add_input("weight", parameter(6))
        self.add_input("bias", parameter(7))
        if kind == "BN+PReLU":
            self.add_input("alpha", parameter(5, self.dtype))
        if "Add" in kind:
            self.add_input("addend", self.images(4))
        if kind == "BN+BN+Add+ReLU":
            self.add_input("addend_weight", parameter(8))
            self.add_input("addend_bias", parameter(9))
        running = [(torch.zeros(channels, dtype=wide, device=self.device), torch.ones(channels, dtype=wide, device=self.device))
                   for _ in range(2)]
        self.functions = {"torch_eager": batch_norm_function(kind, *running)}
        if self.backward:
            dy = self.images(2)
            dy2 = self.images(3) if self.description["two_gradients"] else None
            # As autograd does where a tensor has two users.
            self.dy = (lambda: dy) if dy2 is None else (lambda: dy + dy2)

    def make_permute(self):
        axes = self.description["axes"]
        self.add_input("x", bits(self.shape, self.dtype, 1, self.device))
        self.functions = {"torch_eager": lambda x: x.permute(axes).contiguous()}

    def make_matvec(self):
        *batch, m, n = self.shape
        kind, vectors = self.description["kind"], self.description["vectors"]
        length = n if kind in ("a x", "x aT") else m
        a = numbers(self.shape, self.dtype, 1, self.device)
        self.add_input("a", a)
        turn = (lambda a: a.mT) if "aT" in kind else (lambda a: a)
        if vectors == 1:
            self.add_input("x", numbers((*batch, length), self.dtype, 2, self.device))
            column = lambda a, x: torch.matmul(turn(a), x[..., None])[..., 0]
            self.functions = {"torch_mv": lambda a, x: torch.mv(turn(a), x)} if not batch else {}
            self.functions["torch_mm"] = column
        elif kind.endswith("x"):
            self.add_input("x", numbers((*batch, length, vectors), self.dtype, 2, self.device))
            self.functions = {"torch_eager": lambda a, x: torch.matmul(turn(a), x)}
        else:
            self.add_input("x", numbers((*batch, vectors, length), self.dtype, 2, self.device))
            self.functions = {"torch_eager": lambda a, x: torch.matmul(x, turn(a))}

    def run(self, function):
        """Once, as it is measured."""
        if self.backward:
            return torch.autograd.grad(function(*self.inputs), self.wanted, self.dy())
        with torch.no_grad():
            return function(*self.inputs)

    def time(self, function):
        """Median microseconds, measured as peer_bench measures; on the CPU, where nothing is claimed, of one run."""
        if self.device == "cpu":
            start = time.perf_counter()
            self.run(function)
            return (time.perf_counter() - start) * 1e6
        if self.backward:
            return peer_bench.time_backward_cold(function, self.inputs, self.wanted, self.dy)
        with torch.no_grad():
            return peer_bench.time_cold(lambda: function(*self.inputs))

    def compiled(self):
        torch._dynamo.reset()
        return torch.compile(next(iter(self.functions.values())), dynamic=False)

    # ---- what comes out

    def stored(self, tensor):
        """Its elements in the order in which Sinter stores them."""
        return (tensor.permute(0, 2, 3, 1) if self.nhwc and tensor.dim() == 4 else tensor).reshape(-1)

    def references(self, mask):
        """Name -> the output in float64. `mask` says which elements Sinter's activation passed on, in the order in which
        they are stored: gradients follow it, since an argument that is all but zero may be rounded either way."""
        wide = [x.detach().double().requires_grad_(self.backward) for x in self.inputs]
        if self.description["family"] == "batch_norm":
            self.normed, y = self.activated(wide, mask)
        else:
            y = next(iter(self.functions.values()))(*wide)
        if not self.backward:
            return {"y": y}
        dy = self.dy().double()
        if self.description["two_gradients"]:  # not rounded in between
            dy = self.images(2).double() + self.images(3).double()
        grads = torch.autograd.grad(y, wide, dy)
        return {"d" + name: grad for name, grad in zip(self.names, grads)}

    def activated(self, wide, mask):
        kind, by_name = self.description["kind"], dict(zip(self.names, wide))
        norm = lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.0, 1e-5)
        z = norm(by_name["x"], by_name["weight"], by_name["bias"])
        if kind == "BN+BN+Add+ReLU":
            z = z + norm(by_name["addend"], by_name["addend_weight"], by_name["addend_bias"])
        elif kind == "BN+Add+ReLU":
            z = z + by_name["addend"]
        if kind == "BN":
            return z.detach(), z
        passed = self.unpacked(mask) if self.backward else z > 0
        low = by_name["alpha"].view(1, -1, 1, 1) * z if kind == "BN+PReLU" else torch.zeros_like(z)
        return z.detach(), torch.where(passed, z, low)

    def unpacked(self, mask):
        n, c, h, w = self.shape
        flat = ((mask[:, None] >> torch.arange(8, dtype=torch.uint8, device=self.device)) & 1).reshape(-1)[:n * c * h * w].bool()
        return flat.view(n, h, w, c).permute(0, 3, 1, 2) if self.nhwc else flat.view(n, c, h, w)

    def tolerance(self, name, dtype):
        """How far an element may be from its reference: (share of the reference, absolute)."""
        own = EPSILON[dtype]
        # In float64 the reference has rounding of its own, of sums that need not be in as good an order.
        compute = 256 * own if dtype == torch.float64 else EPSILON[torch.float32]
        family = self.description["family"]
        if family == "prelu" and name in ("y", "dx"):
            return own, 0.0  # one product
        if family == "matvec":
            terms = math.prod(self.shape) * (self.description["vectors"]) // max(1, self.output_elements)
            return own + 32 * compute, 128 * compute * math.sqrt(max(1, terms))
        if name in ("y", "dx", "daddend"):
            # Where two 16-bit gradients meet, their sum is written in 16 bits and read again.
            rounded = 4 * EPSILON[self.dtype] if self.description["two_gradients"] else 0.0
            return own + 8 * compute, 64 * compute + (rounded if name != "y" else 0.0)
        terms = math.prod(self.shape) / self.shape[1]
        if self.description["kind"] == "one slope":
            terms *= self.shape[1]
        rounded = EPSILON[self.dtype] if self.description["two_gradients"] else 0.0
        return own + 32 * compute, (256 * compute + 8 * rounded) * math.sqrt(terms)

    @torch.no_grad()
    def differences(self, outputs):
        """Name -> how many times as far as allowed the worst element is from PyTorch's; above 1 it is wrong."""
        loaded = {o["name"]: load(o, self.device) for o in outputs}
        if self.description["family"] == "permute":
            same = BITS[self.dtype.itemsize]
            y = next(iter(self.functions.values()))(self.inputs[0].view(same))
            return {"y": 0.0 if torch.equal(loaded["y"].view(same), y.reshape(-1)) else math.inf}
        mask = loaded.pop("mask", None)
        with torch.enable_grad():
            references = self.references(mask)
        found = {}
        for name, got in loaded.items():
            reference = self.stored(references.pop(name).detach())
            self.output_elements = reference.numel()
            found[name] = worst(got, reference, *self.tolerance(name, got.dtype))
        if mask is not None:  # for elements that are not all but zero
            sure = self.normed.abs() > 1e-5
            found["mask"] = math.inf if bool(((self.unpacked(mask) != (self.normed > 0)) & sure).any()) else 0.0
        for name in references:
            found[name] = math.inf  # Sinter gave none
        return found


def load(output, device):
    dtype = getattr(torch, output["dtype"])
    count = math.prod(output["shape"])
    if count == 0:
        return torch.empty(0, dtype=dtype, device=device)
    flat = torch.from_file(output["file"], shared=False, size=count, dtype=dtype)
    return flat.to(device) if device != "cpu" else flat.clone()


def worst(got, reference, relative, absolute):
    if got.numel() != reference.numel():
        return math.inf
    if got.numel() == 0:
        return 0.0
    allowed = reference.abs().mul_(relative).add_(absolute + torch.finfo(got.dtype).tiny)
    # What is beyond the dtype's range may have become infinite.
    beyond = (reference.abs() > 0.999 * torch.finfo(got.dtype).max) & got.isinf()
    ratio = (got.double() - reference).abs_().div_(allowed)
    ratio[beyond] = 0.0
    largest = float(ratio.max())
    return math.inf if math.isnan(largest) else largest


def release(device, collect=True):
    """Gives memory back to the GPU. What lies in cycles is found only now and then: looking costs time."""
    if collect:
        gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def measure(description, device, outputs, compile_too):
    """(peer -> microseconds, output -> difference, what failed) of a case; `outputs` as Sinter's program names them."""
    times, different, failed = {}, {}, []
    try:
        case = Case(description, device)
        if outputs:
            different = case.differences(outputs)
            case.normed = None
            release(device, collect=False)
    except Exception as error:
        return times, different, [f"no comparison: {first_line(error)}"]
    for peer, function in case.functions.items():
        try:
            times[peer] = case.time(function)
        except Exception as error:  # a peer that cannot do a case has no time there
            failed.append(f"{peer}: {first_line(error)}")
    if compile_too:
        try:
            function = case.compiled()
            if device == "cpu":
                case.run(function)
            times["torch_compile"] = case.time(function)
        except Exception as error:
            failed.append(f"torch_compile: {first_line(error)}")
    return times, different, failed


def cache_hits():
    """How many graphs of compiled functions this process found in the cache, and how many it had to compile."""
    counts = torch._dynamo.utils.counters["inductor"]
    return counts["fxgraph_cache_hit"], counts["fxgraph_cache_miss"]


def compile_ahead(cases, part, parts, device):
    """Runs every case of this part compiled, once: then it is in the cache on disk."""
    for index in range(part, len(cases), parts):
        try:
            case = Case(cases[index], device)
            case.run(case.compiled())
            if device != "cpu":
                torch.cuda.synchronize()
            print(f"compiled {cases[index]['index']}", flush=True)
        except Exception as error:
            print(f"failed {cases[index]['index']} {first_line(error)}", flush=True)
        case = None
        release(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", help="a JSON file with the cases to compile, each with its index")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    with open(options.list, encoding="utf-8") as file:
        cases = json.load(file)
    compile_ahead(cases, options.part, options.parts, options.device)


if __name__ == "__main__":
    sys.exit(main())
