// Tensors in words.
#include <limits>
#include <numeric>
#include <sstream>

#include <gtest/gtest.h>

#include <sinter/core/base/float16.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/format.h>

namespace sinter {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), int64_t{0});
  return Tensor::from_values(values, shape);
}

TEST(TensorFormat, AlignsColumnsUnderTheSpec) {
  const Tensor x =
      Tensor::from_values<float>({1, 0.5f, -2, 1e-5f, std::numeric_limits<float>::quiet_NaN(), 3}, {2, 3});
  const std::string expected =
      "float32 (2, 3) on cpu\n"
      "[[    1,   0.5,    -2],\n"
      " [1e-05,   nan,     3]]";
  EXPECT_EQ(to_string(x), expected);
  EXPECT_EQ(fmt::format("{}", x), expected);
  std::ostringstream stream;
  stream << x;
  EXPECT_EQ(stream.str(), expected);
}

TEST(TensorFormat, KnowsEveryRankAndDtype) {
  EXPECT_EQ(to_string(Tensor()), "undefined tensor");
  EXPECT_EQ(to_string(Tensor::scalar(2.5)), "float64 () on cpu\n2.5");
  EXPECT_EQ(to_string(Tensor::zeros({0})), "float32 (0,) on cpu\n[]");
  EXPECT_EQ(to_string(Tensor::zeros({2, 0})), "float32 (2, 0) on cpu\n[[],\n []]");
  EXPECT_EQ(to_string(Tensor::full({2}, 1.0, DType::kBool)), "bool (2,) on cpu\n[true, true]");
  EXPECT_EQ(to_string(Tensor::full({2}, 200.0, DType::kUInt8)), "uint8 (2,) on cpu\n[200, 200]");
  EXPECT_EQ(to_string(Tensor::full({1}, 0.1, DType::kFloat16)), "float16 (1,) on cpu\n[0.09998]");
  EXPECT_EQ(to_string(counting({2, 1, 2})), "int64 (2, 1, 2) on cpu\n[[[0, 1]],\n\n [[2, 3]]]");
}

TEST(TensorFormat, ShowsTheEndsOfLargeTensors) {
  EXPECT_EQ(to_string(counting({2000})), "int64 (2000,) on cpu\n[   0,    1,    2, ..., 1997, 1998, 1999]");
  EXPECT_EQ(to_string(counting({40, 30})),
            "int64 (40, 30) on cpu\n"
            "[[   0,    1,    2, ...,   27,   28,   29],\n"
            " [  30,   31,   32, ...,   57,   58,   59],\n"
            " [  60,   61,   62, ...,   87,   88,   89],\n"
            " ...,\n"
            " [1110, 1111, 1112, ..., 1137, 1138, 1139],\n"
            " [1140, 1141, 1142, ..., 1167, 1168, 1169],\n"
            " [1170, 1171, 1172, ..., 1197, 1198, 1199]]");
  EXPECT_EQ(to_string(counting({3, 2}), {.threshold = 4, .edge = 1}),
            "int64 (3, 2) on cpu\n[[0, 1],\n ...,\n [4, 5]]");
}

TEST(TensorFormat, SmallAxesOfLargeTensorsAreWhole) {
  const std::string text = to_string(counting({2, 600}));
  EXPECT_EQ(text,
            "int64 (2, 600) on cpu\n[[   0,    1,    2, ...,  597,  598,  599],\n"
            " [ 600,  601,  602, ..., 1197, 1198, 1199]]");
}

TEST(TensorFormat, ReadsFromAnyDevice) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const Tensor x = counting({40, 30}).to(Device::cuda());
  const std::string here = to_string(counting({40, 30})), there = to_string(x);
  EXPECT_EQ(there, "int64 (40, 30) on " + to_string(Device::cuda()) + here.substr(here.find('\n')));
}

}  // namespace
}  // namespace sinter
