"""PyTorch on the four kernel families, eager and compiled, forward and backward, as captured graphs; and on first layers
of convolutional networks and linear layers, eager.

The cases carry the names of prelu_, permute_, batch_norm_, matvec_, conv2d_ and linear_benchmark.
"""
import gc

import torch
import torch._functorch.config
import torch.nn.functional as F
from peer_bench import DTYPES, Peers, time_backward_cold, time_cold

torch._functorch.config.donated_buffer = False  # backward alone is replayed, so that what it reads must stay
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILED = ("float32", "float16")  # bfloat16 compiles to the same kernels as float16


def text(values):
    return "(" + ",".join(map(str, values)) + ")"


def normal(shape, dtype, layout=None):
    if dtype == "uint8":
        return torch.randint(0, 255, shape, device="cuda", dtype=torch.uint8)
    x = torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, dtype))
    return x.contiguous(memory_format=FORMATS[layout]) if layout and len(shape) == 4 else x


def modes(peers, dtype, function, compiled=True):
    """The function as users may run it, with its peer's name."""
    yield "torch_eager", function
    if compiled and dtype in COMPILED and not peers.quick:
        torch._dynamo.reset()
        yield "torch_compile", torch.compile(function, dynamic=False)
    gc.collect()
    torch.cuda.empty_cache()


def forward_and_backward(peers, suite, label, dtype, layout, function, inputs, compiled=True):
    """Rows "forward", "backward" and "forward+backward" of `function(*inputs)`, and of the gradients of all inputs."""
    wanted = [x for x in inputs if x.requires_grad]

    def one_way(f):
        with torch.no_grad():
            return {"us": time_cold(lambda: f(*inputs))}

    def both(f, dy):
        return {"us": time_cold(lambda: torch.autograd.grad(f(*inputs), wanted, dy))}

    def back(f, dy):
        return {"us": time_backward_cold(f, inputs, wanted, lambda: dy)}

    for peer, f in modes(peers, dtype, function, compiled):
        peers.measure(suite, f"forward {label}", dtype, layout, peer, lambda f=f: one_way(f))
        dy = torch.randn_like(inputs[0])
        peers.measure(suite, f"backward {label}", dtype, layout, peer, lambda f=f: back(f, dy))
        peers.measure(suite, f"forward+backward {label}", dtype, layout, peer, lambda f=f: both(f, dy))


def copies(peers):
    for mib in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        if peers.quick and mib > 256:
            break

        def run(mib=mib):
            x = torch.randint(0, 255, (mib << 20,), device="cuda", dtype=torch.uint8)
            y = torch.empty_like(x)
            return {"us": time_cold(lambda: y.copy_(x))}

        peers.measure("copy", f"copy {mib} MiB", "bytes", "", "torch_eager", run)


def prelu(peers):
    shapes = [(96, 64, 112, 112), (96, 64, 56, 56), (96, 128, 28, 28), (96, 256, 14, 14), (96, 512, 7, 7)]
    for shape in shapes[1:3] if peers.quick else shapes:
        for dtype in DTYPES:
            for layout in FORMATS:
                x = normal(shape, dtype, layout).requires_grad_()
                alpha = torch.full((shape[1],), 0.25, device="cuda", dtype=DTYPES[dtype], requires_grad=True)
                forward_and_backward(peers, "prelu", text(shape), dtype, layout, F.prelu, [x, alpha])


def permute(peers):
    to_nhwc, to_nchw = (0, 2, 3, 1), (0, 3, 1, 2)
    names = {to_nhwc: "NCHW to NHWC", to_nchw: "NHWC to NCHW"}
    cases = []
    for dtype in ("float32", "float16"):
        for mib in (16, 32, 64, 128):
            rows = (mib << 20) // DTYPES[dtype].itemsize // (64 * 512)
            cases += [(dtype, (64, rows, 512), axes) for axes in ((1, 0, 2), (0, 2, 1))]
    cases += [
        ("float16", (128, 197, 12, 64), (0, 2, 1, 3)), ("float16", (128, 12, 197, 64), (0, 2, 1, 3)),
        ("float16", (256, 64, 56, 56), to_nhwc), ("float16", (256, 56, 56, 64), to_nchw),
        ("float32", (256, 64, 56, 56), to_nhwc), ("float16", (256, 512, 7, 7), to_nhwc),
        ("float16", (256, 7, 7, 512), to_nchw), ("float32", (256, 3, 224, 224), to_nhwc),
        ("float32", (256, 224, 224, 3), to_nchw), ("float16", (256, 3, 224, 224), to_nhwc),
        ("float16", (256, 224, 224, 3), to_nchw), ("uint8", (256, 224, 224, 3), to_nchw),
        ("float32", (64, 255, 257), (0, 2, 1)), ("float16", (64, 511, 257), (0, 2, 1)),
        ("uint8", (64, 511, 513), (0, 2, 1)), ("float64", (64, 255, 257), (0, 2, 1)),
        ("float32", (4097, 4099), (1, 0)), ("float16", (4097, 8191), (1, 0)), ("float32", (8192, 8192), (1, 0)),
        ("float16", (8192, 8192), (1, 0)), ("float16", (8, 31, 17, 129), (3, 1, 0, 2)),
        ("float16", (64, 31, 17, 513), (3, 1, 0, 2)), ("float16", (64, 32, 16, 512), (3, 1, 0, 2)),
        ("float32", (32, 48, 64, 96), (3, 2, 1, 0)), ("float32", (65536, 16, 16), (0, 2, 1)),
        ("float32", (1 << 20, 3, 5), (0, 2, 1)), ("float32", (1 << 20, 4), (1, 0)), ("float32", (8, 1 << 20), (1, 0)),
        ("float16", (16, 1 << 20), (1, 0)), ("float32", (512, 1024, 33), (1, 0, 2)),
        ("float16", (512, 1024, 33), (1, 0, 2)),
    ]
    for dtype, shape, axes in cases:
        x = normal(shape, dtype)
        for peer, f in modes(peers, dtype, lambda x, axes=axes: x.permute(axes).contiguous()):
            run = lambda f=f, x=x: {"us": time_cold(lambda: f(x))}
            peers.measure("permute", f"{text(shape)} -> {text(axes)}", dtype, names.get(axes, ""), peer, run)


def batch_norm_cases():
    """Kind, shape, dtype, layout and whether it has a target, as in batch_norm_benchmark."""
    for dtype in ("float32", "float16"):
        yield "BN+ReLU", (16, 32, 112, 112), dtype, "NCHW", True
        for kind in ("BN+ReLU", "BN+Add+ReLU"):
            yield kind, (256, 256, 56, 56), dtype, "NCHW", True
            yield kind, (256, 256, 56, 56), dtype, "NHWC", True
            yield kind, (256, 1024, 14, 14), dtype, "NHWC", True
    yield "BN+BN+Add+ReLU", (256, 256, 56, 56), "float16", "NHWC", False
    for shape in ((256, 64, 112, 112), (256, 64, 56, 56), (256, 128, 28, 28), (256, 512, 7, 7)):
        yield "BN+ReLU", shape, "float16", "NHWC", False
    yield "BN+Add+ReLU", (256, 2048, 7, 7), "float16", "NHWC", False
    for shape in ((256, 1024, 14, 14), (256, 512, 7, 7)):
        yield "BN+ReLU", shape, "float16", "NCHW", False
    yield "BN+ReLU", (256, 64, 56, 56), "bfloat16", "NHWC", False
    for kind in ("BN+PReLU", "BN"):
        yield kind, (128, 64, 112, 112), "float16", "NHWC", False
    for shape in ((512, 64, 32, 32), (512, 128, 16, 16), (512, 256, 8, 8), (512, 512, 4, 4)):
        for kind in ("BN+ReLU", "BN+Add+ReLU"):
            yield kind, shape, "float16", "NHWC", False


def batch_norm(peers):
    for kind, shape, dtype, layout, has_target in batch_norm_cases():
        inputs, function = batch_norm_call(kind, shape, dtype, layout)
        forward_and_backward(peers, "batch_norm", f"{kind} {text(shape)}", dtype, layout, function, inputs, has_target)


def batch_norm_call(kind, shape, dtype, layout):
    first, second = (torch.nn.BatchNorm2d(shape[1], device="cuda") for _ in range(2))
    x = normal(shape, dtype, layout).requires_grad_()
    inputs = [x, first.weight, first.bias]
    if kind == "BN+PReLU":
        inputs.append(torch.full((shape[1],), 0.25, device="cuda", dtype=DTYPES[dtype], requires_grad=True))
    if "Add" in kind:
        inputs.append(normal(shape, dtype, layout).requires_grad_())
    if kind == "BN+BN+Add+ReLU":
        inputs += [second.weight, second.bias]
    return inputs, batch_norm_function(kind, *((norm.running_mean, norm.running_var) for norm in (first, second)))


def batch_norm_function(kind, first, second):
    """A function of x, weight and bias, then the slopes or the addend, then the addend's weight and bias, as far as `kind`
    has them. `first` and `second` are running means and variances, which it moves."""

    def norm(x, weight, bias, running):
        return F.batch_norm(x, *running, weight, bias, True, 0.1, 1e-5)

    return {"BN": lambda x, w, b: norm(x, w, b, first),
            "BN+ReLU": lambda x, w, b: F.relu(norm(x, w, b, first)),
            "BN+PReLU": lambda x, w, b, alpha: F.prelu(norm(x, w, b, first), alpha),
            "BN+Add+ReLU": lambda x, w, b, z: F.relu(norm(x, w, b, first) + z),
            "BN+BN+Add+ReLU": lambda x, w, b, z, w2, b2: F.relu(norm(x, w, b, first) + norm(z, w2, b2, second))}[kind]


def matvec(peers):
    for n in (16, 128, 1024) if peers.quick else (16, 17, 32, 33, 64, 100, 128, 130, 256, 1024, 4096):
        for dtype in DTYPES:
            a = normal((16384, n), dtype)
            x, long = normal((n,), dtype), normal((16384,), dtype)
            calls = [("", "torch_mv", lambda: torch.mv(a, x)), ("", "torch_mm", lambda: torch.mm(a, x[:, None])),
                     (" transposed", "torch_mv", lambda: torch.mv(a.T, long)),
                     (" transposed", "torch_mm", lambda: torch.mm(a.T, long[:, None]))]
            for count in (2, 4, 8):
                vectors = normal((count, n), dtype)
                calls.append((f" by {count} vectors", "torch_mm", lambda vectors=vectors: torch.mm(vectors, a.T)))
            for ending, peer, call in calls:
                run = lambda call=call: {"us": time_cold(call)}
                peers.measure("matvec", f"(16384,{n}){ending}", dtype, "", peer, run)


FIRST_LAYERS = (("resnet50 stem", 256, 3, 224, 64, 7, 2, 3), ("3x3 stem, stride 2", 256, 3, 224, 64, 3, 2, 1),
                ("3x3 stem", 128, 3, 112, 64, 3, 1, 1), ("cifar stem", 512, 3, 32, 64, 3, 1, 1),
                ("patches", 64, 3, 224, 96, 4, 4, 0), ("digits", 512, 1, 28, 32, 3, 1, 1))


def conv2d(peers):
    for name, n, c, size, o, kernel, stride, padding in FIRST_LAYERS:
        if peers.quick and n > 128:
            continue
        for dtype in ("float16", "bfloat16", "tf32"):
            torch.backends.cudnn.allow_tf32 = dtype == "tf32"
            element = "float32" if dtype == "tf32" else dtype
            x, weight = normal((n, c, size, size), element, "NHWC"), normal((o, c, kernel, kernel), element, "NHWC")
            forward = lambda: F.conv2d(x, weight, stride=stride, padding=padding)
            dy = torch.randn_like(forward())

            def gradient(mask):
                return torch.ops.aten.convolution_backward(dy, x, weight, None, (stride, stride), (padding, padding), (1, 1),
                                                           False, (0, 0), 1, mask)

            calls = (("forward", forward), ("grad_input", lambda: gradient((True, False, False))),
                     ("grad_weight", lambda: gradient((False, True, False))))
            for what, call in calls:
                run = lambda call=call: {"us": time_cold(call)}
                peers.measure("conv2d", f"{what} {name} ({n},{c},{size},{size})", dtype, "NHWC", "torch_eager", run)
    torch.backends.cudnn.allow_tf32 = True


def linear(peers):
    for dtype in DTYPES:
        for rows, n, out in ((1, 512, 10), (1, 2048, 1000), (2, 2048, 1000), (4, 512, 1000), (8, 2048, 1000), (1, 4096, 4096),
                             (1000, 512, 1), (1000, 2048, 2), (16384, 64, 1), (256, 2048, 1000)):
            x, weight, bias = normal((rows, n), dtype), normal((out, n), dtype), normal((out,), dtype)
            run = lambda: {"us": time_cold(lambda: F.linear(x, weight, bias))}
            peers.measure("linear", f"forward ({rows},{n}) to {out}", dtype, "", "torch_eager", run)
        for rows, n, out in ((16, 512, 1000), (256, 512, 1000), (256, 2048, 1000), (512, 512, 10), (128, 25088, 512),
                             (4096, 64, 64), (4096, 1024, 1024), (12544, 512, 512), (32768, 512, 512)):
            if peers.quick and rows > 1000:
                continue
            dy, x = normal((rows, out), dtype), normal((rows, n), dtype)
            run = lambda: {"us": time_cold(lambda: (torch.mm(dy.T, x), dy.sum(0)))}
            peers.measure("linear", f"grad_weight_bias ({rows},{n}) to {out}", dtype, "", "torch_eager", run)


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__)
    for suite, family in (("copy", copies), ("prelu", prelu), ("permute", permute), ("batch_norm", batch_norm),
                          ("matvec", matvec), ("conv2d", conv2d), ("linear", linear)):
        if peers.wants_suite(suite):
            family(peers)
    peers.end()


if __name__ == "__main__":
    main()
