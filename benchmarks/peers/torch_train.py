"""PyTorch's training steps on synthetic data: the cases of train_step_benchmark, eager and compiled."""
import time

import torch
from network_peers import FORMATS, MODES, NetworkPeers, compiled
from torch_models import CASES, Step, case_of, decay_groups, make_images, make_labels, make_trained, set_precision


def measure(peers, case, precision, layout, mode, once):
    torch.manual_seed(0)
    amp = set_precision(precision)
    net = make_trained(case).to(peers.device, memory_format=FORMATS[layout])
    optimizer = torch.optim.SGD(decay_groups(net, 5e-5), 0.01, momentum=0.9, fused=True)
    images = make_images(case, amp or torch.float32, FORMATS[layout], peers.device)
    labels = make_labels(case, peers.device)
    step = Step(net, compiled(net, mode), optimizer, amp)
    if once:
        return step(images, labels)
    start = time.perf_counter()
    for _ in range(1 if peers.options.cpu else 6):
        step(images, labels)
    peers.synchronize()
    warm_up = time.perf_counter() - start
    if not peers.options.cpu:
        torch.cuda.reset_peak_memory_stats()
    us = peers.time(lambda: step(images, labels), 5 if peers.quick else 20)
    result = {"img_s": case["batch"] / us * 1e6, "ms": us / 1e3, "warm_up_s": warm_up}
    if mode in (None, "default") and not peers.options.cpu:  # memory of graphs is not counted there
        result["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return result


def main():
    peers = NetworkPeers(__doc__, MODES)
    # Compiled in the precision and layout that users train in; the rest shows what those two are worth.
    main_cases = [("mixed_f16", "NHWC", mode) for mode in MODES]
    others = [("float32", "NHWC", "torch_eager"), ("float32", "NCHW", "torch_eager"), ("tf32", "NHWC", "torch_eager")]
    if not peers.quick:
        others += [("tf32", "NCHW", "torch_eager"), ("mixed_f16", "NCHW", "torch_eager"),
                   ("mixed_bf16", "NHWC", "torch_eager"), ("mixed_bf16", "NHWC", "torch_compile")]
    cases = [case_of(**listed) for listed in CASES["train_step"]]
    wanted = [(case, *of) for case in cases for of in main_cases[:-1]]  # the first cases are whole if time runs out
    wanted += [(case, *of) for case in cases if case["full"] for of in others]
    wanted += [(case, *main_cases[-1]) for case in cases]
    for case, precision, layout, peer in wanted:
        def run(once, case=peers.sized(case), precision=precision, layout=layout, mode=MODES[peer]):
            return measure(peers, case, precision, layout, mode, once)

        peers.add("train_step", case, precision, layout, peer, run)
    peers.measure_all()


if __name__ == "__main__":
    main()
