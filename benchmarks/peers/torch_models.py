"""The networks of common/networks.cpp and the cases of cases.json, and the training step that the peers time."""
import json
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

CASES = json.loads((pathlib.Path(__file__).resolve().parent.parent / "cases.json").read_text(encoding="utf-8"))


def case_of(**listed):
    """A case as cases.json lists it, with what its network says."""
    return {"sample_rate": 1.0, "full": False, **CASES["networks"][listed["network"]], **listed}


def conv_norm(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck, groups=1):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        inner = width if groups == 1 else width * groups // 16  # 4 channels a group in the first stage
        self.body = nn.ModuleList(
            [conv_norm(inputs, inner, 1), conv_norm(inner, inner, 3, stride, groups), conv_norm(inner, outputs, 1)]
            if bottleneck
            else [conv_norm(inputs, width, 3, stride), conv_norm(width, width, 3)]
        )
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = x
        for layer in self.body[:-1]:
            y = F.relu(layer(y), inplace=True)
        return F.relu(self.body[-1](y) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, classes, small_stem=False, groups=1):
        super().__init__()
        self.stem = conv_norm(3, 64, 3) if small_stem else conv_norm(3, 64, 7, 2)
        self.pool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
        layers, inputs = [], 64
        for stage, count in enumerate(blocks):
            width = 64 << stage
            for i in range(count):
                layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, bottleneck, groups))
                inputs = width * 4 if bottleneck else width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.layers(self.pool(F.relu(self.stem(x), inplace=True)))
        return self.fc(x.mean((2, 3)))


def vgg16_filters(add):
    layers, inputs = [], 3
    for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if outputs == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += add(inputs, outputs)
            inputs = outputs
    return layers


def vgg16(case):
    layers = vgg16_filters(lambda inputs, outputs: [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)])
    width = 512 * (case["size"] // 32) ** 2
    head = [nn.Linear(width, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(4096, case["classes"]))


def vgg16_prelu(case):
    layers = vgg16_filters(lambda inputs, outputs: [*conv_norm(inputs, outputs, 3), nn.PReLU(outputs)])
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, case["classes"]))


class FaceBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), *conv_norm(inputs, outputs, 3), nn.PReLU(outputs), *conv_norm(outputs, outputs, 3, stride))
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def iresnet(blocks):
    """To embeddings of 512 numbers."""
    layers, inputs = [*conv_norm(3, 64, 3), nn.PReLU(64)], 64
    for outputs, count in zip((64, 128, 256, 512), blocks):
        for i in range(count):
            layers.append(FaceBlock(inputs, outputs, 2 if i == 0 else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 7 * 7, 512), nn.BatchNorm1d(512))


class DepthWise(nn.Module):
    def __init__(self, inputs, middle, outputs, stride, residual=False):
        super().__init__()
        self.residual = residual
        self.layers = nn.Sequential(*conv_norm(inputs, middle, 1), nn.PReLU(middle),
                                    *conv_norm(middle, middle, 3, stride, middle), nn.PReLU(middle),
                                    *conv_norm(middle, outputs, 1))

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


def mobile_face_net():
    """To embeddings of 512 numbers; scale 2, blocks 1, 4, 6, 2."""
    def residuals(count, channels, middle):
        return [DepthWise(channels, middle, channels, 1, True) for _ in range(count)]

    return nn.Sequential(
        *conv_norm(3, 128, 3, 2), nn.PReLU(128), *conv_norm(128, 128, 3, 1, 64), nn.PReLU(128),
        DepthWise(128, 128, 128, 2), *residuals(4, 128, 128), DepthWise(128, 256, 256, 2), *residuals(6, 256, 256),
        DepthWise(256, 512, 256, 2), *residuals(2, 256, 256), *conv_norm(256, 512, 1), nn.PReLU(512),
        nn.Conv2d(512, 512, 7, groups=512, bias=False), nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512, 512, bias=False),
        nn.BatchNorm1d(512))


def arcface(cosine, labels, margin=0.5, scale=64.0):
    """Logits of cosines (N, C); a row whose label is -1 has no class of its own."""
    cosine = cosine.float().clamp(-1 + 1e-6, 1 - 1e-6)
    own = labels.clamp(min=0)[:, None]
    value = cosine.gather(1, own)
    raised = torch.where(labels[:, None] >= 0, torch.cos(torch.acos(value) + margin), value)
    return cosine.scatter(1, own, raised) * scale


class Faces(nn.Module):
    """A backbone and an ArcFace head: logits, whose softmax is the loss."""

    takes_labels = True

    def __init__(self, backbone, people):
        super().__init__()
        self.backbone = backbone
        self.centres = nn.Parameter(torch.randn(people, 512) * 0.01)

    def forward(self, images, labels):
        embeddings = F.normalize(self.backbone(images))
        return arcface(F.linear(embeddings, F.normalize(self.centres)), labels)


def twice(inputs, outputs):
    return nn.Sequential(*conv_norm(inputs, outputs, 3), nn.ReLU(inplace=True), *conv_norm(outputs, outputs, 3), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(twice(inputs, outputs) for inputs, outputs in zip((3, *widths), widths))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths[:-1]))
        self.up = nn.ModuleList(twice(2 * width, width) for width in reversed(widths[:-1]))
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x):
        maps = []
        for layers in self.down:
            x = layers(F.max_pool2d(x, 2) if maps else x)
            maps.append(x)
        for enlarge, layers, beside in zip(self.enlarge, self.up, maps[-2::-1]):
            x = layers(torch.cat([beside, enlarge(x)], 1))
        return self.head(x)


MAKERS = {
    "resnet18_cifar": lambda case: ResNet((2, 2, 2, 2), False, case["classes"], small_stem=True),
    "resnet18": lambda case: ResNet((2, 2, 2, 2), False, case["classes"]),
    "resnet50": lambda case: ResNet((3, 4, 6, 3), True, case["classes"]),
    "resnext50_32x4d": lambda case: ResNet((3, 4, 6, 3), True, case["classes"], groups=32),
    "vgg16": vgg16,
    "vgg16_prelu": vgg16_prelu,
    "iresnet18": lambda case: iresnet((2, 2, 2, 2)),
    "iresnet50": lambda case: iresnet((3, 4, 14, 3)),
    "iresnet100": lambda case: iresnet((3, 13, 30, 3)),
    "mobile_face_net": lambda case: mobile_face_net(),
    "unet": lambda case: UNet(case["classes"]),
}


def make_network(case):
    """Without the head of a face network."""
    return MAKERS[case["network"]](case)


def make_trained(case):
    """Gives logits, of which Step computes the loss."""
    net = make_network(case)
    return Faces(net, case["classes"]) if case["task"] == "faces" else net


def make_images(case, dtype, memory_format, device):
    shape = case["batch"], 3, case["size"], case["size"]
    return torch.randn(shape, device=device).to(dtype, memory_format=memory_format)


def make_labels(case, device):
    is_map = case["task"] == "pixels"
    return torch.randint(case["classes"], (case["batch"], *([case["size"]] * 2 if is_map else [])), device=device)


def decay_groups(net, weight_decay):
    """Weight decay on filters and matrices only, as Sinter's programs do by default."""
    parameters = list(net.parameters())
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]


def set_precision(name):
    """TF32 on or off; gives the dtype for autocast, or None."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    return {"mixed_f16": torch.float16, "mixed_bf16": torch.bfloat16}.get(name)


class Step:
    """One training step; `model` is `net` or its compiled form."""

    def __init__(self, net, model, optimizer, amp, label_smoothing=0.0):
        self.net, self.model, self.optimizer, self.amp = net, model, optimizer, amp
        self.label_smoothing = label_smoothing
        self.device = next(net.parameters()).device.type
        self.scaler = torch.amp.GradScaler(self.device, enabled=amp == torch.float16)

    def __call__(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, self.amp, enabled=self.amp is not None):
            logits = self.model(images, labels) if getattr(self.net, "takes_labels", False) else self.model(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss
