"""PyTorch's training steps on synthetic data: the cases of train_step_benchmark, eager and compiled."""
import gc
import time

import torch
from peer_bench import Peers, time_stream
from torch_models import Faces, Step, decay_groups, resnet18, resnet50, resnext50, set_precision, vgg16_prelu

# name: (makes the network, batch, size, classes, in all precisions and layouts)
PROBLEMS = {
    "resnet18_cifar batch 512": (lambda classes: resnet18(classes, True), 512, 32, 10, True),
    "resnet50 batch 256": (lambda classes: resnet50(classes, False), 256, 224, 1000, True),
    "iresnet50 arcface batch 128": (Faces, 128, 112, 10572, False),
    "vgg16_prelu batch 128": (vgg16_prelu, 128, 224, 1000, False),
    "resnext50_32x4d batch 256": (resnext50, 256, 224, 1000, False),
}
MODES = {"torch_eager": None, "torch_compile": "default", "torch_compile_graphs": "reduce-overhead",
         "torch_max_autotune": "max-autotune"}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def measure(problem, precision, layout, mode, calls):
    make, batch, size, classes, _ = PROBLEMS[problem]
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    amp = set_precision(precision)
    net = make(classes).cuda().to(memory_format=FORMATS[layout])
    model = net if mode is None else torch.compile(net, mode=mode)
    optimizer = torch.optim.SGD(decay_groups(net, 5e-5), 0.01, momentum=0.9, fused=True)
    images = torch.randn(batch, 3, size, size, device="cuda").to(amp or torch.float32, memory_format=FORMATS[layout])
    labels = torch.randint(classes, (batch,), device="cuda")
    step = Step(net, model, optimizer, amp)
    start = time.perf_counter()
    for _ in range(6):
        step(images, labels)
    torch.cuda.synchronize()
    warm_up = time.perf_counter() - start
    torch.cuda.reset_peak_memory_stats()
    us = time_stream(lambda: step(images, labels), calls)
    result = {"img_s": batch / us * 1e6, "ms": us / 1e3, "warm_up_s": warm_up}
    if mode in (None, "default"):  # memory of graphs is not counted there
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def main():
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__, modes={"nargs": "+", "choices": MODES, "default": [m for m in MODES if m != "torch_max_autotune"],
                                  "help": "all but torch_max_autotune, which takes five minutes a case, if not given"})
    # Compiled in the precision and layout that users train in; the rest shows what those two are worth.
    main_cases = [("mixed_f16", "NHWC", mode) for mode in MODES]
    cases = main_cases + [("float32", "NHWC", "torch_eager"), ("float32", "NCHW", "torch_eager"), ("tf32", "NHWC", "torch_eager")]
    if not peers.quick:
        cases += [("tf32", "NCHW", "torch_eager"), ("mixed_f16", "NCHW", "torch_eager"),
                  ("mixed_bf16", "NHWC", "torch_eager"), ("mixed_bf16", "NHWC", "torch_compile")]
    for problem in PROBLEMS:
        for precision, layout, peer in cases if PROBLEMS[problem][4] else main_cases:
            if peer not in peers.options.modes or (peers.quick and peer != "torch_eager"):
                continue
            run = lambda: measure(problem, precision, layout, MODES[peer], 5 if peers.quick else 20)
            peers.measure("train_step", problem, precision, layout, peer, run)
    peers.finish()


if __name__ == "__main__":
    main()
