"""PyTorch's inference on the GPU, and ONNX Runtime's where it has CUDA: the cases of infer_benchmark, eager and compiled,
channels last; `torch_eager_nchw` is not."""
import io
import time

import torch
from network_peers import MODES, NetworkPeers, compiled
from peer_bench import Graph
from torch_models import CASES, case_of, make_images, make_network, set_precision

LARGEST_WITH_LATENCY = 8
LATENCY_SECONDS, LEAST_CALLS = 0.5, 100
ALL_MODES = {**MODES, "torch_eager_nchw": None, "onnx_runtime": None}


def latency(peers, call, what=""):
    """50th and 99th percentile of a call that waits for its result, in microseconds."""
    least, seconds = (1, 0) if peers.options.cpu else (LEAST_CALLS, LATENCY_SECONDS)
    for _ in range(min(20, least)):
        call()
    times, begin = [], time.perf_counter()
    now = begin
    while len(times) < least or now - begin < seconds:
        call()
        end = time.perf_counter()
        times.append((end - now) * 1e6)
        now = end
    times.sort()
    return {f"{what}p50_us": times[len(times) // 2], f"{what}p99_us": times[len(times) * 99 // 100]}


class OfPictures(torch.nn.Module):
    """From bytes (N, H, W, 3)."""

    def __init__(self, net, dtype):
        super().__init__()
        self.net, self.dtype = net, dtype

    def forward(self, pictures):
        return self.net((pictures.permute(0, 3, 1, 2).to(torch.float32) * (1 / 127.5) - 1).to(self.dtype))


def onnx_provider(device):
    """ONNX Runtime's name of the device; None if it is not there."""
    try:
        import onnxruntime
    except ImportError:
        return None
    name = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    return name if name in onnxruntime.get_available_providers() else None


def onnx_session(net, example, device, allow_tf32):
    """A function as `net`, by ONNX Runtime, from and to tensors that stay on the device."""
    import numpy
    import onnxruntime
    file = io.BytesIO()
    torch.onnx.export(net, (example,), file, input_names=["x"], output_names=["y"], dynamo=False)
    options = {} if device == "cpu" else {"cudnn_conv_algo_search": "EXHAUSTIVE", "use_tf32": str(int(allow_tf32))}
    session = onnxruntime.InferenceSession(file.getvalue(), providers=[(onnx_provider(device), options)])
    kind = {torch.float16: numpy.float16, torch.float32: numpy.float32, torch.uint8: numpy.uint8}
    output = net(example)
    binding = session.io_binding()
    binding.bind_output("y", device, 0, kind[output.dtype], list(output.shape), output.data_ptr())

    def call(x):
        binding.bind_input("x", device, 0, kind[x.dtype], list(x.shape), x.data_ptr())
        if device != "cpu":
            torch.cuda.synchronize()  # ONNX Runtime has a stream of its own
        session.run_with_iobinding(binding)
        return output

    return call


class Captured:
    """A call as one CUDA graph of its own, without the checks and copies of mode reduce-overhead."""

    def __init__(self, model, example):
        self.input = example.clone()
        self.graph = Graph(lambda: model(self.input))

    def __call__(self, x):
        if x is not self.input:
            self.input.copy_(x)
        self.graph.graph.replay()
        return self.graph.kept


@torch.inference_mode()
def measure(peers, case, precision, peer, once):
    torch.manual_seed(0)
    batch, device, key = case["batch"], peers.device, ("infer", case["case"], precision, "NHWC")
    dtype = set_precision(precision) or torch.float32
    memory_format = torch.contiguous_format if peer in ("torch_eager_nchw", "onnx_runtime") else torch.channels_last
    images = make_images(case, dtype, memory_format, device)
    has_latency = batch <= LARGEST_WITH_LATENCY
    pictures = torch.randint(256, (batch, case["size"], case["size"], 3), dtype=torch.uint8)

    def made(module, example):
        if peer == "onnx_runtime":
            return onnx_session(module, example, device, precision == "tf32")
        return compiled(module, "default" if peer == "torch_compile_graphs" else ALL_MODES[peer])

    if peers.kept == key:
        model, of_pictures = peers.kept_model
    else:
        net = make_network(case).eval().to(device, dtype, memory_format=memory_format)
        model = made(net, images)
        of_pictures = made(OfPictures(net, dtype), pictures.to(device)) if has_latency else None
    for _ in range(1 if once or peers.options.cpu else 6):
        model(images)
        if has_latency:
            of_pictures(pictures.to(device))
    if once:
        return None
    if peer == "torch_compile":
        peers.keep(key, (model, of_pictures))
    if peer == "torch_compile_graphs":
        model = Captured(model, images)
        images = model.input
        of_pictures = Captured(of_pictures, pictures.to(device)) if has_latency else None
    peers.synchronize()
    us = peers.time(lambda: model(images), 50 if has_latency else 10)
    result = {"img_s": batch / us * 1e6}
    if has_latency:
        result.update(latency(peers, lambda: model(images).cpu()))
        host = pictures if peer == "torch_compile_graphs" else None  # copied to where the graph reads it
        result.update(latency(peers, lambda: of_pictures(pictures.to(device) if host is None else host).cpu(), "host_"))
    return result


def urgency(network, batch, precision, peer):
    """What is measured first, in case the time is short."""
    infer = CASES["infer"]
    is_main = precision == infer["dtypes"][0] and batch in infer["batches"][:2]
    if peer == "torch_max_autotune":
        return 1 if is_main and network == infer["networks"][0] else 9
    return 0 if is_main else 2 + infer["dtypes"].index(precision)


def main():
    peers = NetworkPeers(__doc__, ALL_MODES)
    if "onnx_runtime" in peers.options.modes and onnx_provider(peers.device) is None:
        peers.options.modes.remove("onnx_runtime")
        print("without ONNX Runtime: it is not here, or without CUDA")
    infer = CASES["infer"]
    listed = [(network, batch, precision, peer) for precision in infer["dtypes"] for batch in infer["batches"]
              for network in infer["networks"] for peer in ALL_MODES]
    for network, batch, precision, peer in sorted(listed, key=lambda of: urgency(*of)):
        is_quick = precision == infer["dtypes"][0] and batch in infer["batches"][:2]
        is_pointless = {"onnx_runtime": precision == "mixed_bf16",  # numpy has no such type
                        "torch_eager_nchw": precision.startswith("mixed")}
        if (peers.quick and not is_quick) or is_pointless.get(peer):
            continue
        case = case_of(case=f"{network} batch {batch}", network=network, batch=batch)

        def run(once, case=peers.sized(case), precision=precision, peer=peer):
            return measure(peers, case, precision, peer, once)

        peers.add("infer", case, precision, "NHWC", peer, run)
    peers.measure_all()


if __name__ == "__main__":
    main()
