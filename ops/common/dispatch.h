// Dtype checks that several ops share, beside those of InferContext.
#pragma once

#include <sinter/core/base/dtype.h>
#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// Throws InvalidArgument if input i is of dtype bool.
inline void expect_number(const InferContext& context, size_t i) {
  SINTER_CHECK(context.input(i).dtype != DType::kBool, "[{}] expected {} of a numeric dtype but got bool",
               context.tag(), context.op().input_def(i).name);
}

}  // namespace sinter::ops
