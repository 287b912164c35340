// PReLU and dropout beyond their samples: channel axes, kinks, keep rates, keys, errors.
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/prelu/prelu.h>

namespace sinter::ops {
namespace {

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(PRelu, TakesChannelsFromTheRightAxis) {
  const Tensor x = Tensor::from_values<float>({-1, -1, -1, -1, -1, -1}, Shape{1, 2, 3});
  const Tensor two = Tensor::from_values<float>({2, 3}, Shape{2}),
               three = Tensor::from_values<float>({4, 5, 6}, Shape{3});
  EXPECT_EQ(prelu(x, two).to_vector<float>(), (std::vector<float>{-2, -2, -2, -3, -3, -3}));
  EXPECT_EQ(prelu(x, three, Layout::kNHWC).to_vector<float>(), (std::vector<float>{-4, -5, -6, -4, -5, -6}));
  EXPECT_EQ(prelu(Tensor::from_values<float>({-1, -1}, Shape{2}), two).to_vector<float>(),
            (std::vector<float>{-2, -3}));
  EXPECT_EQ(error_of([&] { prelu(x, three); }), "[prelu] expected alpha of 1 or 2 elements but got 3");
  EXPECT_EQ(error_of([&] { prelu(Tensor::scalar(1.0F), two); }),
            "[prelu] expected x of rank 1 or more but got shape ()");
}

TEST(PRelu, GradientAtZeroAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from_values<float>({0, nan, 2, -3}, Shape{4});
  const Tensor alpha = Tensor::from_values<float>({0.5}, Shape{1}),
               dy = Tensor::from_values<float>({1, 1, 1, 1}, Shape{4});
  EXPECT_TRUE(std::isnan(prelu(x, alpha).data<float>()[1]));
  const PReluGrads grads = prelu_grad(x, alpha, dy);
  EXPECT_EQ(grads.dx.to_vector<float>(), (std::vector<float>{0.5, 0.5, 1, 0.5}));
}

TEST(PRelu, SumsManyElementsExactlyEnoughOnAnyNumberOfThreads) {
  const int threads = num_threads();
  const Tensor x = Tensor::full({200000}, -0.1), dy = Tensor::full({200000}, 1.0),
               alpha = Tensor::full({1}, 0.25);
  std::vector<float> sums;
  for (int count : {1, 2}) {
    set_num_threads(count);
    sums.push_back(prelu_grad(x, alpha, dy).dalpha.data<float>()[0]);
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
  const std::vector<float> one = dropout_with_key(x, key, 0.5).to_vector<float>();
  set_num_threads(2);
  EXPECT_EQ(dropout_with_key(x, key, 0.5).to_vector<float>(), one);
  set_num_threads(threads);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const PhiloxBlock block = philox(static_cast<uint64_t>(int64_t{-5}), 17 + static_cast<uint64_t>(i) / 4);
    ASSERT_EQ(one[static_cast<size_t>(i)] != 0.0F, uniform_from_word(block.words[i % 4]) >= 0.5F) << i;
  }
}

TEST(Dropout, SaysWhatIsWrong) {
  const Tensor x = Tensor::full({5}, 3.0);
  EXPECT_EQ(error_of([&] { dropout(x, 1.0); }), "[dropout] expected p in [0, 1) but got 1");
  EXPECT_EQ(error_of([&] { dropout(x, std::nan("")); }), "[dropout] expected p in [0, 1) but got nan");
  EXPECT_EQ(error_of([&] { dropout_with_key(x, Tensor::from_values<int64_t>({1}, Shape{1}), 0.5); }),
            "[dropout] expected key of shape (2,) but got (1,)");
}

}  // namespace
}  // namespace sinter::ops
