// Ops that only move elements work on their bits: one kernel per element size instead of one per dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/base/dtype.h>

namespace sinter::ops {

/// Calls `function.operator()<T>()` with the unsigned integer type as large as an element of `dtype`.
template <class F>
decltype(auto) dispatch_bits(DType dtype, F&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function.template operator()<uint8_t>();
    case 2:
      return function.template operator()<uint16_t>();
    case 4:
      return function.template operator()<uint32_t>();
    default:
      return function.template operator()<uint64_t>();
  }
}

}  // namespace sinter::ops
