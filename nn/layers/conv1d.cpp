#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/conv1d.h>
#include <sinter/ops/conv2d/conv1d.h>

namespace sinter::nn {

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, const Conv1dOptions& options) : options_(options) {
  const int64_t groups = options.groups;
  SINTER_CHECK(groups > 0, "[conv1d] expected groups > 0 but got {}", groups);
  SINTER_CHECK(
      in_channels > 0 && in_channels % groups == 0 && out_channels > 0 && out_channels % groups == 0,
      "[conv1d] expected channel counts that are positive multiples of {} groups but got {} in, {} out",
      groups, in_channels, out_channels);
  SINTER_CHECK(options.kernel > 0, "[conv1d] expected a kernel of positive size but got {}", options.kernel);
  const Shape shape{out_channels, in_channels / groups, options.kernel};
  Generator& generator = default_generator();
  weight = parameter("weight", init::default_weight(shape, generator));
  if (options.bias) bias = parameter("bias", init::default_bias(shape, generator));
  std::string text = fmt::format("{}, {}, kernel {}", in_channels, out_channels, options.kernel);
  if (options.stride != 1) text += fmt::format(", stride {}", options.stride);
  if (options.padding != 0) text += fmt::format(", padding {}", options.padding);
  if (options.dilation != 1) text += fmt::format(", dilation {}", options.dilation);
  if (groups != 1) text += fmt::format(", groups {}", groups);
  if (!options.bias) text += ", no bias";
  describe(std::move(text));
}

Tensor Conv1d::forward(const Tensor& x) const {
  return ops::conv1d(x, weight, bias,
                     {.stride = options_.stride,
                      .padding = options_.padding,
                      .dilation = options_.dilation,
                      .groups = options_.groups});
}

}  // namespace sinter::nn
