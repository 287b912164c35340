// PReLU and dropout beyond their samples: channel axes, kinks, keep rates, keys, errors.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/prelu/prelu.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

TEST(PRelu, TakesChannelsFromTheRightAxis) {
  const Tensor x = Tensor::from_values<float>({-1, -1, -1, -1, -1, -1}, Shape{1, 2, 3});
  const Tensor two = Tensor::from_values<float>({2, 3}, Shape{2}),
               three = Tensor::from_values<float>({4, 5, 6}, Shape{3});
  EXPECT_EQ(prelu(x, two).to_vector<float>(), (std::vector<float>{-2, -2, -2, -3, -3, -3}));
  EXPECT_EQ(prelu(x, three, {.layout = Layout::kNHWC}).to_vector<float>(),
            (std::vector<float>{-4, -5, -6, -4, -5, -6}));
  EXPECT_EQ(prelu(Tensor::from_values<float>({-1, -1}, Shape{2}), two).to_vector<float>(),
            (std::vector<float>{-2, -3}));
  EXPECT_EQ(message_of([&] { prelu(x, three); }), "[prelu] expected alpha of 1 or 2 elements but got 3");
  EXPECT_EQ(message_of([&] { prelu(Tensor::scalar(1.0F), two); }),
            "[prelu] expected x of rank 1 or more but got shape ()");
}

TEST(PRelu, GradientAtZeroAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values<float>({0, nan, 2, -3}, Shape{4});
  const Tensor alpha = Tensor::from_values<float>({0.5}, Shape{1}),
               dy = Tensor::from_values<float>({1, 1, 1, 1}, Shape{4});
  EXPECT_TRUE(std::isnan(prelu(x, alpha).data<float>()[1]));
  const PReluGrads grads = vjp::prelu(dy, x, alpha);
  EXPECT_EQ(grads.dx.to_vector<float>(), (std::vector<float>{0.5, 0.5, 1, 0.5}));
}

TEST(PRelu, TakesFloat32SlopesBesideHalvesAsTheyAre) {
  const Tensor alpha = Tensor::from_values<float>({0.1F, 0.3F, -0.7F}, Shape{3});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<float> values;
    for (int i = 0; i < 60; ++i) values.push_back(static_cast<float>(i % 7 == 6 ? i : -i) / 4);
    const Tensor x = cast(Tensor::from_values(values, Shape{20, 3}), dtype);
    const std::vector<float> slopes = alpha.to_vector<float>();
    std::vector<float> products = values;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0) products[i] *= slopes[i % 3];
    }
    const Tensor expected = cast(Tensor::from_values(products, x.shape()), dtype);
    const Tensor y = prelu(x, alpha);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(cast(y, DType::kFloat32).to_vector<float>(),
              cast(expected, DType::kFloat32).to_vector<float>());
    EXPECT_NE(cast(prelu(x, cast(alpha, dtype)), DType::kFloat32).to_vector<float>(),
              cast(expected, DType::kFloat32).to_vector<float>())
        << "these slopes do not tell rounded ones from others";

    std::vector<float> sums(3);
    for (size_t i = 0; i < values.size(); ++i) sums[i % 3] += values[i] < 0 ? 8192 * values[i] : 0;
    const Tensor dy = Tensor::full({20, 3}, 8192.0, dtype);
    const PReluGrads grads = vjp::prelu(dy, x, alpha);
    EXPECT_EQ(grads.dx.dtype(), dtype);
    EXPECT_LT(sums[0], -65504.0F);
    EXPECT_EQ(grads.dalpha.to_vector<float>(), sums) << "beyond float16";
    EXPECT_EQ(cast(vjp::prelu_x(dy, x, alpha), DType::kFloat32).to_vector<float>(),
              cast(grads.dx, DType::kFloat32).to_vector<float>());
  }
}

TEST(PRelu, SaysWhichSlopesItTakes) {
  const Tensor x = Tensor::zeros({1, 2, 3}), half = cast(x, DType::kFloat16);
  EXPECT_EQ(message_of([&] { prelu(half, Tensor::zeros({2}, DType::kFloat64)); }),
            "[prelu] expected alpha of x's dtype or float32 but got float64 beside an x of float16");
  EXPECT_EQ(message_of([&] { prelu(x, Tensor::zeros({2}, DType::kFloat16)); }),
            "[prelu] expected alpha of x's dtype but got float16 beside an x of float32");
}

TEST(PRelu, SumsManyElementsExactlyEnoughOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor x = Tensor::full({200000}, -0.1), dy = Tensor::full({200000}, 1.0),
               alpha = Tensor::full({1}, 0.25);
  std::vector<float> sums;
  for (int count : {1, 2}) {
    set_num_threads(count);
    sums.push_back(vjp::prelu(dy, x, alpha).dalpha.data<float>()[0]);
  }
  set_num_threads(threads);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_NEAR(sums[0], -20000.0, 0.01);
}

TEST(Dropout, KeepsTheRightShareAndScalesIt) {
  Generator generator(3);
  const Tensor x = Tensor::full({1000, 100}, 3.0);
  const std::vector<float> y = dropout(x, 0.25, generator).to_vector<float>();
  int64_t kept = 0;
  for (float value : y) {
    ASSERT_TRUE(value == 0.0F || value == 4.0F) << value;
    kept += value != 0.0F ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(kept), 75000.0, 5 * std::sqrt(100000 * 0.25 * 0.75));
  EXPECT_EQ(generator.key().offset, 25000U);
  EXPECT_NE(dropout(x, 0.25, generator).to_vector<float>(), y);
  Generator again(3);
  EXPECT_EQ(dropout(x, 0.25, again).to_vector<float>(), y);
}

TEST(Dropout, IsTheIdentityForZero) {
  Generator generator(3);
  const Tensor x = Tensor::full({5}, 3.0);
  EXPECT_TRUE(dropout(x, 0.0, generator).is_same(x));
  EXPECT_EQ(generator.key().offset, 0U);
}

TEST(Dropout, DoesNotDependOnTheNumberOfThreads) {
  const int threads = num_threads();
  const Tensor x = Tensor::full({100003}, 1.0), key = Tensor::from_values<int64_t>({-5, 17}, Shape{2});
  set_num_threads(1);
  const std::vector<float> one = update::dropout_with_key(x, key, 0.5).to_vector<float>();
  set_num_threads(2);
  EXPECT_EQ(update::dropout_with_key(x, key, 0.5).to_vector<float>(), one);
  set_num_threads(threads);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const PhiloxBlock block = philox(static_cast<uint64_t>(int64_t{-5}), 17 + static_cast<uint64_t>(i) / 4);
    ASSERT_EQ(one[static_cast<size_t>(i)] != 0.0F, uniform_from_word(block.words[i % 4]) >= 0.5F) << i;
  }
}

TEST(Dropout, SaysWhatIsWrong) {
  const Tensor x = Tensor::full({5}, 3.0);
  EXPECT_EQ(message_of([&] { dropout(x, 1.0); }), "[dropout] expected p in [0, 1) but got 1");
  EXPECT_EQ(message_of([&] { dropout(x, std::nan("")); }), "[dropout] expected p in [0, 1) but got nan");
  EXPECT_EQ(
      message_of([&] { update::dropout_with_key(x, Tensor::from_values<int64_t>({1}, Shape{1}), 0.5); }),
      "[dropout] expected key of shape (2,) but got (1,)");
}

}  // namespace
}  // namespace sinter::ops
