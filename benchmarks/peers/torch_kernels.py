"""PyTorch on the four kernel families, eager and compiled, forward and backward, as captured graphs.

The cases carry the names of prelu_, permute_, batch_norm_ and matvec_benchmark.
"""
import gc

import torch
import torch._functorch.config
import torch.nn.functional as F
from peer_bench import DTYPES, Peers, time_cold

torch._functorch.config.donated_buffer = False  # backward alone is replayed, so that what it reads must stay
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
COMPILED = ("float32", "float16")  # bfloat16 compiles to the same kernels as float16


def text(values):
    return "(" + ",".join(map(str, values)) + ")"


def normal(shape, dtype, layout=None):
    x = torch.randn(shape, device="cuda", dtype=torch.float32).to(DTYPES[dtype])
    return x.contiguous(memory_format=FORMATS[layout]) if layout and len(shape) == 4 else x


def modes(peers, dtype, function):
    """The function as users may run it, with its peer's name."""
    yield "torch_eager", function
    if dtype in COMPILED and not peers.quick:
        torch._dynamo.reset()
        yield "torch_compile", torch.compile(function, dynamic=False)
    gc.collect()
    torch.cuda.empty_cache()


def forward_and_backward(peers, suite, label, dtype, layout, function, inputs):
    """Rows "forward", "backward" and "forward+backward" of `function(*inputs)`, and of the gradients of all inputs."""
    wanted = [x for x in inputs if x.requires_grad]
    stream = torch.cuda.Stream()

    def one_way(f):
        with torch.no_grad():
            return {"us": time_cold(lambda: f(*inputs))}

    def both(f, dy):
        return {"us": time_cold(lambda: torch.autograd.grad(f(*inputs), wanted, dy))}

    def back(f, dy):
        # A gradient runs on the stream of its forward op: that must be the one which captures.
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            y = f(*inputs)
        return {"us": time_cold(lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True), stream=stream)}

    for peer, f in modes(peers, dtype, function):
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
    cases = []
    for mib in (16,) if peers.quick else (16, 32, 64, 128):
        for dtype in DTYPES:
            rows = (mib << 20) // DTYPES[dtype].itemsize // (64 * 512)
            cases += [(dtype, (64, rows, 512), axes) for axes in ((1, 0, 2), (0, 2, 1))]
    for dtype in DTYPES:
        cases += [(dtype, (128, 197, 12, 64), (0, 2, 1, 3)), (dtype, (256, 64, 56, 56), (0, 2, 3, 1)),
                  (dtype, (256, 56, 56, 64), (0, 3, 1, 2)), (dtype, (64, 255, 257), (0, 2, 1)),
                  (dtype, (8, 31, 17, 129), (3, 1, 0, 2)), (dtype, (256, 3, 224, 224), (0, 2, 3, 1))]
    for dtype, shape, axes in cases:
        x = normal(shape, dtype)
        for peer, f in modes(peers, dtype, lambda x, axes=axes: x.permute(axes).contiguous()):
            run = lambda f=f, x=x: {"us": time_cold(lambda: f(x))}
            peers.measure("permute", f"{text(shape)} by {text(axes)}", dtype, "", peer, run)


def batch_norm(peers):
    shapes = [(16, 32, 112, 112), (256, 256, 56, 56), (256, 1024, 14, 14)]
    for shape in shapes[:1] if peers.quick else shapes:
        for dtype in DTYPES:
            for layout in FORMATS:
                for added in (False, True):
                    norm = torch.nn.BatchNorm2d(shape[1], device="cuda")

                    def function(x, scale, shift, z=None, norm=norm):
                        y = F.batch_norm(x, norm.running_mean, norm.running_var, scale, shift, True, 0.1, 1e-5)
                        return F.relu(y if z is None else y + z)

                    inputs = [normal(shape, dtype, layout).requires_grad_(), norm.weight, norm.bias]
                    if added:
                        inputs.append(normal(shape, dtype, layout).requires_grad_())
                    label = ("BN+Add+ReLU " if added else "BN+ReLU ") + text(shape)
                    forward_and_backward(peers, "batch_norm", label, dtype, layout, function, inputs)


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


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__)
    for family in (copies, prelu, permute, batch_norm, matvec):
        family(peers)
    peers.finish()


if __name__ == "__main__":
    main()
