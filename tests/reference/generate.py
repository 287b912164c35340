"""Writes the PyTorch values that tests/nn/reference_test.cpp compares with, to tests/data/reference/.

Run by maintainers, with PyTorch, torchvision and safetensors installed: python tests/reference/generate.py
The results depend on the inputs of formula.py only, up to rounding.
"""

import pathlib

import numpy as np
import torch
import torchvision
from safetensors.torch import save_file

import formula

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "reference"
F = torch.nn.functional


def tensor(name, shape, **how):
    return torch.from_numpy(formula.values(name, shape, **how))


def leaf(name, shape, **how):
    return tensor(name, shape, **how).requires_grad_()


def batch_norm_cases(out):
    for mode in ("train", "eval"):
        for shape in ((4, 3, 5, 7), (16, 3)):
            case = f"batch_norm.{mode}.{len(shape)}d"
            x, weight, bias = leaf(case + ".x", shape), leaf(case + ".weight", (3,)), leaf(case + ".bias", (3,))
            mean = tensor(case + ".running_mean", (3,))
            var = tensor(case + ".running_var", (3,), scale=0.25, base=1.0)
            y = F.batch_norm(x, mean, var, weight, bias, training=mode == "train", momentum=0.1, eps=1e-5)
            y.backward(tensor(case + ".dy", shape))
            out |= {case + ".y": y, case + ".dx": x.grad, case + ".dweight": weight.grad, case + ".dbias": bias.grad,
                    case + ".running_mean": mean, case + ".running_var": var}


def cross_entropy_cases(out):
    labels = torch.tensor([3, 0, -100, 6, 2, 2])
    for name, options in {"mean": {}, "sum": {"reduction": "sum"}, "none": {"reduction": "none"},
                          "smooth": {"label_smoothing": 0.1}}.items():
        case = "cross_entropy." + name
        logits = leaf(case + ".logits", (6, 7), scale=4.0)
        loss = F.cross_entropy(logits, labels, **options)
        loss.backward(torch.ones_like(loss))
        out |= {case + ".loss": loss, case + ".dlogits": logits.grad}
    case = "cross_entropy.probabilities"
    logits = leaf(case + ".logits", (6, 7), scale=4.0)
    target = leaf(case + ".target", (6, 7), scale=0.25, base=1.0)
    loss = F.cross_entropy(logits, target, label_smoothing=0.1)
    loss.backward()
    out |= {case + ".loss": loss, case + ".dlogits": logits.grad, case + ".dtarget": target.grad}


def conv2d_cases(out):
    cases = {"3x3": ((2, 4, 9, 8), (6, 4, 3, 3), dict(padding=1)),
             "stride": ((2, 4, 9, 8), (6, 4, 3, 3), dict(stride=2, padding=1)),
             "7x7": ((1, 3, 17, 16), (4, 3, 7, 7), dict(stride=2, padding=3)),
             "1x1": ((2, 5, 4, 6), (3, 5, 1, 1), dict(stride=2)),
             "dilation": ((2, 2, 9, 10), (3, 2, 3, 2), dict(stride=(2, 1), padding=(2, 0), dilation=(2, 3))),
             "groups": ((2, 6, 5, 5), (4, 3, 3, 3), dict(padding=1, groups=2)),
             "depthwise": ((2, 4, 6, 5), (4, 1, 3, 3), dict(stride=2, padding=1, groups=4))}
    for name, (x_shape, weight_shape, options) in cases.items():
        case = "conv2d." + name
        x, weight = leaf(case + ".x", x_shape), leaf(case + ".weight", weight_shape)
        bias = leaf(case + ".bias", (weight_shape[0],))
        y = F.conv2d(x, weight, bias, **options)
        y.backward(tensor(case + ".dy", tuple(y.shape)))
        out |= {case + ".y": y, case + ".dx": x.grad, case + ".dweight": weight.grad, case + ".dbias": bias.grad}


def optimizer_cases(out):
    """Five steps with gradients and a learning rate that change from step to step."""
    cases = {"sgd.plain": (torch.optim.SGD, {}),
             "sgd.momentum": (torch.optim.SGD, dict(momentum=0.9, weight_decay=5e-4)),
             "sgd.dampening": (torch.optim.SGD, dict(momentum=0.9, dampening=0.3, weight_decay=1e-2)),
             "sgd.nesterov": (torch.optim.SGD, dict(momentum=0.9, weight_decay=5e-4, nesterov=True)),
             "adamw.default": (torch.optim.AdamW, {}),
             "adamw.options": (torch.optim.AdamW, dict(betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1)),
             "adam.decay": (torch.optim.Adam, dict(weight_decay=0.1))}
    for case, (kind, options) in cases.items():
        weight, bias = leaf(case + ".weight", (3, 5)), leaf(case + ".bias", (7,))
        optimizer = kind([weight, bias], lr=0.1, **options)
        for step in range(1, 6):
            weight.grad = tensor(f"{case}.weight.grad{step}", (3, 5))
            bias.grad = tensor(f"{case}.bias.grad{step}", (7,))
            optimizer.param_groups[0]["lr"] = 0.1 / step
            optimizer.step()
            out |= {f"{case}.weight.step{step}": weight.clone(), f"{case}.bias.step{step}": bias.clone()}


def fill(model, prefix):
    """Every parameter and buffer by the formula of its name; num_batches_tracked becomes 3."""
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            value.fill_(3)
        else:
            value.copy_(torch.from_numpy(formula.parameter(prefix + name, tuple(value.shape))))


def resnet18_images():
    """Images for which no input of a ReLU is so near to 0 that rounding could change its sign: a flipped unit changes the
    gradients of everything before it by about 1e-3, and a comparison in float32 would need a tolerance that hides errors.
    Checked below; the number in the name is the first that passes."""
    return tensor("resnet18.images.1", (4, 3, 48, 48), scale=2.0)


def check_margins():
    def relu_inputs(dtype):
        model = torchvision.models.resnet18()
        fill(model, "resnet18.")
        inputs = []
        for module in model.to(dtype).modules():
            if isinstance(module, torch.nn.ReLU):
                module.inplace = False
                module.register_forward_pre_hook(lambda _, args: inputs.append(args[0].double()))
        with torch.no_grad():
            model(resnet18_images().to(dtype))
        return inputs

    for exact, rounded in zip(relu_inputs(torch.float64), relu_inputs(torch.float32)):
        assert exact.abs().min() > 2 * (exact - rounded).abs().max(), "choose other images"


def resnet18(dtype):
    """A training step of the whole network with label smoothing: logits, loss, all gradients, all statistics."""
    model = torchvision.models.resnet18()
    fill(model, "resnet18.")
    model.to(dtype).train()
    images = resnet18_images().to(dtype)
    labels = torch.tensor([1, 500, 999, 0])
    logits = model(images)
    loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
    loss.backward()
    out = {"logits": logits, "loss": loss}
    for name, value in model.named_parameters():
        out["grad." + name] = torch.from_numpy(formula.digest("resnet18." + name, value.grad))
    for name, value in model.named_buffers():
        if value.dim() == 1:
            out["buffer." + name] = torch.from_numpy(formula.digest("resnet18." + name, value))
    return out


def narrow(model, factor, classes):
    """torchvision has no option for the width of resnet18, so its layers are exchanged for narrower ones."""
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, torch.nn.Conv2d):
                inputs = layer.in_channels if layer.in_channels == 3 else layer.in_channels // factor
                setattr(module, name, torch.nn.Conv2d(inputs, layer.out_channels // factor, layer.kernel_size,
                                                      layer.stride, layer.padding, bias=False))
            elif isinstance(layer, torch.nn.BatchNorm2d):
                setattr(module, name, torch.nn.BatchNorm2d(layer.num_features // factor))
            elif isinstance(layer, torch.nn.Linear):
                setattr(module, name, torch.nn.Linear(layer.in_features // factor, classes))
    return model


def torchvision_file():
    """A resnet18 of width 4 as PyTorch saves it, and its logits in evaluation mode."""
    model = narrow(torchvision.models.resnet18(), 16, 10)
    fill(model, "narrow.")
    save_file(model.state_dict(), FOLDER / "torchvision_resnet18_width4.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        return {"logits": model.eval()(tensor("narrow.images", (2, 3, 40, 40), scale=2.0))}


def save(name, tensors):
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()},
              FOLDER / (name + ".safetensors"))


def main():
    torch.manual_seed(0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    operators = {}
    batch_norm_cases(operators)
    cross_entropy_cases(operators)
    conv2d_cases(operators)
    save("operators", operators)
    optimizers = {}
    optimizer_cases(optimizers)
    save("optimizers", optimizers)
    check_margins()
    save("resnet18_float32", resnet18(torch.float32))
    save("resnet18_float64", resnet18(torch.float64))
    save("torchvision_resnet18_width4_logits", torchvision_file())
    for path in sorted(FOLDER.iterdir()):
        assert path.stat().st_size < 400_000, path
        print(f"{path.stat().st_size:8} {path.name}")


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()
