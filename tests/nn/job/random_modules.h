// Modules of random networks that do what no layer does.
#pragma once

#include <sinter/core/op/node.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn::testing {

/// A convolution with weights of mean 0 and variance 1 in every filter: ops on a parameter alone.
struct StandardizedConv2d : Module {
  StandardizedConv2d(const Tensor& value, Layout images)
      : weight(parameter("weight", value, {.layout = images})), layout(images) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor centred = weight - ops::mean(weight, {1, 2, 3}, {.keep_dims = true});
    const Tensor scale = ops::rsqrt(ops::mean(ops::square(centred), {1, 2, 3}, {.keep_dims = true}) + 0.01);
    return ops::conv2d(x, centred * scale, {}, {.layout = layout});
  }
  Parameter weight;
  Layout layout;
};

/// Adds a running mean of what it has seen, before or after it takes in the present batch.
struct RunningShift : Module {
  explicit RunningShift(bool late, DType dtype) : changes_late(late) { to(dtype); }
  Tensor forward(const Tensor& x) const override {
    Tensor y;
    if (changes_late) y = x + mean;
    {
      const NoGrad no_grad;
      ops::copy_(mean, mean * 0.75 + ops::reshape(ops::mean(x), {1}) * 0.25);
    }
    return changes_late ? y : x + mean;
  }
  Buffer mean = buffer("mean", Tensor::zeros({1}));
  bool changes_late;
};

/// Multiplies channels by what a small network makes of their means.
struct Gate : Module {
  Gate(int64_t channels, Layout images)
      : pool(child("pool", GlobalAvgPool2d(images))),
        linear(child("linear", Linear(channels, channels))),
        layout(images) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor gate = ops::sigmoid(linear(pool(x)));
    const int64_t n = gate.size(0), c = gate.size(1);
    return x *
           (layout == Layout::kNCHW ? ops::reshape(gate, {n, c, 1, 1}) : ops::reshape(gate, {n, 1, 1, c}));
  }
  GlobalAvgPool2d pool;
  Linear linear;
  Layout layout;
};

}  // namespace sinter::nn::testing
