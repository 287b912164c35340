// What the tests of single ops share.
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/tensor/tensor.h>

#include "common/error_message.h"

namespace sinter::ops::testing {

using test::message_of;

/// A float32 tensor with the values 0, 1, 2, ...
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from_values(values, shape);
}

using Floats = std::vector<float>;

}  // namespace sinter::ops::testing
