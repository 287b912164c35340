"""What PyTorch users write in place of each of Sinter's ops, eager, for the tables of ops_speed.py.

ops_speed.py uses this module. An op without an entry has no counterpart.
"""
import ast
import re
import time

import peer_bench
import torch
import torch.nn.functional as F

UNARY = {
    **{name: getattr(torch, name) for name in ("abs", "cos", "erf", "exp", "log", "neg", "reciprocal", "rsqrt", "sigmoid", "sin",
                                               "sqrt", "square", "tanh")},
    **{name: getattr(F, name) for name in ("relu", "gelu", "silu", "hardsigmoid", "hardswish")},
}
WITH_NUMBERS = {
    "softplus": lambda a: lambda x: F.softplus(x, beta=a["beta"]),
    "clip": lambda a: lambda x: torch.clamp(x, a["low"], a["high"]),
    "pow": lambda a: lambda x: torch.pow(x, a["exponent"]),
    "affine": lambda a: lambda x: x * a["scale"] + a["shift"] if a["shift"] else x * a["scale"],
}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
          "minimum": torch.minimum, "equal": torch.eq, "less": torch.lt, "greater": torch.gt}


def conv_gradient(mask):
    """Of a padding of 1; the size of the other tensor does not matter to the gradient but by its shape."""
    return lambda dy, x, weight: torch.ops.aten.convolution_backward(dy, x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1,
                                                                     mask)


def optimiser(kind, p, gradient, **options):
    p.requires_grad_()
    p.grad = gradient
    return kind([p], lr=1e-3, **options).step


def grad_weight(dy, x):
    return torch.mm(dy.T, x)


# Op -> a function of its attributes and inputs that gives the call to time.
FORWARD = {
    "sum": lambda a, x: lambda: x.sum(a["axes"]),
    "mean": lambda a, x: lambda: x.mean(a["axes"]),
    "max": lambda a, x: lambda: x.amax(a["axes"]),
    "min": lambda a, x: lambda: x.amin(a["axes"]),
    "sum_to": lambda a, x: lambda: x.sum(0),
    "broadcast_to": lambda a, x: lambda: x.expand(a["shape"]).contiguous(),
    "argmax": lambda a, x: lambda: x.argmax(-1),
    "topk": lambda a, x: lambda: x.topk(a["k"]),
    "topk_grad": lambda a, i, dy: lambda: dy.new_zeros(dy.shape[0], a["extent"]).scatter_(1, i, dy),
    "softmax": lambda a, x: lambda: F.softmax(x, -1),
    "log_softmax": lambda a, x: lambda: F.log_softmax(x, -1),
    "cross_entropy": lambda a, x, t: lambda: F.cross_entropy(x, t),
    "l2_normalize": lambda a, x: lambda: F.normalize(x, dim=1),
    "one_hot": lambda a, t: lambda: torch.zeros(len(t), a["classes"], dtype=getattr(torch, a["dtype"]),
                                                device=t.device).scatter_(1, t[:, None], 1),
    "where": lambda a, c, x, y: lambda: torch.where(c, x, y),
    "gather": lambda a, x, i: lambda: x.gather(a["axis"], i),
    "embedding": lambda a, w, i: lambda: F.embedding(i, w),
    "embedding_grad": lambda a, dy, i: lambda: torch.ops.aten.embedding_dense_backward(dy, i, a["rows"], -1, False),
    "concat": lambda a, *x: lambda: torch.cat(x, a["axis"]),
    "slice": lambda a, x: lambda: x.narrow(a["axis"], a["begin"], a["end"] - a["begin"]).contiguous(),
    "cumsum": lambda a, x: lambda: x.cumsum(a["axis"]),
    "flip": lambda a, x: lambda: x.flip(a["axes"]),
    "pad": lambda a, x: lambda: F.pad(x, tuple(a["padding"][1])),
    "pad_grad": lambda a, dy: lambda: dy[:, a["padding"][1][0]:dy.shape[1] - a["padding"][1][1]].contiguous(),
    "permute": lambda a, x: lambda: x.permute(a["axes"]).contiguous(),
    "cast": lambda a, x: lambda: x.to(getattr(torch, a["dtype"])),
    "fill_": lambda a, x: lambda: x.fill_(1.0),
    "copy": lambda a, x: lambda: x.clone(),
    "copy_": lambda a, x, y: lambda: x.copy_(y),
    "dropout": lambda a, x, key: lambda: F.dropout(x, a["p"], True),
    "matmul": lambda a, x, y: lambda: torch.matmul(x, y),
    "linear": lambda a, x, w, b: lambda: F.linear(x, w, b),
    "linear_grad_weight": lambda a, dy, x: lambda: grad_weight(dy, x),
    "linear_grad_weight_bias": lambda a, dy, x: lambda: (grad_weight(dy, x), dy.sum(0)),
    "matvec": lambda a, m, x: lambda: torch.mv(m, x),
    "outer": lambda a, u, v: lambda: torch.outer(u, v),
    "conv2d": lambda a, x, w, b: lambda: F.conv2d(x, w, padding=1),
    "conv2d_grad_input": lambda a, dy, w: lambda: conv_gradient((True, False, False))(dy, torch.empty_like(dy), w),
    "conv2d_grad_weight": lambda a, x, dy: lambda: conv_gradient((False, True, False))(
        dy, x, torch.empty(x.shape[1], x.shape[1], 3, 3, dtype=x.dtype, device=x.device)),
    "max_pool2d": lambda a, x: lambda: F.max_pool2d(x, 3, 2, 1),
    "avg_pool2d": lambda a, x: lambda: F.avg_pool2d(x, 3, 2, 1),
    "global_avg_pool2d": lambda a, x: lambda: x.mean((2, 3)),
    "adaptive_avg_pool2d": lambda a, x: lambda: F.adaptive_avg_pool2d(x, a["size"]),
    "adaptive_max_pool2d": lambda a, x: lambda: F.adaptive_max_pool2d(x, a["size"]),
    "upsample": lambda a, x: lambda: F.interpolate(x, size=a["size"], mode=a["mode"]),
    "batch_norm": lambda a, x, w, b, mean, var: lambda: F.batch_norm(x, mean, var, w, b, True),
    "batch_norm_act": lambda a, x, w, b, mean, var, *_: lambda: F.relu(F.batch_norm(x, mean, var, w, b, True)),
    "prelu": lambda a, x, w: lambda: F.prelu(x, w),
    "sgd_step": lambda a, p, g, *_: optimiser(torch.optim.SGD, p, g, momentum=0.9, fused=True),
    "adamw_step": lambda a, p, g, *_: optimiser(torch.optim.AdamW, p, g, fused=True, capturable=p.is_cuda),
    "rmsprop_step": lambda a, p, g, *_: optimiser(torch.optim.RMSprop, p, g, foreach=True, capturable=p.is_cuda),
    "grad_norm": lambda a, x: lambda: torch.linalg.vector_norm(x),
}


def image_of(dy, a, size):
    """An image of `size` in the layout of dy."""
    return torch.randn(*dy.shape[:2], *size, device=dy.device, dtype=dy.dtype).contiguous(
        memory_format=torch.channels_last if a["layout"] == "NHWC" else torch.contiguous_format)


def pool_size(a):
    return a["height"], a["width"]


# Gradient op -> a function of its attributes and inputs that gives a function, its inputs, those whose gradients are
# wanted, and dy.
BACKWARD = {
    "max_grad": lambda a, x, dy: (lambda x: x.amax(a["axes"]), [x], [x], dy),
    "min_grad": lambda a, x, dy: (lambda x: x.amin(a["axes"]), [x], [x], dy),
    "softmax_grad": lambda a, x, dy: (lambda x: F.softmax(x, -1), [x], [x], dy),
    "log_softmax_grad": lambda a, x, dy: (lambda x: F.log_softmax(x, -1), [x], [x], dy),
    "cross_entropy_grad": lambda a, x, t, *_: (lambda x: F.cross_entropy(x, t), [x], [x], x.new_ones(())),
    "l2_normalize_grad": lambda a, x, norm, dy: (lambda x: F.normalize(x, dim=1), [x], [x], dy),
    "gather_grad": lambda a, dy, i: gather_backward(a, dy, i),
    "max_pool2d_grad": lambda a, dy, _: on_image(lambda x: F.max_pool2d(x, 3, 2, 1), dy, a["pool"], pool_size(a)),
    "avg_pool2d_grad": lambda a, dy: on_image(lambda x: F.avg_pool2d(x, 3, 2, 1), dy, a["pool"], pool_size(a)),
    "global_avg_pool2d_grad": lambda a, dy: on_image(lambda x: x.mean((2, 3)), dy, a, pool_size(a)),
    "adaptive_avg_pool2d_grad": lambda a, dy: on_image(lambda x: F.adaptive_avg_pool2d(x, dy.shape[2:]), dy, a, a["size"]),
    "upsample_grad": lambda a, dy: on_image(lambda x: F.interpolate(x, size=dy.shape[2:], mode=a["mode"]), dy, a, a["size"]),
    "batch_norm_grad": lambda a, x, dy, w, *_: norm_backward(lambda y: y, x, dy, w),
    "batch_norm_act_grad": lambda a, x, dy, dy2, mask, w, *_: norm_backward(F.relu, x, dy, w),
    "prelu_grad": lambda a, x, w, dy: (F.prelu, [x, w], [x, w], dy),
    "prelu_grad_x": lambda a, x, w, dy: (F.prelu, [x, w], [x], dy),
}


def on_image(function, dy, a, size):
    x = image_of(dy, a, size)
    return function, [x], [x], dy


def gather_backward(a, dy, i):
    x = torch.zeros(a["extents"], device=dy.device, dtype=dy.dtype)
    return lambda x: x.gather(a["axis"], i), [x], [x], dy


def norm_backward(activation, x, dy, w):
    b = torch.zeros_like(w)
    return lambda x, w, b: activation(F.batch_norm(x, None, None, w, b, True)), [x, w, b], [x, w, b], dy


def parse(text):
    """The attributes as Sinter prints them, "size=[7, 7], layout=NCHW", as a dict."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    attributes = {}
    for part in filter(None, (part.strip() for part in [*parts, text[start:]])):
        name, value = part.split("=", 1)
        attributes[name] = parse(value[1:-1]) if value.startswith("{") else parse_value(value)
    return attributes


def parse_value(value):
    if re.fullmatch(r"-?inf", value):
        return float(value)
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError):
        return value


def make_input(spec, nhwc, device):
    if spec is None:
        return None
    dtype, shape = getattr(torch, spec["dtype"]), spec["shape"]
    count = 1
    for extent in shape:
        count *= extent
    if spec["count"]:
        x = torch.randint(0, spec["count"], shape, device=device).to(dtype)
    elif spec["values"]:
        values = torch.tensor(spec["values"], dtype=torch.float64, device=device).to(dtype)
        x = values.repeat(-(-count // len(values)))[:count].view(shape)
    else:
        x = torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
    return x.permute(0, 3, 1, 2) if nhwc and x.dim() == 4 else x


def counterpart(case, device):
    """(call, None), (None, what BACKWARD gives), or None if there is none."""
    op, a = case["op"], parse(case["attributes"])
    base = op.removesuffix("_grad")
    function = UNARY.get(base) or BINARY.get(base) or (WITH_NUMBERS[base](a) if base in WITH_NUMBERS else None)
    if function is None and op not in FORWARD and op not in BACKWARD and op != "full":
        return None
    x = [make_input(spec, case["layout"] == "NHWC", device) for spec in case["inputs"]]
    if function is not None:
        if base == op:
            return lambda: function(*x), None
        inputs = x[:2] if base in BINARY else x[:1]
        return None, (function, inputs, inputs, x[-1])
    if op == "full":
        shape = tuple(int(n) for n in re.findall(r"\d+", str(a["shape"])))
        return lambda: torch.full(shape, 1.0, dtype=getattr(torch, a["dtype"]), device=device), None
    return (FORWARD[op](a, *x), None) if op in FORWARD else (None, BACKWARD[op](a, *x))


def time_on_cpu(call, seconds, before=lambda: ()):
    """Microseconds of call(*before()), whose second part counts: the shortest of three, or of as many as fit into `seconds`."""
    times = []
    while len(times) < 3 or sum(times) < seconds:
        made = before()
        start = time.perf_counter()
        call(*made)
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def measure(case, device, cpu_seconds=0.0):
    """(microseconds or None, what failed or None). `cpu_seconds`: how long to measure on a CPU, at least three calls."""
    try:
        found = counterpart(case, device)
        if found is None:
            return None, None
        call, gradient = found
        if call is not None:
            # Optimisers set no_grad themselves, and want parameters that require a gradient.
            with torch.no_grad():
                return (time_on_cpu(call, cpu_seconds) if device == "cpu" else peer_bench.time_cold(call)), None
        function, inputs, wanted, dy = gradient
        for x in wanted:
            x.requires_grad_()
        if device == "cpu":
            def forward():
                y = function(*inputs)
                return y, dy.expand_as(y)
            return time_on_cpu(lambda y, dy: torch.autograd.grad(y, wanted, dy), cpu_seconds, forward), None
        return peer_bench.time_backward_cold(function, inputs, wanted, lambda: dy), None
    except Exception as error:  # an op that cannot be captured, say
        return None, (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
