// Element types of tensors, and the switch from a run-time dtype to a compile-time type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/core/base/float16.h>

namespace sinter {

/// The element type of a tensor. float64 serves gradient checks and references; convolutions in it
/// are slow on GPUs.
enum class DType : uint8_t { kFloat32, kFloat16, kBFloat16, kFloat64, kInt64, kInt32, kUInt8, kBool };
using enum DType;  // kFloat32 for short

inline constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                                       DType::kInt64,   DType::kInt32,   DType::kUInt8,    DType::kBool};

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat64;
}

constexpr bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// The dtype in which sums and statistics of `dtype` are kept: float32 for the 16-bit types, else itself.
constexpr DType accumulate_dtype(DType dtype) {
  return is_half(dtype) ? DType::kFloat32 : dtype;
}

/// "float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8" or "bool".
std::string_view to_string(DType dtype);

/// The inverse of to_string; throws InvalidArgument for any other text.
DType parse_dtype(std::string_view text);

/// The C++ type of a dtype and back: `dtype_of<float> == DType::kFloat32`.
template <class T>
inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "not an element type"); }();
template <>
inline constexpr DType dtype_of<float> = DType::kFloat32;
template <>
inline constexpr DType dtype_of<float16> = DType::kFloat16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::kBFloat16;
template <>
inline constexpr DType dtype_of<double> = DType::kFloat64;
template <>
inline constexpr DType dtype_of<int64_t> = DType::kInt64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::kInt32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::kUInt8;
template <>
inline constexpr DType dtype_of<bool> = DType::kBool;

/// The C++ type in which an element type computes: float for the 16-bit types, else itself.
template <class T>
struct ComputeTypeOf {
  using type = T;
};
template <>
struct ComputeTypeOf<float16> {
  using type = float;
};
template <>
struct ComputeTypeOf<bfloat16> {
  using type = float;
};
template <class T>
using compute_type = typename ComputeTypeOf<T>::type;

/// Calls `function.operator()<T>()` with the C++ type of a floating-point dtype:
/// `dispatch_float(x.dtype, "prelu", [&]<class T> { run<T>(); });` Throws InvalidArgument for other dtypes.
template <class F>
decltype(auto) dispatch_float(DType dtype, std::string_view tag, F&& function) {
  switch (dtype) {
    case DType::kFloat32:
      return function.template operator()<float>();
    case DType::kFloat64:
      return function.template operator()<double>();
    case DType::kFloat16:
      return function.template operator()<float16>();
    case DType::kBFloat16:
      return function.template operator()<bfloat16>();
    default:
      throw_error<InvalidArgument>("[{}] expected a floating-point dtype but got {}", tag, to_string(dtype));
  }
}

/// Like dispatch_float, over every dtype but bool.
template <class F>
decltype(auto) dispatch_number(DType dtype, std::string_view tag, F&& function) {
  switch (dtype) {
    case DType::kInt64:
      return function.template operator()<int64_t>();
    case DType::kInt32:
      return function.template operator()<int32_t>();
    case DType::kUInt8:
      return function.template operator()<uint8_t>();
    default:
      return dispatch_float(dtype, tag, static_cast<F&&>(function));
  }
}

/// Like dispatch_float, over every dtype.
template <class F>
decltype(auto) dispatch_all(DType dtype, std::string_view tag, F&& function) {
  if (dtype == DType::kBool) return function.template operator()<bool>();
  return dispatch_number(dtype, tag, static_cast<F&&>(function));
}

}  // namespace sinter

template <>
struct fmt::formatter<sinter::DType> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(sinter::DType dtype, Context& context) const {
    return write(sinter::to_string(dtype), context);
  }
};
