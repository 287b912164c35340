// Helpers that the tests of the nn floor share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/tensor/tensor.h>

#include "common/error_message.h"

namespace sinter::nn::testing {

using test::message_of;

/// Numbers in [-0.5, 0.5); the same as pattern() of tests/reference/nn_values.py.
inline std::vector<double> pattern_values(int64_t count, int64_t seed) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    auto word = static_cast<uint32_t>(i * 2654435761 + seed * 40503 + 12345);
    word = (word ^ (word >> 15)) * 2246822519u;
    values.push_back(static_cast<double>(word) / 4294967296.0 - 0.5);
  }
  return values;
}

inline Tensor pattern(const Shape& shape, int64_t seed) {
  return Tensor::from_values(pattern_values(shape.numel(), seed), shape);
}

inline Tensor floats(const Shape& shape, int64_t seed) {
  const std::vector<double> values = pattern_values(shape.numel(), seed);
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), shape);
}

/// Every element within tolerance * (1 + |expected|).
template <class T>
void expect_near(const Tensor& actual, const std::vector<T>& expected, double tolerance) {
  const std::vector<T> values = actual.to_vector<T>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance * (1.0 + std::abs(expected[i]))) << "element " << i;
  }
}

}  // namespace sinter::nn::testing
