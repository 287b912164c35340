"""Host time of eager PyTorch calls on tiny GPU tensors: the cases of eager_overhead_benchmark."""
import torch
import torch.nn.functional as F
from peer_bench import Peers, host_us_per_call


def filled(shape, recorded):
    return torch.full(shape, 0.5, device="cuda", requires_grad=recorded)


def op_cases(recorded):
    a, b = filled((8, 8), recorded), filled((8, 8), recorded)
    image, weight = filled((2, 8, 4, 4), recorded), filled((8, 8, 1, 1), recorded)
    scale, shift = filled((8,), recorded), filled((8,), recorded)
    mean, variance = filled((8,), False), filled((8,), False)
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "relu": lambda: F.relu(a),
        "affine": lambda: a * 2.0,
        "matmul": lambda: a @ b,
        "sum": a.sum,
        "batch_norm": lambda: F.batch_norm(image, mean, variance, scale, shift, True),
        "conv2d 1x1": lambda: F.conv2d(image, weight),
        "permute": lambda: image.permute(0, 2, 3, 1).contiguous(),
        "concat": lambda: torch.cat([a, b]),
    }


def training_cases():
    """Three linear layers with ReLU between them."""
    weights = [filled((8, 8), True) for _ in range(3)]
    biases = [filled((8,), True) for _ in range(3)]
    x = filled((4, 8), False)
    sgd = torch.optim.SGD(weights + biases, lr=1e-3, momentum=0.9, fused=True)

    def loss():
        y = x
        for i, (weight, bias) in enumerate(zip(weights, biases)):
            y = F.linear(y if i == 0 else F.relu(y), weight, bias)
        return y.sum()

    def step():
        sgd.zero_grad(set_to_none=True)
        loss().backward()

    def update():
        step()
        sgd.step()

    return {"mlp forward": loss, "mlp forward, backward": step, "mlp forward, backward, sgd": update}


def main():
    torch.backends.cudnn.benchmark = True
    peers = Peers(__doc__)

    def run(cases, ending, calls):
        for name, call in cases.items():
            measured = lambda call=call: {"host_us": host_us_per_call(call, calls)}
            peers.measure("eager_overhead", name + ending, "float32", "", "torch_eager", measured)

    run(op_cases(False), "", 200)
    run(op_cases(True), " (recorded)", 200)
    run(training_cases(), "", 20)
    peers.end()


if __name__ == "__main__":
    main()
