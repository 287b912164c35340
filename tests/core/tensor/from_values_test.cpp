// Tensors from values that are written down.
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {
namespace {

TEST(FromValues, TakesAListAndItsDtype) {
  const Tensor floats = Tensor::from_values({1.0f, 2.0f, 3.0f}, {3});
  EXPECT_EQ(floats.dtype(), DType::kFloat32);
  EXPECT_EQ(floats.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Tensor::from_values({1.0, 2.0}, {2, 1}).dtype(), DType::kFloat64);
  EXPECT_EQ(Tensor::from_values({1, 2}, {2}).dtype(), DType::kInt32);
  EXPECT_EQ(Tensor::from_values({true, false}, {2}).dtype(), DType::kBool);
  EXPECT_EQ(Tensor::from_values<float>({1, 2}, {2}).to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(Tensor::from_values<int64_t>({}, {0, 3}).numel(), 0);
  EXPECT_THROW(Tensor::from_values({1.0f, 2.0f}, {3}), InvalidArgument);
  const std::vector<double> values{1, 2};
  EXPECT_EQ(Tensor::from_values(values, {2}).to_vector<double>(), values);
}

}  // namespace
}  // namespace sinter
