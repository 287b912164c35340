// The checks of norm_checks.h, and their messages.
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/norm_checks.h>

namespace sinter::ops {

int64_t expect_norm_input(const InferContext& context, Layout layout) {
  context.expect_float(0);
  context.expect_rank(0, {2, 4});
  return context.shape(0)[norm_axis(context.shape(0), layout)];
}

void expect_channel_vector(const InferContext& context, size_t i, int64_t channels) {
  if (!context.has(i)) return;
  context.expect_dtype(i, accumulate_dtype(context.input(0).dtype));
  context.expect_shape(i, Shape{channels});
}

void expect_norm_parameters(const InferContext& context, size_t first, int64_t channels, bool training) {
  for (size_t i = first; i < first + 4; ++i) expect_channel_vector(context, i, channels);
  const bool has_mean = context.has(first + 2), has_var = context.has(first + 3);
  SINTER_CHECK(has_mean == has_var,
               "[{}] expected both running_mean and running_var or neither but got only {}", context.tag(),
               has_mean ? "running_mean" : "running_var");
  SINTER_CHECK(training || has_mean, "[{}] expected running_mean and running_var in inference but got none",
               context.tag());
}

void expect_norm_options(const InferContext& context, double epsilon, double momentum, bool training,
                         Layout layout) {
  SINTER_CHECK(epsilon >= 0, "[{}] expected epsilon >= 0 but got {}", context.tag(), epsilon);
  SINTER_CHECK(momentum >= 0 && momentum <= 1, "[{}] expected momentum in [0, 1] but got {}", context.tag(),
               momentum);
  const Shape& x = context.shape(0);
  SINTER_CHECK(!training || x.without(norm_axis(x, layout)).numel() != 1,
               "[{}] expected more than 1 value per channel in training but got shape {}", context.tag(), x);
}

}  // namespace sinter::ops
