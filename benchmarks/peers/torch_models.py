"""The networks of common/train_networks.h, and the training step that both peers time."""
import torch
import torch.nn.functional as F
from torch import nn


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
    def __init__(self, blocks, bottleneck, classes, small_stem, groups=1):
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


class FaceBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), *conv_norm(inputs, outputs, 3), nn.PReLU(outputs), *conv_norm(outputs, outputs, 3, stride))
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class Faces(nn.Module):
    """iResNet-50 and an ArcFace head: logits, whose softmax is the loss."""

    takes_labels = True

    def __init__(self, people):
        super().__init__()
        layers, inputs = [*conv_norm(3, 64, 3), nn.PReLU(64)], 64
        for outputs, count in ((64, 3), (128, 4), (256, 14), (512, 3)):
            for i in range(count):
                layers.append(FaceBlock(inputs, outputs, 2 if i == 0 else 1))
                inputs = outputs
        self.backbone = nn.Sequential(*layers, nn.BatchNorm2d(512), nn.Flatten())
        self.embed = nn.Sequential(nn.Linear(512 * 7 * 7, 512), nn.BatchNorm1d(512))
        self.centres = nn.Parameter(torch.randn(people, 512) * 0.01)

    def forward(self, images, labels):
        embeddings = F.normalize(self.embed(self.backbone(images)))
        cosine = F.linear(embeddings, F.normalize(self.centres)).float().clamp(-1 + 1e-6, 1 - 1e-6)
        angle = torch.acos(cosine.gather(1, labels[:, None]))
        return cosine.scatter(1, labels[:, None], torch.cos(angle + 0.5)) * 64


def vgg16_prelu(classes):
    layers, inputs = [], 3
    for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if outputs == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [*conv_norm(inputs, outputs, 3), nn.PReLU(outputs)]
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnext50(classes):
    return ResNet((3, 4, 6, 3), True, classes, False, groups=32)


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
            logits = self.model(images, labels) if getattr(self.net, "takes_labels", False) else self.model(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=self.label_smoothing)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss
