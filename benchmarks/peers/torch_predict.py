"""PyTorch's predictions of images on the GPU: the cases of predict_benchmark, eager and compiled."""
import gc
import time

import torch
from peer_bench import Peers, time_stream
from torch_models import resnet50

MODES = {"torch_eager": None, "torch_compile": "default", "torch_compile_graphs": "reduce-overhead"}


def latency(call, calls):
    """50th and 99th percentile of a call that waits for its result, in microseconds."""
    for _ in range(20):
        call()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return {"p50_us": times[len(times) // 2], "p99_us": times[len(times) * 99 // 100]}


@torch.inference_mode()
def measure(batch, mode, quick):
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    net = resnet50(1000, False).cuda().eval().half().to(memory_format=torch.channels_last)
    model = net if mode is None else torch.compile(net, mode=mode)
    images = torch.randn(batch, 3, 224, 224, device="cuda").half().to(memory_format=torch.channels_last)
    for _ in range(6):
        model(images)
    torch.cuda.synchronize()
    result = {"img_s": batch / time_stream(lambda: model(images), 5 if quick else 20) * 1e6}
    if batch == 1:
        result.update(latency(lambda: model(images).cpu(), 200 if quick else 2000))
    return result


def main():
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__)
    for batch in (256, 1):
        for peer, mode in MODES.items():
            if peers.quick and mode is not None:
                continue
            run = lambda: measure(batch, mode, peers.quick)
            peers.measure("predict", f"resnet50 batch {batch}", "mixed_f16", "NHWC", peer, run)
    peers.finish()


if __name__ == "__main__":
    main()
