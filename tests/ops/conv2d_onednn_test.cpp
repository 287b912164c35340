// Convolutions by oneDNN: against the float64 reference on random shapes, in whole parts of the batch and
// with a rest, and with any number of threads. Skipped where Sinter is built without oneDNN, or the processor
// has not the instructions.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>

#include "common/test_cases.h"
#include "common/threads.h"

namespace sinter::ops {
namespace {

using test::Threads;

// Fresh memory reads as NaN in this program, so that an element which a kernel forgot to write is seen.
[[maybe_unused]] const int memory_is_poisoned = setenv("SINTER_MEMORY", "poison", 0);

constexpr const char* kOps[] = {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"};

class Conv2dOneDnn : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const Conv2dGeometry any =
        conv2d_geometry("test", Shape{8, 1, 1, 1}, Shape{1, 1, 1, 1}, {.layout = Layout::kNHWC});
    if (!conv2d_onednn_can_run(any, Conv2dPass::kForward, GetParam()))
      GTEST_SKIP() << "no oneDNN, or none with kernels for " << to_string(GetParam()) << " on this processor";
  }
};

/// The result of a call on oneDNN's kernel; nothing where oneDNN has none for it.
std::optional<Tensor> on_onednn(const char* op, const OpSample& sample) {
  const NoGrad no_grad;
  const ForcedKernel forced(op, "onednn");
  try {
    Tensor result = call(builtin(op), sample.inputs, sample.attributes).front();
    EXPECT_EQ(forced.runs(), 1);
    return result;
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

void expect_reference(const char* op, const Tensor& result, const OpSample& sample) {
  const OpSamples& samples = *SampleRegistry::builtin().find(op);
  const ReferenceTensor expected = samples.reference(sample).front(), got = reference_of(result);
  ASSERT_EQ(result.shape(), expected.shape);
  const double tolerance = tolerance_of(result.dtype(), largest_of(expected), samples, sample, 0);
  for (int64_t i = 0; i < result.numel(); ++i)
    ASSERT_LE(std::abs(got[i] - expected[i]), tolerance) << "element " << i << ": " << got[i];
}

/// Calls of the three ops on the same convolution.
std::vector<OpSample> samples_of(const Conv2dAttributes& options, const Shape& x_shape,
                                 const Shape& weight_shape, DType dtype) {
  SampleMaker maker(5, dtype);
  const Conv2dGeometry g = conv2d_geometry("test", x_shape, weight_shape, options);
  const Tensor x = maker.tensor(x_shape), weight = maker.tensor(weight_shape);
  const Tensor dy = maker.tensor(g.y_shape()), bias = maker.tensor({g.out_channels});
  return {{{x, weight, bias}, options},
          {{dy, weight}, Conv2dGradInputAttributes{options, {g.height.input, g.width.input}}},
          {{x, dy}, Conv2dGradWeightAttributes{options, {g.height.kernel, g.width.kernel}}}};
}

TEST_P(Conv2dOneDnn, MatchesTheReferenceOnRandomCalls) {
  const uint64_t seed = test::random_seed(20261127);
  const int cases = test::random_cases(100);
  int ran[3] = {};
  for (int i = 0; i < cases; ++i) {
    SampleMaker maker(seed + static_cast<uint64_t>(i), GetParam());
    Conv2dAttributes options{.layout = Layout::kNHWC};
    if (GetParam() == DType::kBFloat16) {
      options.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
      options.groups = maker.pick<int64_t>({1, 1, 1, 2, 3});
    }
    const bool is_usual = maker.chance(0.5);  // then the filters' gradient has a kernel too
    if (is_usual) options.groups = 1;
    std::array<int64_t, 2> size{}, kernel{};
    for (size_t axis = 0; axis < 2; ++axis) {
      kernel[axis] = maker.pick<int64_t>({1, 1, 2, 3, 3, 5});
      options.stride[axis] = maker.integer(1, is_usual ? 2 : 3);
      options.dilation[axis] = is_usual ? 1 : maker.pick<int64_t>({1, 1, 2});
      const int64_t reach = options.dilation[axis] * (kernel[axis] - 1);
      options.padding[axis] = maker.integer(0, is_usual ? kernel[axis] / 2 : reach + 1);
      size[axis] = maker.integer(std::max<int64_t>(1, reach + 1 - 2 * options.padding[axis]), reach + 8);
    }
    const int64_t in = maker.integer(1, 40), out = maker.integer(1, 40), batch = maker.integer(8, 20);
    const std::vector<OpSample> samples =
        samples_of(options, image_shape(options.layout, batch, in * options.groups, size[0], size[1]),
                   image_shape(options.layout, out * options.groups, in, kernel[0], kernel[1]), GetParam());
    for (size_t op = 0; op < samples.size(); ++op) {
      SCOPED_TRACE(fmt::format("{} seed {} {} {}", kOps[op], seed + static_cast<uint64_t>(i),
                               samples[op].inputs[0].shape(), to_string(samples[op].attributes)));
      const std::optional<Tensor> result = on_onednn(kOps[op], samples[op]);
      if (!result) continue;
      ++ran[op];
      expect_reference(kOps[op], *result, samples[op]);
      if (HasFatalFailure()) return;
    }
  }
  for (size_t op = 0; op < 3; ++op)
    EXPECT_GE((op == 2 ? 5 : 2) * ran[op], cases) << kOps[op] << ": more should have a kernel of oneDNN's";
}

/// 8: parts of one image; 33: parts of two images and a rest; 37, of larger images: a rest of the filters'
/// gradient.
TEST_P(Conv2dOneDnn, MatchesTheReferenceWithARestOfTheBatch) {
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    if (layout == Layout::kNCHW && GetParam() == DType::kFloat32) continue;
    for (const int64_t batch : {8, 9, 33, 37}) {
      const int64_t size = batch == 37 ? 14 : 5;
      const Conv2dAttributes options{.stride = {2, 1}, .padding = {1, 1}, .layout = layout};
      const std::vector<OpSample> samples = samples_of(options, image_shape(layout, batch, 17, size, size),
                                                       image_shape(layout, 19, 17, 3, 3), GetParam());
      for (size_t i = 0; i < samples.size(); ++i) {
        SCOPED_TRACE(fmt::format("{} batch {} {}", kOps[i], batch, to_string(layout)));
        const std::optional<Tensor> result = on_onednn(kOps[i], samples[i]);
        ASSERT_TRUE(result.has_value());
        expect_reference(kOps[i], *result, samples[i]);
      }
    }
  }
}

TEST_P(Conv2dOneDnn, DoesNotDependOnTheThreads) {
  const Conv2dAttributes options{.stride = {1, 2}, .padding = {1, 1}, .layout = Layout::kNHWC};
  const std::vector<OpSample> samples = samples_of(options, {21, 13, 11, 32}, {48, 3, 3, 32}, GetParam());
  for (size_t i = 0; i < samples.size(); ++i) {
    std::optional<Tensor> first;
    for (const int threads : {1, 2, 3, 5}) {
      const Threads guard(threads);
      const std::optional<Tensor> result = on_onednn(kOps[i], samples[i]);
      ASSERT_TRUE(result.has_value());
      if (!first) first = result;
      EXPECT_EQ(std::memcmp(result->raw_data(), first->raw_data(), first->spec().bytes()), 0)
          << kOps[i] << " with " << threads << " threads";
    }
  }
}

TEST_P(Conv2dOneDnn, ReadsNoOtherImage) {
  // A neighbour's values, read by mistake, would turn the result into NaN.
  const Conv2dAttributes options{.padding = {1, 1}, .layout = Layout::kNHWC};
  std::vector<float> values(8 * 5 * 5 * 16, 1.0F);
  std::fill(values.begin() + 4 * 5 * 5 * 16, values.end(), std::nanf(""));
  const Tensor x = Tensor::from_values(values, {8, 5, 5, 16}).to(GetParam());
  const Tensor weight = Tensor::full({8, 3, 3, 16}, 1.0, {.dtype = GetParam()});
  const std::optional<Tensor> y = on_onednn("conv2d", {{x, weight, Tensor()}, options});
  ASSERT_TRUE(y.has_value());
  const ReferenceTensor got = reference_of(*y);
  EXPECT_EQ(got[0], 64.0);
  for (int64_t i = 0; i < y->numel() / 2; ++i) ASSERT_FALSE(std::isnan(got[i])) << "element " << i;
}

TEST_P(Conv2dOneDnn, IsChosenWhereItPays) {
  const Conv2dAttributes options{.layout = Layout::kNHWC};
  const std::vector<OpSample> samples = samples_of(options, {8, 9, 9, 32}, {64, 1, 1, 32}, GetParam());
  for (size_t i = 0; i < samples.size(); ++i) {
    const NoGrad no_grad;
    const std::vector<Tensor> results = call(builtin(kOps[i]), samples[i].inputs, samples[i].attributes);
    const std::optional<Tensor> forced = on_onednn(kOps[i], samples[i]);
    ASSERT_TRUE(forced.has_value());
    EXPECT_EQ(std::memcmp(results.front().raw_data(), forced->raw_data(), forced->spec().bytes()), 0)
        << kOps[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dOneDnn, testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& of) { return std::string(to_string(of.param)); });

}  // namespace
}  // namespace sinter::ops
