// The cases of the eager overhead benchmarks: ops on tensors so small that only the call counts, and a small
// network in training. PyTorch's are in ../peers/torch_eager_overhead.py.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::bench {

struct EagerCase {
  std::string name;
  std::function<void()> call;
  int calls = 200;  // between two waits: their kernels fit into a GPU's queue
};

inline const Op& register_no_op() {
  auto& registry = OpRegistry::instance();
  const Op& op = registry.add(
      {.name = "benchmark_no_op",
       .inputs = {{"x"}},
       .outputs = {{"y"}},
       .infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; },
       .gradient = [](const GradientContext& context) { return std::vector<Tensor>{context.grad()}; }});
  for (const auto device : {DeviceType::kCpu, DeviceType::kCuda}) {
    registry.add_kernel("benchmark_no_op", {.device = device, .run = [](const KernelContext&) {}});
  }
  return op;
}

/// An op that does nothing: what is left is the call itself.
inline const Op& no_op() {
  static const Op& op = register_no_op();
  return op;
}

inline Tensor filled(const Shape& shape, Device device, bool requires_grad) {
  return ops::full(shape, 0.5, DType::kFloat32, device).set_requires_grad(requires_grad);
}

/// Without gradients, or recorded for them (the names say so).
inline std::vector<EagerCase> eager_op_cases(Device device, bool requires_grad) {
  const Tensor a = filled({8, 8}, device, requires_grad), b = filled({8, 8}, device, requires_grad);
  const Tensor image = filled({2, 8, 4, 4}, device, requires_grad);
  const Tensor filter = filled({8, 8, 1, 1}, device, requires_grad);
  const Tensor scale = filled({8}, device, requires_grad), shift = filled({8}, device, requires_grad);
  const Tensor mean = filled({8}, device, false), variance = filled({8}, device, false);
  std::vector<EagerCase> cases = {
      {"no-op", [=] { call(no_op(), {a}); }},
      {"add", [=] { ops::add(a, b); }},
      {"mul", [=] { ops::mul(a, b); }},
      {"relu", [=] { ops::relu(a); }},
      {"affine", [=] { ops::affine(a, 2.0, 0.0); }},
      {"matmul", [=] { ops::matmul(a, b); }},
      {"sum", [=] { ops::sum(a); }},
      {"batch_norm", [=] { ops::batch_norm(image, scale, shift, mean, variance); }},
      {"conv2d 1x1", [=] { ops::conv2d(image, filter); }},
      {"permute",
       [=] {
         ops::permute(image, {0, 2, 3, 1});
       }},
      {"concat",
       [=] {
         ops::concat({a, b}, 0);
       }},
  };
  if (requires_grad) {
    for (EagerCase& each : cases) each.name += " (recorded)";
  }
  return cases;
}

/// Three linear layers with ReLU between them.
struct Mlp {
  explicit Mlp(Device device) {
    for (const char* name : {"1", "2", "3"}) {
      weights.emplace_back(std::string("weight") + name, filled({8, 8}, device, false));
      biases.emplace_back(std::string("bias") + name, filled({8}, device, false));
    }
    parameters = weights;
    parameters.insert(parameters.end(), biases.begin(), biases.end());
    for (const auto& parameter : parameters) parameter.tensor().set_requires_grad(true);
  }
  Tensor loss(const Tensor& x) const {
    Tensor y = x;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i > 0) y = ops::relu(y);
      y = ops::linear(y, weights[i].tensor(), biases[i].tensor());
    }
    return ops::sum(y);
  }
  void drop_gradients() const {
    for (const auto& parameter : parameters) parameter.tensor().set_grad({});
  }

  std::vector<nn::Parameter> weights, biases, parameters;
};

inline std::vector<EagerCase> eager_training_cases(Device device) {
  const Mlp mlp(device);
  const Tensor x = filled({4, 8}, device, false);
  const auto sgd = std::make_shared<nn::SGD>(mlp.parameters, nn::SGDOptions{.momentum = 0.9});
  return {
      {"mlp forward", [=] { mlp.loss(x); }, 20},
      {"mlp forward, backward",
       [=] {
         mlp.drop_gradients();
         backward(mlp.loss(x));
       },
       20},
      {"mlp forward, backward, sgd",
       [=] {
         sgd->zero_grad();
         backward(mlp.loss(x));
         sgd->step(1e-3);
       },
       20},
  };
}

}  // namespace sinter::bench
