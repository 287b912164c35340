// A user's program: trains some steps with the installed Sinter, then checks values and gradient of the op of
// examples/custom_op, loaded at run time, on the CPU and, if it has a kernel there, on a GPU, and its part in
// jobs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/version.h>

using namespace sinter;

namespace {

bool training_works() {
  const auto model = nn::resnet20({.classes = 4, .width = 4});
  nn::SGD sgd(model.parameters(), {.momentum = 0.9});
  const Tensor images = Tensor::full({8, 3, 8, 8}, 0.5);
  const Tensor labels = Tensor::from_values(std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}, {8});
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = nn::CrossEntropyLoss{}(model(images), labels);
    last = loss.item();
    if (step == 0) first = last;
    sgd.zero_grad();
    backward(loss);
    sgd.step(0.05);
  }
  std::printf("Sinter %s: loss %.4f, after four steps %.4f\n", SINTER_VERSION, first, last);
  return last < first;
}

/// The op's values on `device`.
std::vector<double> cubes(const Op& op, const std::vector<double>& x, Device device) {
  const Tensor input = Tensor::from_values(x, {static_cast<int64_t>(x.size())}, device);
  return call(op, {input}).front().to_vector<double>();
}

/// Values against arithmetic, and the gradient against central differences of the values on that device.
bool op_is_right(const Op& op, Device device) {
  std::vector<double> points(1001);  // an odd count: whole packs and a rest
  for (size_t i = 0; i < points.size(); ++i) points[i] = -2.0 + 0.004 * static_cast<double>(i);

  const Tensor x =
      Tensor::from_values(points, {static_cast<int64_t>(points.size())}, device).set_requires_grad(true);
  const Tensor y = call(op, {x}).front();
  backward(ops::sum(y));
  const std::vector<double> values = y.to_vector<double>();
  const std::vector<double> slopes = x.grad().to_vector<double>();

  constexpr double step = 1e-5;
  std::vector<double> right = points, left = points;
  for (double& value : right) value += step;
  for (double& value : left) value -= step;
  const std::vector<double> above = cubes(op, right, device), below = cubes(op, left, device);
  double worst_value = 0.0, worst_slope = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double cube = points[i] * points[i] * points[i];
    worst_value = std::max(worst_value, std::abs(values[i] - cube));
    worst_slope = std::max(worst_slope, std::abs(slopes[i] - (above[i] - below[i]) / (2.0 * step)));
  }
  const bool passed = worst_value <= 1e-12 && worst_slope <= 1e-8;
  std::printf("%s on %s: values off by %.1e, gradient by %.1e: %s\n", op.name().c_str(),
              to_string(device).c_str(), worst_value, worst_slope, passed ? "right" : "WRONG");
  return passed;
}

bool gradcheck_passes(const Op& op) {
  const Tensor x = Tensor::from_values(std::vector<double>{0.5, -1.5, 2.0}, {3}).set_requires_grad(true);
  const auto result = gradcheck([&](const auto& inputs) { return call(op, {inputs[0]}); }, {x});
  std::printf("%s: %s\n", op.name().c_str(), result.passed ? "gradcheck passed" : result.message.c_str());
  return result.passed;
}

/// A network with the op in the middle, written channels-first in float32.
struct CubeNet : nn::Module {
  explicit CubeNet(const Op& op) : cube(op) {}
  const Op& cube;
  nn::Conv2d first = child("first", nn::Conv2d(3, 8, 3, {.padding = 1, .layout = Layout::kNCHW}));
  nn::Conv2d second = child("second", nn::Conv2d(8, 8, 3, {.padding = 1, .layout = Layout::kNCHW}));
  nn::Linear last = child("last", nn::Linear(8, 4));
  Tensor forward(const Tensor& x) const override {
    const Tensor cubes = call(cube, {first(x)}).front();
    return last(ops::global_avg_pool2d(second(cubes), {.layout = Layout::kNCHW}));
  }
};

/// A job in bfloat16 and channels-last: the op takes part in both, and the job trains as eager code does.
bool takes_part_in_jobs(const Op& op) {
  const CubeNet model(op), eager = nn::clone(model);
  nn::SGD sgd(model.parameters(), {.momentum = 0.9}), eager_sgd(eager.parameters(), {.momentum = 0.9});
  nn::TrainJob job(model, nn::CrossEntropyLoss{}, sgd,
                   {.precision = DType::kBFloat16, .layout = Layout::kNHWC});
  std::vector<float> pixels(8 * 3 * 6 * 6);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  const Tensor images = Tensor::from_values(pixels, {8, 3, 6, 6});
  const Tensor labels = Tensor::from_values(std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}, {8});
  double worst = 0.0;
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = nn::CrossEntropyLoss{}(eager(images), labels);
    eager_sgd.zero_grad();
    backward(loss);
    eager_sgd.step(0.05);
    worst = std::max(worst, std::abs(job.step(images, labels, 0.05).item() - loss.item()));
  }
  bool follows = false;
  for (const GraphNode* node : job.program().graph().nodes()) {
    if (node->op == &op) follows = node->outputs[0]->spec == TensorSpec{{8, 6, 6, 8}, DType::kBFloat16, {}};
  }
  const bool passed = follows && worst < 0.02;
  std::printf("%s in a job: %s, losses off by %.1e: %s\n", op.name().c_str(),
              follows ? "bfloat16 and channels-last" : "left as it was", worst, passed ? "right" : "WRONG");
  return passed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: consumer cube_op.so\n");
    return 2;
  }
  bool passed = training_works();
  load_library(argv[1]);
  const Op& op = OpRegistry::instance().get("cube");
  passed = gradcheck_passes(op) && passed;
  passed = op_is_right(op, Device::cpu()) && passed;
  passed = takes_part_in_jobs(op) && passed;
  const bool has_gpu_kernel = std::any_of(op.kernels.begin(), op.kernels.end(), [](const Kernel& kernel) {
    return kernel.device == DeviceType::kCuda;
  });
  if (has_gpu_kernel && is_available(Device::cuda())) {
    passed = op_is_right(op, Device::cuda()) && passed;
  } else if (has_gpu_kernel) {
    std::printf("%s: no GPU here, its kernel was compiled and not run\n", op.name().c_str());
  }
  return passed ? 0 : 1;
}
