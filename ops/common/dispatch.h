// Dtype checks and switches that several ops share, beside those of core/base/dtype.h and InferContext.
#pragma once

#include <string_view>

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// Like dispatch_all, over every dtype but bool.
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

/// Throws InvalidArgument if input i is of dtype bool.
inline void expect_number(const InferContext& context, size_t i) {
  SINTER_CHECK(context.input(i).dtype != DType::kBool, "[{}] expected {} of a numeric dtype but got bool",
               context.tag(), context.op().input_def(i).name);
}

}  // namespace sinter::ops
