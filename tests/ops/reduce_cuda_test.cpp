// Reductions and selections on a GPU that are too large for the op samples: those that are cut into segments,
// and lines that are sorted. The CPU's results are the reference.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/topk/topk.h>

namespace sinter::ops {
namespace {

class LargeReductionsOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  }

  /// Multiples of 1/8 in [0, 4): exact in every floating-point dtype, with many equal values.
  static Tensor draw(const Shape& shape) {
    Generator generator(11);
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& value : values) value = static_cast<float>(generator.below(32)) / 8.0f;
    return Tensor::from_values(values, shape);
  }
};

struct Case {
  Shape shape;
  std::vector<int64_t> axes;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1 << 18}, {}},                 // all elements, in packs
      {{100003}, {}},                  // all elements, one by one
      {{4096, 64}, {0}},               // columns, in packs
      {{5000, 7}, {0}},                // columns, one by one
      {{64, 8, 32, 32}, {0, 2, 3}},    // channels of NCHW
      {{61, 3, 31, 33}, {0, 2, 3}},    // the same, one by one
      {{3, 70001}, {1}},               // few long rows
      {{2048, 128}, {1}},              // many rows
      {{6, 40, 5, 50, 4}, {0, 2, 4}},  // axes by turns
  };
  return all;
}

TEST_F(LargeReductionsOnCuda, SumsAreExactWhereTheElementsAllowIt) {
  for (const auto& [shape, axes] : cases()) {
    const Tensor x = draw(shape), there = x.to(Device::cuda());
    SCOPED_TRACE(to_string(shape));
    // Sums of multiples of 1/8 below 2^21 are exact in float32, in whatever order.
    EXPECT_EQ(sum(there, axes).to_vector<float>(), sum(x, axes).to_vector<float>());
    const Tensor halfs = cast(there, DType::kFloat16);
    EXPECT_EQ(cast(max(halfs, axes), DType::kFloat32).to_vector<float>(), max(x, axes).to_vector<float>());
    const Tensor integers = cast(x, DType::kInt32);
    EXPECT_EQ(sum(integers.to(Device::cuda()), axes).to_vector<int64_t>(),
              sum(integers, axes).to_vector<int64_t>());
  }
}

TEST_F(LargeReductionsOnCuda, RepeatedRunsGiveTheSameBits) {
  Generator generator(3);
  std::vector<float> values(1 << 18);
  for (float& value : values) value = static_cast<float>(generator.normal());
  const Tensor x = Tensor::from_values(values, {1 << 18}, Device::cuda());
  const std::vector<float> first = sum(x).to_vector<float>();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sum(x).to_vector<float>(), first);
}

TEST_F(LargeReductionsOnCuda, TheFirstExtremeElementTakesTheGradient) {
  for (const auto& [shape, axes] : cases()) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = draw(shape), dy = sum(x, axes);
    EXPECT_EQ(vjp::max(dy.to(Device::cuda()), x.to(Device::cuda()), {axes, false}).to_vector<float>(),
              vjp::max(dy, x, {axes, false}).to_vector<float>());
    EXPECT_EQ(vjp::min(dy.to(Device::cuda()), x.to(Device::cuda()), {axes, false}).to_vector<float>(),
              vjp::min(dy, x, {axes, false}).to_vector<float>());
  }
}

TEST_F(LargeReductionsOnCuda, ArgmaxFindsTheFirstAndNaN) {
  Tensor x = draw({3, 70001});
  EXPECT_EQ(argmax(x.to(Device::cuda()), 1).to_vector<int64_t>(), argmax(x, 1).to_vector<int64_t>());
  EXPECT_EQ(argmax(x.to(Device::cuda()), 0).to_vector<int64_t>(), argmax(x, 0).to_vector<int64_t>());
  x.data<float>()[60000] = x.data<float>()[69999] = std::nanf("");
  EXPECT_EQ(argmax(x.to(Device::cuda()), 1).to_vector<int64_t>()[0], 60000);
  EXPECT_TRUE(std::isnan(max(x.to(Device::cuda())).item()));
}

TEST_F(LargeReductionsOnCuda, TopKSelectsAndSortsAlike) {
  const Tensor x = draw({5, 3000, 3});
  for (const int64_t k : {int64_t{1}, int64_t{16}, int64_t{17}, int64_t{1000}, int64_t{3000}}) {
    const TopK here = topk(x, k, 1), there = topk(x.to(Device::cuda()), k, 1);
    EXPECT_EQ(there.values.to_vector<float>(), here.values.to_vector<float>()) << k;
    EXPECT_EQ(there.indices.to_vector<int64_t>(), here.indices.to_vector<int64_t>()) << k;
  }
}

}  // namespace
}  // namespace sinter::ops
