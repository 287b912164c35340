// Host time of eager calls: microseconds that the calling thread spends on an op whose tensors are so small
// that nothing else counts. On a GPU that is the time to submit the work; the queue is emptied, untimed,
// between batches of calls. The peer is peers/torch_eager_overhead.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/ops/affine/affine.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/relu/relu.h>

namespace {

using sinter::Device;
using sinter::DType;
using sinter::Shape;
using sinter::Tensor;

struct Case {
  std::string name;
  std::function<void()> call;
  int calls = 200;  // between two waits: fewer than a GPU's queue holds
};

/// Microseconds of one call: the best and the median of many batches.
struct Timing {
  double best, median;
};

Timing measure(const Case& timed, Device device, int batches) {
  std::vector<double> times;
  for (int batch = -3; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < timed.calls; ++i) timed.call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    sinter::synchronize(device);
    if (batch >= 0) times.push_back(took.count() / timed.calls);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

/// An op that does nothing: what is left is the call itself.
const sinter::Op& no_op() {
  static const sinter::Op& op = [&]() -> const sinter::Op& {
    auto& registry = sinter::OpRegistry::instance();
    const sinter::Op& added = registry.add(
        {.name = "benchmark_no_op",
         .inputs = {{"x"}},
         .outputs = {{"y"}},
         .infer =
             [](const sinter::InferContext& context) {
               return std::vector<sinter::TensorSpec>{context.input(0)};
             },
         .gradient =
             [](const sinter::GradientContext& context) { return std::vector<Tensor>{context.grad()}; }});
    for (const auto device : {sinter::DeviceType::kCpu, sinter::DeviceType::kCuda}) {
      registry.add_kernel("benchmark_no_op", {.device = device, .run = [](const sinter::KernelContext&) {}});
    }
    return added;
  }();
  return op;
}

Tensor filled(const Shape& shape, Device device, bool requires_grad) {
  return sinter::ops::full(shape, 0.5, DType::kFloat32, device).set_requires_grad(requires_grad);
}

std::vector<Case> op_cases(Device device, bool requires_grad) {
  namespace ops = sinter::ops;
  const Tensor a = filled({8, 8}, device, requires_grad), b = filled({8, 8}, device, requires_grad);
  const Tensor image = filled({2, 8, 4, 4}, device, requires_grad);
  const Tensor filter = filled({8, 8, 1, 1}, device, requires_grad);
  const Tensor scale = filled({8}, device, requires_grad), shift = filled({8}, device, requires_grad);
  const Tensor mean = filled({8}, device, false), variance = filled({8}, device, false);
  return {
      {"no-op", [=] { sinter::call(no_op(), {a}); }},
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
    namespace ops = sinter::ops;
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

  std::vector<sinter::nn::Parameter> weights, biases, parameters;
};

std::vector<Case> training_cases(Device device) {
  const Mlp mlp(device);
  const Tensor x = filled({4, 8}, device, false);
  const auto sgd = std::make_shared<sinter::nn::Sgd>(mlp.parameters, sinter::nn::SgdOptions{.momentum = 0.9});
  return {
      {"mlp forward", [=] { mlp.loss(x); }, 20},
      {"mlp forward, backward",
       [=] {
         mlp.drop_gradients();
         sinter::backward(mlp.loss(x));
       },
       20},
      {"mlp forward, backward, sgd",
       [=] {
         sgd->zero_grad();
         sinter::backward(mlp.loss(x));
         sgd->step(1e-3);
       },
       20},
  };
}

}  // namespace

int main(int argc, char** argv) try {
  const Device device = Device::parse(argc > 1 ? argv[1] : "cpu");
  const std::string_view filter = argc > 2 ? argv[2] : "";
  const int batches = argc > 3 ? std::stoi(argv[3]) : 100;
  const auto run = [&](const char* group, const std::vector<Case>& cases) {
    for (const Case& timed : cases) {
      const std::string name = timed.name + group;
      if (name.find(filter) == std::string::npos) continue;
      const Timing timing = measure(timed, device, batches);
      std::printf("%-32s %8.3f us (median %.3f)\n", name.c_str(), timing.best, timing.median);
    }
  };
  std::printf("host time per call on %s\n", to_string(device).c_str());
  run("", op_cases(device, false));
  run(" (recorded)", op_cases(device, true));
  run("", training_cases(device));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
