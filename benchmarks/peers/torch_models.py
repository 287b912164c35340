"""ResNet-18 and ResNet-50 (version 1.5) as in nn/models/resnet.h, and the training step that both peers time."""
import torch
import torch.nn.functional as F
from torch import nn


def conv_norm(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * 4 if bottleneck else width
        self.body = nn.ModuleList(
            [conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride), conv_norm(width, outputs, 1)]
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
    def __init__(self, blocks, bottleneck, classes, small_stem):
        super().__init__()
        self.stem = conv_norm(3, 64, 3) if small_stem else conv_norm(3, 64, 7, 2)
        self.pool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
        layers, inputs = [], 64
        for stage, count in enumerate(blocks):
            width = 64 << stage
            for i in range(count):
                layers.append(Block(inputs, width, 2 if stage > 0 and i == 0 else 1, bottleneck))
                inputs = width * 4 if bottleneck else width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.layers(self.pool(F.relu(self.stem(x), inplace=True)))
        return self.fc(x.mean((2, 3)))


def resnet18(classes, small_stem):
    return ResNet((2, 2, 2, 2), False, classes, small_stem)


def resnet50(classes, small_stem):
    return ResNet((3, 4, 6, 3), True, classes, small_stem)


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
        self.scaler = torch.amp.GradScaler(enabled=amp == torch.float16)

    def __call__(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", self.amp, enabled=self.amp is not None):
            logits = self.model(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss
