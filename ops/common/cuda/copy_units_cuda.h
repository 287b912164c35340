// Moving bytes in the widest units that addresses and sizes allow. For .cu files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include <cuda_runtime.h>

#include <sinter/core/runtime/backend.h>

namespace sinter::ops {

/// The largest of 1, 2, 4, 8 and 16 bytes that divides all `numbers`: byte counts, strides and addresses.
inline int64_t widest_unit(std::initializer_list<int64_t> numbers) {
  int64_t bits = 16;
  for (int64_t number : numbers) bits |= number;
  return bits & -bits;
}

inline int64_t address_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}

/// Calls `function.operator()<T>()` with a type of `unit` bytes (1, 2, 4, 8 or 16).
template <class F>
void dispatch_unit(int64_t unit, F&& function) {
  switch (unit) {
    case 1:
      return function.template operator()<uint8_t>();
    case 2:
      return function.template operator()<uint16_t>();
    case 4:
      return function.template operator()<uint32_t>();
    case 8:
      return function.template operator()<uint64_t>();
    default:
      return function.template operator()<uint4>();
  }
}

/// An axis along which pieces of memory lie; strides in bytes.
struct StridedAxis {
  int64_t extent = 1, to_stride = 0, from_stride = 0;
};

/// Copies a piece of `bytes` contiguous bytes for every index of `axes` (the last one fastest), on one
/// device. Strides of `to` must not make pieces overlap.
void copy_strided_cuda(const Stream& stream, void* to, const void* from, std::span<const StridedAxis> axes,
                       int64_t bytes);

/// Copies `rows` rows of `bytes` bytes that lie `from_stride` and `to_stride` bytes apart, on one device.
void copy_rows_cuda(const Stream& stream, void* to, int64_t to_stride, const void* from, int64_t from_stride,
                    int64_t bytes, int64_t rows);

}  // namespace sinter::ops
