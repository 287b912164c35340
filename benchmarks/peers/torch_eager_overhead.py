"""Host time of eager calls in PyTorch: the cases of eager_overhead_benchmark.cpp.

    python torch_eager_overhead.py [cpu|cuda]
"""

import sys
import time

import torch
import torch.nn.functional as F

device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
torch.set_num_threads(1)


def synchronize():
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(name, call, calls=200, batches=100):
    times = []
    for batch in range(-3, batches):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - start
        synchronize()
        if batch >= 0:
            times.append(took / calls * 1e6)
    times.sort()
    print(f"{name:32} {times[0]:8.3f} us (median {times[len(times) // 2]:.3f})", flush=True)


def filled(shape, requires_grad=False):
    return torch.full(shape, 0.5, device=device, requires_grad=requires_grad)


def op_cases(group, requires_grad):
    a, b = filled((8, 8), requires_grad), filled((8, 8), requires_grad)
    image, kernel = filled((2, 8, 4, 4), requires_grad), filled((8, 8, 1, 1), requires_grad)
    scale, shift = filled((8,), requires_grad), filled((8,), requires_grad)
    mean, variance = filled((8,)), filled((8,))
    measure("add" + group, lambda: torch.add(a, b))
    measure("mul" + group, lambda: torch.mul(a, b))
    measure("relu" + group, lambda: torch.relu(a))
    measure("affine" + group, lambda: torch.mul(a, 2.0))
    measure("matmul" + group, lambda: torch.matmul(a, b))
    measure("sum" + group, lambda: torch.sum(a))
    measure("batch_norm" + group, lambda: F.batch_norm(image, mean, variance, scale, shift, True))
    measure("conv2d 1x1" + group, lambda: F.conv2d(image, kernel))
    measure("permute" + group, lambda: image.permute(0, 2, 3, 1).contiguous())
    measure("concat" + group, lambda: torch.cat((a, b)))


def training_cases():
    weights = [filled((8, 8), True) for _ in range(3)]
    biases = [filled((8,), True) for _ in range(3)]
    x = filled((4, 8))

    def loss():
        y = F.linear(x, weights[0], biases[0])
        y = F.linear(torch.relu(y), weights[1], biases[1])
        return F.linear(torch.relu(y), weights[2], biases[2]).sum()

    def backward():
        for parameter in weights + biases:
            parameter.grad = None
        loss().backward()

    measure("mlp forward", loss, 20)
    measure("mlp forward, backward", backward, 20)
    for title, options in (("sgd", {}), ("sgd (fused)", {"fused": True})):
        sgd = torch.optim.SGD(weights + biases, lr=1e-3, momentum=0.9, **options)

        def step():
            sgd.zero_grad()
            loss().backward()
            sgd.step()

        measure(f"mlp forward, backward, {title}", step, 20)


print(f"host time per call on {device}, PyTorch {torch.__version__}")
op_cases("", False)
op_cases(" (recorded)", True)
training_cases()
