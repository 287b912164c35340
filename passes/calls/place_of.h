// The place of an element in words, for messages of those that compare tensors.
#pragma once

#include <string>

#include <sinter/core/base/shape.h>

namespace sinter::passes {

/// "(1, 0, 2)": the place of an element.
inline std::string place_of(const Shape& shape, size_t element) {
  std::string text;
  auto rest = static_cast<int64_t>(element);
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = std::to_string(rest % shape[axis]) + (text.empty() ? "" : ", ") + text;
    rest /= shape[axis];
  }
  return "(" + text + ")";
}

}  // namespace sinter::passes
