#include <algorithm>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/conv2d/conv1d.h>

namespace sinter::nn {

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Size2d kernel, const Conv2dOptions& options)
    : options_(options) {
  SINTER_CHECK(options.groups > 0, "[conv2d] expected groups > 0 but got {}", options.groups);
  SINTER_CHECK(
      in_channels > 0 && in_channels % options.groups == 0 && out_channels > 0 &&
          out_channels % options.groups == 0,
      "[conv2d] expected channel counts that are positive multiples of {} groups but got {} in, {} out",
      options.groups, in_channels, out_channels);
  const auto [height, width] = kernel;
  SINTER_CHECK(height > 0 && width > 0, "[conv2d] expected a kernel of positive size but got {} x {}", height,
               width);
  const auto [top, bottom, left, right] = options.padding;
  SINTER_CHECK(std::min({top, bottom, left, right}) >= 0, "[conv2d] expected no negative padding but got {}",
               to_string(options.padding));
  const Shape shape{out_channels, in_channels / options.groups, height, width};
  Generator& generator = default_generator();
  weight = parameter("weight", init::default_weight(shape, generator),
                     {.layout = options.layout, .keep_float32 = options.keep_float32});
  if (options.bias)
    bias = parameter("bias", init::default_bias(shape, generator), {.keep_float32 = options.keep_float32});
  works_in(options.layout);
  std::string text = fmt::format("{}, {}, kernel {}", in_channels, out_channels, to_string(kernel));
  if (options.stride != Size2d(1)) text += ", stride " + to_string(options.stride);
  if (options.padding != Padding2d(0)) text += ", padding " + to_string(options.padding);
  if (options.dilation != Size2d(1)) text += ", dilation " + to_string(options.dilation);
  if (options.groups != 1) text += fmt::format(", groups {}", options.groups);
  if (!options.bias) text += ", no bias";
  if (options.keep_float32) text += ", float32";
  describe(std::move(text));
}

Tensor Conv2d::forward(const Tensor& x) const {
  Conv2dOptions options = options_;
  options.layout = layout();
  check_batch("conv2d", x);
  check_channels("conv2d", x, weight.shape()[options.layout == Layout::kNCHW ? 1 : 3] * options.groups,
                 options.layout);
  return ops::conv2d(x, weight, bias, options);
}

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
