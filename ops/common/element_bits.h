// Dtypes that share kernels: ops that only move elements work on their bits, one kernel per element size;
// bools are numbers.
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

/// The dtype whose kernels compute with elements of `dtype`: a bool is a byte that holds 0 or 1.
inline DType number_dtype(DType dtype) {
  return dtype == DType::kBool ? DType::kUInt8 : dtype;
}

}  // namespace sinter::ops
