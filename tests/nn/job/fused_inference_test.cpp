// Inference by jobs whose convolutions take in bias, shortcut and activation: the values of eager code, for
// networks of several kinds, and how few calls are left.
#include <map>

#include <sinter/nn/job/infer_job.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/upsample/upsample.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// Biases that are not the initial ones.
void make_uneven(const ModuleBase& model) {
  int64_t seed = 1;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.name().ends_with("bias"))
      ops::copy_(parameter.tensor().detach(), floats(parameter.shape(), ++seed));
  }
}

std::map<std::string, int> calls_of(const InferJob& job) {
  std::map<std::string, int> counts;
  for (const ProgramCall& call : job.program().calls()) ++counts[call.node->op->name()];
  return counts;
}

/// A U-Net of two levels with sums and joins, written for NCHW.
struct UNet : Module {
  Tensor forward(const Tensor& x) const override {
    const Tensor a = ops::relu(bn1(conv1(x)));
    const Tensor b = ops::relu(bn2(conv2(a)));
    const Tensor up = ops::upsample(b, {.size = Size2d(a.shape()[2], a.shape()[3])});
    return head(act(bn3(conv3(ops::concat(std::vector<Tensor>{a, up}, 1))) + a));
  }
  Conv2d conv1 = child("conv1", Conv2d(3, 8, 3, {.padding = 1, .bias = false})),
         conv2 = child("conv2", Conv2d(8, 16, 3, {.stride = 2, .padding = 1})),
         conv3 = child("conv3", Conv2d(24, 8, 3, {.padding = 1, .bias = false})),
         head = child("head", Conv2d(8, 2, 1));
  BatchNorm2d bn1 = child("bn1", BatchNorm2d(8)), bn2 = child("bn2", BatchNorm2d(16)),
              bn3 = child("bn3", BatchNorm2d(8));
  PReLU act = child("act", PReLU(8));
};

struct Network {
  const char* name;
  std::function<AnyModule(Device)> make;
  int64_t size = 32;
  std::map<std::string, int> left = {};  ///< calls that the job may still make, beside convolutions
};

template <class Model>
AnyModule on(Device device, Model model, int64_t size = 32) {
  make_uneven(model);
  // Statistics that are not the initial ones and fit what comes, so that float16 holds it.
  model.train();
  for (int i = 0; i < 20; ++i) model(floats({4, 3, size, size}, 20 + i));
  model.to(device);
  model.eval();
  return AnyModule(model);
}

std::vector<Network> networks() {
  const std::map<std::string, int> resnet{{"max_pool2d", 1}, {"global_avg_pool2d", 1}, {"linear", 1}};
  return {
      {"resnet18",
       [](Device d) { return on(d, resnet18({.classes = 5, .width = 16, .layout = Layout::kNCHW})); }, 32,
       resnet},
      {"resnet50",
       [](Device d) { return on(d, resnet50({.classes = 5, .width = 16, .layout = Layout::kNCHW})); }, 32,
       resnet},
      {"resnext",
       [](Device d) {
         return on(
             d,
             resnet50(
                 {.classes = 5, .width = 16, .layout = Layout::kNCHW, .groups = 4, .width_per_group = 16}));
       },
       32, resnet},
      {"with squeeze and excitation",
       [](Device d) {
         return on(d, resnet18({.classes = 5, .width = 32, .layout = Layout::kNCHW, .squeeze_excite = true}));
       }},
      {"iresnet18",
       [](Device d) {
         return on(d, iresnet18({.dimensions = 16, .image_size = 32, .layout = Layout::kNCHW}));
       },
       32,
       {{"batch_norm", 2}, {"linear", 1}}},
      {"u-net", [](Device d) { return on(d, UNet(), 12); }, 12, {{"concat", 1}, {"upsample", 1}}},
  };
}

double scale_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

void expect_same(const Tensor& got, const Tensor& expected, double tolerance) {
  const std::vector<float> want = expected.to(Device::cpu()).to_vector<float>(),
                           have = got.to(Device::cpu()).to_vector<float>();
  ASSERT_EQ(have.size(), want.size());
  const double scale = scale_of(want);
  ASSERT_GT(scale, 0.0);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(have[i], want[i], tolerance * scale) << i;
}

/// The root of the mean squared difference.
double error_of(const Tensor& got, const Tensor& expected) {
  const std::vector<float> want = expected.to(Device::cpu()).to_vector<float>(),
                           have = got.to(Device::cpu()).to_vector<float>();
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) sum += (have[i] - want[i]) * (have[i] - want[i]);
  return std::sqrt(sum / static_cast<double>(want.size()));
}

TEST(FusedInference, GivesTheValuesOfEagerCode) {
  const NoGrad no_grad;
  for (const Device device : devices_here()) {
    for (const Network& network : networks()) {
      manual_seed(7);
      const AnyModule model = network.make(device);
      const Tensor x = floats({8, 3, network.size, network.size}, 3).to(device);
      const Tensor expected = model(x);
      const InferJobOptions ways[] = {{},
                                      {.layout = Layout::kNHWC},
                                      {.precision = DType::kFloat16, .layout = Layout::kNHWC},
                                      {.precision = DType::kBFloat16, .layout = Layout::kNHWC},
                                      {.precision = DType::kFloat16}};
      for (const InferJobOptions& way : ways) {
        SCOPED_TRACE(fmt::format("{} on {} {} {}", network.name, device,
                                 way.precision ? fmt::format("{}", *way.precision) : "float32",
                                 way.layout ? "NHWC" : "as it is"));
        InferJob infer(model, way);
        for (int run = 0; run < 3; ++run) {
          const Tensor got = infer(x);
          if (!way.precision) {
            expect_same(got, expected, 2e-5);
            continue;
          }
          // In 16 bits what the layers make of their roundings decides; fused calls round less often.
          InferJobOptions apart = way;
          apart.passes.without = {"fuse_convolution"};
          InferJob separate(model, apart);
          EXPECT_LE(error_of(got, expected), 2.0 * error_of(separate(x), expected)) << "run " << run;
        }
        std::map<std::string, int> calls = calls_of(infer);
        EXPECT_GT(calls["conv2d_bias_act"], 0) << infer.report();
        if (network.left.empty() || way.precision || way.layout) continue;
        calls.erase("conv2d_bias_act");
        calls.erase("conv2d");
        calls.erase("reshape");
        EXPECT_EQ(calls, network.left) << infer.report();
      }
    }
  }
}

TEST(FusedInference, FollowsTheWeights) {
  const NoGrad no_grad;
  for (const Device device : devices_here()) {
    const AnyModule model = networks()[0].make(device);
    InferJob infer(model);
    const Tensor x = floats({2, 3, 32, 32}, 3).to(device);
    expect_same(infer(x), model(x), 2e-5);
    for (const Parameter& parameter : model.parameters()) {
      const Tensor weights = parameter.tensor().detach();
      ops::copy_(weights, weights * 0.9);
    }
    expect_same(infer(x), model(x), 2e-5);
    EXPECT_EQ(infer.compilations(), 1);
  }
}

// A captured job is launched before it is known that it still holds.
TEST(FusedInference, CapturedJobsSeeWhatHasChanged) {
  const NoGrad no_grad;
  for (const Device device : devices_here()) {
    AnyModule model = networks()[0].make(device);
    InferJob infer(model);
    const auto check = [&](int first) {
      for (int run = 0; run < 4; ++run) {
        const Tensor x = floats({2, 3, 32, 32}, first + run).to(device);
        expect_same(infer(x), model(x), 2e-5);
      }
    };
    check(10);
    for (const Parameter& parameter : model.parameters()) {
      const Tensor weights = parameter.tensor().detach();
      ops::copy_(weights, weights * 0.9);
    }
    check(20);
    EXPECT_EQ(infer.compilations(), 1);
    model.parameters()[0].tensor().set_requires_grad(!model.parameters()[0].tensor().requires_grad());
    check(30);
    EXPECT_EQ(infer.compilations(), 2);
    const Parameter weight = model.parameters()[0];
    model.to(Device::cpu());  // other tensors, of the same values but for one
    model.to(device);
    ops::copy_(weight.tensor().detach(), weight.tensor().detach() * 0.5);
    check(40);
    EXPECT_EQ(infer.compilations(), device.is_cpu() ? 2 : 3);
  }
}

TEST(FusedInference, CanBeLeftOut) {
  const NoGrad no_grad;
  const AnyModule model = networks()[0].make(Device::cpu());
  const Tensor x = floats({2, 3, 32, 32}, 3);
  InferJob fused(model), apart(model, {.passes = {.without = {"fuse_convolution"}}});
  expect_same(fused(x), apart(x), 2e-5);
  EXPECT_EQ(calls_of(apart).count("conv2d_bias_act"), 0U);
  EXPECT_EQ(calls_of(fused)["conv2d_bias_act"], 20);
}

}  // namespace
}  // namespace sinter::nn
