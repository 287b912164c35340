"""PyTorch's inference on the GPU: the cases of infer_benchmark, eager and compiled, channels last."""
import gc

import torch
from peer_bench import Peers, time_stream
from torch_models import Faces, resnet18, resnet50, resnext50, set_precision
from torch_predict import latency

MODES = {"torch_eager": None, "torch_compile": "default", "torch_compile_graphs": "reduce-overhead",
         "torch_max_autotune": "max-autotune"}


class Backbone(torch.nn.Module):
    """iResNet-50 without its head."""

    def __init__(self):
        super().__init__()
        faces = Faces(1)
        self.layers = torch.nn.Sequential(faces.backbone, faces.embed)

    def forward(self, x):
        return self.layers(x)


NETWORKS = {"resnet50": (224, lambda: resnet50(1000, False)), "resnet18": (224, lambda: resnet18(1000, False)),
            "iresnet50": (112, Backbone), "resnext50": (224, lambda: resnext50(1000))}


@torch.inference_mode()
def measure(make, size, batch, precision, mode, quick):
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    dtype = set_precision(precision) or torch.float32
    net = make().cuda().eval().to(dtype).to(memory_format=torch.channels_last)
    model = net if mode is None else torch.compile(net, mode=mode)
    images = torch.randn(batch, 3, size, size, device="cuda").to(dtype).to(memory_format=torch.channels_last)
    for _ in range(6):
        model(images)
    torch.cuda.synchronize()
    result = {"img_s": batch / time_stream(lambda: model(images), 50 if batch <= 8 else 10) * 1e6}
    if batch <= 8:
        calls, host = 200 if quick else 1000, images.cpu()
        result.update(latency(lambda: model(images).cpu(), calls))
        from_host = latency(lambda: model(host.cuda()).cpu(), calls)
        result.update({f"host_{name}": value for name, value in from_host.items()})
    return result


def main():
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__, modes={"nargs": "+", "choices": list(MODES), "default": list(MODES)[:3]})
    for network, (size, make) in NETWORKS.items():
        for precision in ("mixed_f16",) if peers.quick else ("mixed_f16", "mixed_bf16", "tf32", "float32"):
            for batch in (1, 256) if peers.quick else (1, 8, 64, 256):
                for peer in peers.options.modes:
                    run = lambda: measure(make, size, batch, precision, MODES[peer], peers.quick)
                    peers.measure("infer", f"{network} batch {batch}", precision, "NHWC", peer, run)
    peers.finish()


if __name__ == "__main__":
    main()
