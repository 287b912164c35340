#!/usr/bin/env python3
"""Prints timm's binary cross-entropies that tests/examples/train_resnet_recipe_options_test.cpp holds as constants.

Needs torch and timm; the constants came from torch 2.15 and timm 1.0.31. All in float64.
"""
import torch
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy

LOGITS = torch.tensor([[1.5, -0.5, 0.25], [-2.0, 0.75, 3.0]], dtype=torch.float64)
LABELS = torch.tensor([2, 0])
WEIGHT = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)


def row(name, loss, target):
    logits = LOGITS.clone().requires_grad_()
    value = loss(logits, target)
    value.backward()
    print(name, repr(value.item()), logits.grad.flatten().tolist())


# Targets of mixup in float32 as timm makes them, and smoothed in float64.
shares = mixup_target(LABELS, 3, 0.7, 0.0).double() * 0.9 + 0.1 / 3
row("indices", BinaryCrossEntropy(0.1), LABELS)
row("indices, weights", BinaryCrossEntropy(0.1, weight=WEIGHT), LABELS)
row("mixed", BinaryCrossEntropy(0.0), shares)
row("mixed, smoothed by timm in float32", BinaryCrossEntropy(0.0), mixup_target(LABELS, 3, 0.7, 0.1).double())
row("mixed, threshold", BinaryCrossEntropy(0.0, target_threshold=0.2), shares)
