// Calls of a program against float64: kernels that are wrong on purpose, and sound ones.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/passes/calls/call_verifier.h>

#include "passes/damaged_call.h"
#include "passes/function_graph.h"

namespace sinter::passes {
namespace {

using namespace testing;

/// Convolution, sum, ReLU, mean, product and softplus in a dtype.
std::unique_ptr<Graph> network(DType dtype, Device device, int64_t channels) {
  const Tensor weight = ops::cast(random({channels, 3, 3, 3}), dtype).to(device);
  const Tensor last = ops::cast(random({channels, 7}), dtype).to(device);
  return graph_of({{{4, 3, 9, 9}, dtype, device}}, {{"weight", weight}, {"last", last}},
                  [&](const std::vector<Tensor>& x) {
                    const Tensor y = ops::conv2d(x[0], weight, {}, {.padding = {1, 1}});
                    const Tensor z = ops::relu(y * 0.5 + 0.125);
                    return std::vector<Tensor>{ops::softplus(ops::matmul(ops::mean(z, {2, 3}), last))};
                  });
}

std::vector<CallCheck> checks_of(const Graph& graph, const Tensor& x, size_t call, Fault fault) {
  Program program(graph.clone(), x.device());
  CallVerifier verifier(x.device());
  Damaged damaged(verifier, x.device(), call, fault);
  program.watch(&damaged);
  program.run({&x, 1});
  program.watch(nullptr);
  return verifier.checks();
}

class CallVerifierTest : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !is_available(device())) GTEST_SKIP() << "no GPU";
  }
  Device device() const { return {std::get<0>(GetParam()), 0}; }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(CallVerifierTest, NamesTheCallThatIsWrongAndNoOther) {
  int found = 0, seeded = 0;
  for (const int64_t channels : {4, 6, 12}) {
    const std::unique_ptr<Graph> graph = network(dtype(), device(), channels);
    const Tensor x = ops::cast(random({4, 3, 9, 9}), dtype()).to(device());
    const std::vector<CallCheck> sound = checks_of(*graph, x, 0, Fault::kNone);
    ASSERT_GE(sound.size(), 5u);
    for (const CallCheck& check : sound) {
      EXPECT_FALSE(check.is_wrong()) << to_string(check);
      EXPECT_EQ(check.why_not, "") << check.op;
    }
    for (size_t call = 0; call < sound.size(); ++call) {
      for (const Fault fault : {Fault::kLastRow, Fault::kChannel, Fault::kScale, Fault::kRelative}) {
        const std::vector<CallCheck> checks = checks_of(*graph, x, call, fault);
        ++seeded;
        found += checks[call].is_wrong() ? 1 : 0;
        EXPECT_TRUE(checks[call].is_wrong())
            << "fault " << static_cast<int>(fault) << ": " << to_string(checks[call]);
        for (size_t i = 0; i < checks.size(); ++i) {
          EXPECT_EQ(checks[i].is_wrong(), i == call) << to_string(checks[i]);
        }
      }
    }
  }
  EXPECT_EQ(found, seeded);
}

INSTANTIATE_TEST_SUITE_P(Devices, CallVerifierTest,
                         ::testing::Combine(::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                                            ::testing::Values(DType::kFloat64, DType::kFloat32,
                                                              DType::kFloat16, DType::kBFloat16)),
                         [](const auto& given) {
                           return fmt::format("{}_{}",
                                              std::get<0>(given.param) == DeviceType::kCpu ? "cpu" : "cuda",
                                              std::get<1>(given.param));
                         });

// ---- kernels that round in between, as their ops let them

/// Between a kernel and who watches: the op's first result is that of another kernel.
class OtherKernel final : public ProgramWatch {
 public:
  OtherKernel(ProgramWatch& next, std::string op, Tensor result)
      : next_(next), op_(std::move(op)), result_(std::move(result)) {}

  void before(const ProgramCall& call, std::span<const TensorView> inputs) override {
    next_.before(call, inputs);
  }
  void after(const ProgramCall& call, std::span<const TensorView> inputs,
             std::span<const TensorView> outputs) override {
    if (call.node->op->name() == op_) {
      ASSERT_EQ(outputs[0].shape, result_.shape());
      ASSERT_EQ(outputs[0].dtype, result_.dtype());
      copy_bytes(outputs[0].data, Device::cpu(), result_.raw_data(), Device::cpu(), result_.spec().bytes());
    }
    next_.after(call, inputs, outputs);
  }

 private:
  ProgramWatch& next_;
  std::string op_;
  Tensor result_;
};

std::vector<double> doubles(const Tensor& tensor) {
  return ops::cast(tensor, DType::kFloat64).to_vector<double>();
}
Tensor rounded(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return ops::cast(Tensor::from_values(values, shape), dtype);
}

/// A call of batch_norm_act_grad that gives the addend's gradient, from the sum of two.
struct NormGradient {
  static constexpr int64_t kImages = 3, kChannels = 5, kPlane = 12;
  const Shape shape{kImages, kChannels, 3, 4}, channels{kChannels};
  DType dtype;
  ops::fused::Activation activation;
  Tensor x = image(), dy = image(), dy2 = image(), addend = image();
  Tensor weight = random(channels), mean = random(channels), inv_std = random(channels) + 2.0;
  Tensor alpha = random(channels), mask;

  NormGradient(DType of, ops::fused::Activation with) : dtype(of), activation(with) {
    std::vector<uint8_t> bits(static_cast<size_t>((shape.numel() + 7) / 8));
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint8_t>(i * 89 + 37);
    mask = Tensor::from_values(bits, Shape{static_cast<int64_t>(bits.size())});
  }
  Tensor image() const { return ops::cast(random(shape), dtype); }
  bool is_prelu() const { return activation == ops::fused::Activation::kPRelu; }

  std::unique_ptr<Graph> graph() const {
    return graph_of({x.spec()}, {}, [&](const std::vector<Tensor>& given) {
      const auto grads = ops::vjp::batch_norm_act(
          dy, dy2, given[0], {.weight = weight, .mean = mean, .inv_std = inv_std}, addend, {},
          is_prelu() ? alpha : Tensor(), mask, {.addend_grad = true, .activation = activation});
      return std::vector<Tensor>{grads.dx, grads.daddend};
    });
  }
  /// dx as a kernel gives it that takes the sums from g and goes on from the addend's gradient.
  Tensor dx_of_written_gradient() const {
    const std::vector<double> of_x = doubles(x), of_dy = doubles(dy), of_dy2 = doubles(dy2);
    const auto bits = mask.to_vector<uint8_t>();
    const auto slopes = alpha.to_vector<float>(), means = mean.to_vector<float>();
    const std::vector<double> scale = doubles(inv_std), weights = doubles(weight);
    const auto channel_of = [&](size_t i) { return i / kPlane % kChannels; };
    std::vector<double> g(of_x.size()), dx(of_x.size()), sums(kChannels), deviations(kChannels);
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t c = channel_of(i);
      const bool passes = (bits[i / 8] >> i % 8 & 1) != 0;
      const float slope = passes ? 1.0f : is_prelu() ? slopes[c] : 0.0f;
      const float sum = static_cast<float>(of_dy[i]) + static_cast<float>(of_dy2[i]);
      g[i] = double{slope * sum};
      sums[c] += g[i];
      deviations[c] += g[i] * (of_x[i] - double{means[c]});
    }
    const std::vector<double> written = doubles(rounded(g, shape, dtype));
    for (size_t i = 0; i < g.size(); ++i) {
      const size_t c = channel_of(i);
      const auto map = ops::make_normalize_grad<float>(means[c], scale[c], weights[c],
                                                       1.0 / (kImages * kPlane), sums[c], deviations[c]);
      dx[i] = double{map(static_cast<float>(of_x[i]), static_cast<float>(written[i]))};
    }
    return rounded(dx, shape, dtype);
  }
};

TEST(CallVerifierRoundings, GradientOfANormMayFollowFromTheAddendsGradientAsWritten) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const auto activation : {ops::fused::Activation::kRelu, ops::fused::Activation::kPRelu}) {
      for (int i = 0; i < 10; ++i) {
        const NormGradient gradient(dtype, activation);
        const std::unique_ptr<Graph> graph = gradient.graph();
        const Tensor dx = gradient.dx_of_written_gradient();
        for (const Fault fault :
             {Fault::kNone, Fault::kLastRow, Fault::kChannel, Fault::kScale, Fault::kRelative}) {
          Program program(graph->clone(), Device::cpu());
          CallVerifier verifier(Device::cpu());
          Damaged damaged(verifier, Device::cpu(), 0, fault);
          OtherKernel other(damaged, "batch_norm_act_grad", dx);
          program.watch(&other);
          program.run({&gradient.x, 1});
          ASSERT_EQ(verifier.checks().size(), 1u);
          const CallCheck& check = verifier.checks()[0];
          EXPECT_EQ(check.op, "batch_norm_act_grad");
          EXPECT_EQ(check.why_not, "");
          EXPECT_EQ(check.is_wrong(), fault != Fault::kNone)
              << fmt::format("{}, fault {}: {}", dtype, static_cast<int>(fault), to_string(check));
        }
      }
    }
  }
}

TEST(CallVerifierRoundings, AnAddendMayCancelAConvolutionThatWasRounded) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (int i = 0; i < 10; ++i) {
      const Tensor weight = ops::cast(random({6, 6, 3, 3}), dtype),
                   x = ops::cast(random({4, 6, 9, 8}), dtype);
      const Tensor y = ops::conv2d(x, weight, {}, {.padding = {1, 1}});
      const Tensor addend = ops::cast(ops::cast(y, DType::kFloat32) * -0.98, dtype);
      ops::Conv2dActOptions options;
      options.padding = {1, 1};
      const std::unique_ptr<Graph> graph = graph_of(
          {x.spec()}, {{"weight", weight}, {"addend", addend}}, [&](const std::vector<Tensor>& given) {
            return std::vector<Tensor>{ops::conv2d_bias_act(given[0], weight, {}, addend, {}, options)};
          });
      for (const Fault fault : {Fault::kNone, Fault::kLastRow, Fault::kChannel, Fault::kScale}) {
        const std::vector<CallCheck> checks = checks_of(*graph, x, 0, fault);
        ASSERT_EQ(checks.size(), 1U);
        EXPECT_EQ(checks[0].why_not, "");
        EXPECT_EQ(checks[0].is_wrong(), fault != Fault::kNone)
            << fmt::format("{}, fault {}: {}", dtype, static_cast<int>(fault), to_string(checks[0]));
      }
    }
  }
}

/// The one call of `function` on a row of logits in float32.
std::vector<CallCheck> checks_of_logits(const std::vector<float>& logits, Fault fault,
                                        const std::function<Tensor(const Tensor&)>& function) {
  const Tensor x = Tensor::from_values(logits, Shape{1, static_cast<int64_t>(logits.size())});
  const std::unique_ptr<Graph> graph = graph_of({x.spec()}, {}, [&](const std::vector<Tensor>& given) {
    return std::vector<Tensor>{function(given[0])};
  });
  return checks_of(*graph, x, 0, fault);
}

TEST(CallVerifierRoundings, CrossEntropyIsOffByRoundingsOfASumAboveOne) {
  const Tensor target = Tensor::from_values(std::vector<int64_t>{0}, Shape{1});
  const auto loss = [&](const Tensor& x) {
    return ops::cross_entropy(x, target, {.reduction = ops::Reduction::kNone});
  };
  const auto logarithm = [](const Tensor& x) { return ops::log_softmax(x); };
  Tensor log_sum;
  const auto gradient = [&](const Tensor& x) {
    const Tensor dloss = Tensor::from_values(std::vector<float>{2.0f}, Shape{1});
    return ops::vjp::cross_entropy(dloss, x, target, log_sum, {.reduction = ops::Reduction::kNone}).logits;
  };
  for (const float apart : {5.0f, 9.0f, 13.0f, 15.3f, 16.5f, 17.5f, 25.0f, 80.0f}) {
    for (const auto& function : {std::function<Tensor(const Tensor&)>(loss), {logarithm}, {gradient}}) {
      for (const float largest : {0.0f, 7.25f}) {
        const std::vector<float> logits = {largest, largest - apart, largest - apart - 0.5f};
        double sum = 0.0;
        for (const float logit : logits) sum += std::exp(double{logit});
        log_sum = Tensor::from_values(std::vector<float>{static_cast<float>(std::log(sum))}, Shape{1});
        for (const CallCheck& check : checks_of_logits(logits, Fault::kNone, function)) {
          EXPECT_FALSE(check.is_wrong()) << "logits apart by " << apart << ": " << to_string(check);
          EXPECT_EQ(check.why_not, "");
        }
      }
    }
  }
  // What is allowed stays far below a loss that has not all but vanished.
  for (const float apart : {0.5f, 2.0f, 5.0f, 7.0f}) {
    const std::vector<CallCheck> checks =
        checks_of_logits({1.5f, 1.5f - apart, 1.0f - apart}, Fault::kRelative, loss);
    EXPECT_TRUE(checks.at(0).is_wrong()) << to_string(checks.at(0));
  }
}

TEST(DamagedCall, ShowsNothingWhereAKernelGivesRoundingsOnly) {
  const std::vector<float> terms = {0.3f, 1.7f, -0.3f, 0.9f, -1.7f, -0.9f};
  for (const bool cancel : {true, false}) {
    std::vector<float> values;
    for (int row = 0; row < 3; ++row) {
      for (const float term : terms) values.push_back(cancel ? term : std::abs(term));
    }
    const Tensor x = Tensor::from_values(values, Shape{3, 6});
    const std::unique_ptr<Graph> graph = graph_of({x.spec()}, {}, [](const std::vector<Tensor>& given) {
      return std::vector<Tensor>{ops::sum(given[0], {1})};
    });
    for (const Fault fault : {Fault::kNone, Fault::kScale}) {
      Program program(graph->clone(), Device::cpu());
      CallVerifier verifier(Device::cpu());
      Damaged damaged(verifier, Device::cpu(), 0, fault);
      const float left = cancel ? 0.0f : 5.8f;
      OtherKernel other(
          damaged, "sum",
          Tensor::from_values(std::vector<float>{left + 2.4e-7f, left, left - 1.2e-7f}, Shape{3}));
      program.watch(&other);
      program.run({&x, 1});
      EXPECT_EQ(damaged.shows(), fault != Fault::kNone && !cancel);
      EXPECT_EQ(verifier.checks().at(0).is_wrong(), fault != Fault::kNone && !cancel)
          << to_string(verifier.checks()[0]);
    }
  }
}

}  // namespace
}  // namespace sinter::passes
