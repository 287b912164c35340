#include <sinter/ops/common/parameter_update.h>

namespace sinter::ops {

void expect_update_inputs(const InferContext& context, size_t slot, size_t arrays, bool has_moving) {
  const size_t parameter = slot, gradient = slot + 1, tail = slot + arrays;
  context.expect_float(parameter);
  context.expect_shape(gradient, context.shape(parameter));
  if (context.has(tail + kWorkingCopy)) {
    const DType working = context.input(tail + kWorkingCopy).dtype;
    SINTER_CHECK(context.input(parameter).dtype == DType::kFloat32 && is_half(working),
                 "[{}] expected a working copy in a 16-bit dtype of a float32 parameter but got {} of {}",
                 context.tag(), working, context.input(parameter).dtype);
    context.expect_shape(tail + kWorkingCopy, context.shape(parameter));
    context.expect_same_dtype(gradient, tail + kWorkingCopy);
  } else {
    context.expect_same_dtype(gradient, parameter);
  }
  context.expect_dtype(tail + kLearningRate, DType::kFloat64);
  context.expect_shape(tail + kLearningRate, has_moving ? Shape{2} : Shape{});
  if (context.has(tail + kStepCount)) {
    context.expect_dtype(tail + kStepCount, DType::kInt64);
    context.expect_shape(tail + kStepCount, {});
  }
  if (context.has(tail + kGradientFactor)) {
    context.expect_dtype(tail + kGradientFactor, DType::kFloat32);
    context.expect_shape(tail + kGradientFactor, {});
  }
}

}  // namespace sinter::ops
