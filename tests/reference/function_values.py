#!/usr/bin/env python3
"""Writes tests/ops/function_values.h: values and gradients of functions of <sinter/ops/ops.h> that are made of
others, by PyTorch in float64.

    tests/reference/function_values.py > tests/ops/function_values.h

Needs torch; the values came from torch 2.15. All inputs are multiples of 1/8, which every dtype holds.
"""
import torch
import torch.nn.functional as F


def pattern(shape, seed):
    count = torch.Size(shape).numel()
    return torch.tensor([((7 * i + 3 * seed) % 11 - 5) / 8 for i in range(count)], dtype=torch.float64).reshape(shape)


def write(name, values):
    numbers = ", ".join(repr(v) for v in values.detach().flatten().tolist())
    print(f'    {{"{name}", {{{numbers}}}}},')


def case(name, shapes, function):
    """Of inputs of these shapes: the result, and the gradients for a pattern of dy."""
    inputs = [pattern(shape, seed).requires_grad_() for seed, shape in enumerate(shapes)]
    y = function(*inputs)
    write(name, y)
    gradients = torch.autograd.grad(y, inputs, pattern(y.shape, 5))
    for i, gradient in enumerate(gradients):
        write(f"{name}.{i}", gradient)


print("""// Written by tests/reference/function_values.py.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sinter::ops {

// clang-format off
inline const std::map<std::string, std::vector<double>> kFunctionValues = {""")
case("prod", [(4, 5)], lambda x: x.prod(1))
case("prod.one_zero", [(5,)], lambda x: (x + torch.tensor([0, 0, 0.25, 0, 0])).prod())
case("cumsum", [(3, 4)], lambda x: x.cumsum(0))
case("cumsum.last", [(2, 5)], lambda x: x.cumsum(-1))
case("flip", [(2, 3, 2)], lambda x: x.flip(0, -1))
case("conv1d", [(2, 3, 5), (4, 3, 3), (4,)], lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1))
case("conv1d.groups", [(1, 4, 6), (4, 2, 2)], lambda x, w: F.conv1d(x, w, groups=2, dilation=2))
case("layer_norm", [(2, 3, 4), (3, 4), (3, 4)], lambda x, w, b: F.layer_norm(x, (3, 4), w, b))
case("group_norm", [(2, 4, 2, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b, eps=0.25))
case("instance_norm", [(2, 2, 2, 3), (2,), (2,)], lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=0.25))
case("adaptive_max_pool2d", [(1, 2, 5, 4)], lambda x: F.adaptive_max_pool2d(x, (3, 3)))
case("adaptive_max_pool2d.even", [(1, 2, 4, 6)], lambda x: F.adaptive_max_pool2d(x, (2, 3)))
case("pixel_shuffle", [(1, 8, 2, 3)], lambda x: F.pixel_shuffle(x, 2))
case("pixel_unshuffle", [(1, 2, 4, 6)], lambda x: F.pixel_unshuffle(x, 2))
print("""};
// clang-format on

}  // namespace sinter::ops""")
