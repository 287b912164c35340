// Batch normalisation on a GPU by the kernel that keeps tensors on chip, forced on small shapes: blocks that
// stay alone and teams of them. The CPU's results are the reference.
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>

#include "ops/batch_norm_cuda_support.h"

namespace sinter::ops {
namespace {

using namespace testing_batch_norm;

constexpr DType kDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

/// Runs a call with its kernels forced, PReLU's gradient with any; whether they could run.
bool agrees_on_chip(const Call& call) {
  const Call::Results here = call.run(false, false);
  const bool gradient_too = call.options.activation != fused::Activation::kPRelu;
  Call::Results there;
  {
    const ForcedKernel forward("batch_norm_act", "resident");
    const ForcedKernel gradient("batch_norm_act_grad", gradient_too ? "resident" : "streaming");
    try {
      there = call.run(true, false, &here.outputs);
    } catch (const Unsupported&) {
      return false;
    }
    EXPECT_EQ(forward.runs() + gradient.runs(), 2);
  }
  const std::vector<Tensor> got = there.all(), expected = here.all();
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], expected[i], "result " + std::to_string(i));
  return true;
}

Call call_of(const Case& c, DType dtype, fused::Activation activation, bool adds, bool second,
             uint64_t seed) {
  Call call(c, dtype, activation, adds, false, seed);
  call.dy2 = {};
  if (adds && second) call.dy2 = cast(normal(c.shape, 0.3, 1.0, seed + 1000), dtype);
  return call;
}

Case any_case(Generator& generator) {
  const auto extent = [&](uint64_t most) { return 1 + static_cast<int64_t>(generator.below(most)); };
  const int64_t channels = generator.uniform() < 0.5 ? 8 * extent(60) : extent(700);
  switch (generator.below(4)) {
    case 0:
      return {{extent(600), channels}, Layout::kNCHW};
    case 1:
      return {{extent(12), extent(9), extent(9), channels}, Layout::kNHWC};
    case 2:
      return {{extent(6), extent(200), extent(40), extent(40)}, Layout::kNCHW};
    default:
      return {{extent(60), channels, extent(4), extent(4)}, Layout::kNCHW};
  }
}

TEST_F(BatchNormOnCuda, AgreesWithTheCpuOnChipOnRandomShapes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Generator generator(seed);
  int runs = 0;
  for (uint64_t i = 0; i < 160; ++i) {
    const Case c = any_case(generator);
    const DType dtype = kDtypes[i % std::size(kDtypes)];
    const auto activation = static_cast<fused::Activation>(generator.below(3));
    // The sum of two gradients may be rounded before it is used. Two or three elements may lie so close that
    // their gradient multiplies this rounding by 1/sqrt(epsilon): these take one gradient, which is exact on
    // both sides.
    const bool few = c.shape.numel() < 4 * c.shape[axis_of(c)];
    const bool adds = generator.uniform() < 0.5, second = generator.uniform() < 0.5 && !few;
    SCOPED_TRACE(fmt::format("{} {} {} {}{}", c.shape, dtype, to_string(activation), adds ? "adds " : "",
                             second ? "second " : ""));
    runs += agrees_on_chip(call_of(c, dtype, activation, adds, second, i)) ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(runs, 20);
}

/// Those of a channel spoil it, and no other.
TEST_F(BatchNormOnCuda, LeavesNanInItsChannelOnChip) {
  for (const Case& c : {Case{{100, 72}, Layout::kNCHW}, Case{{9, 5, 5, 96}, Layout::kNHWC},
                        Case{{3, 40, 7, 9}, Layout::kNCHW}, Case{{2, 48, 24, 24}, Layout::kNCHW}}) {
    SCOPED_TRACE(to_string(c.shape));
    const int64_t channels = c.shape[axis_of(c)], stride = c.shape.stride(axis_of(c));
    const ForcedKernel forward("batch_norm", "resident"), gradient("batch_norm_grad", "resident");
    Tensor x = normal(c.shape, 0.3, 1.0), dy = normal(c.shape, 0.1, 1.0, 8);
    const int64_t places[] = {0, x.numel() / 2, x.numel() - 1};
    for (const int64_t i : places) x.data<float>()[i] = std::nanf(""), dy.data<float>()[i] = INFINITY;
    const auto spoilt = [&](int64_t i) {
      return std::any_of(std::begin(places), std::end(places),
                         [&](int64_t place) { return place / stride % channels == i / stride % channels; });
    };
    const Tensor y = batch_norm(on_gpu(x), {}, {}, {}, {}, {.layout = c.layout});
    const Tensor mean = Tensor::full({channels}, 0.3).to(kGpu), ones = Tensor::full({channels}, 1.0).to(kGpu);
    const BatchNormGrads grads =
        vjp::batch_norm(on_gpu(dy), on_gpu(normal(c.shape, 0.3, 1.0)), {}, mean, ones, {.layout = c.layout});
    const auto y_values = y.to_vector<float>(), dx_values = grads.dx.to_vector<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      ASSERT_EQ(std::isnan(y_values[static_cast<size_t>(i)]), spoilt(i)) << i;
      ASSERT_EQ(!std::isfinite(dx_values[static_cast<size_t>(i)]), spoilt(i)) << i;
    }
  }
}

TEST_F(BatchNormOnCuda, MovesRunningStatisticsOnChip) {
  for (const Case& c : {Case{{100, 72}, Layout::kNCHW}, Case{{9, 5, 5, 96}, Layout::kNHWC}}) {
    const int64_t channels = c.shape[axis_of(c)];
    const Tensor x = normal(c.shape, 0.3, 2.0);
    std::vector<Tensor> means, variances;
    for (const bool gpu : {false, true}) {
      std::optional<ForcedKernel> forced;
      if (gpu) forced.emplace("batch_norm", "resident");
      const Tensor mean = Tensor::zeros({channels}), var = Tensor::full({channels}, 1.0);
      means.push_back(gpu ? on_gpu(mean) : mean), variances.push_back(gpu ? on_gpu(var) : var);
      batch_norm(gpu ? on_gpu(x) : x, {}, {}, means.back(), variances.back(), {.layout = c.layout});
    }
    expect_close(means[1], means[0], "mean");
    expect_close(variances[1], variances[0], "variance");
  }
}

TEST_F(BatchNormOnCuda, GivesTheSameBitsInEveryRunOnChip) {
  uint64_t seed = 3;
  for (const Case& c : {Case{{128, 720}, Layout::kNCHW}, Case{{9, 5, 5, 96}, Layout::kNHWC},
                        Case{{3, 96, 24, 24}, Layout::kNCHW}}) {
    const ForcedKernel forward("batch_norm_act", "resident"), gradient("batch_norm_act_grad", "resident");
    const Call call = call_of(c, DType::kFloat16, fused::Activation::kNone, true, true, ++seed);
    const std::vector<Tensor> first = call.run(true, false).all(), again = call.run(true, false).all();
    for (size_t i = 0; i < first.size(); ++i) {
      const Tensor a = first[i].to(Device::cpu()), b = again[i].to(Device::cpu());
      EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()), 0)
          << to_string(c.shape) << " result " << i;
    }
  }
}

}  // namespace
}  // namespace sinter::ops
