#include <sinter/nn/layers/pool.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::nn {
namespace {

ops::PoolAttributes op_options(const Pool2dOptions& options) {
  return {.kernel = options.kernel,
          .stride = options.stride.value_or(options.kernel),
          .padding = {options.padding.top, options.padding.left},
          .padding_after = {options.padding.bottom, options.padding.right},
          .dilation = options.dilation,
          .layout = options.layout,
          .ceil_mode = options.ceil_mode,
          .count_include_pad = options.count_include_pad,
          .divisor = options.divisor};
}

std::string description(const Pool2dOptions& options) {
  std::string text = "kernel " + to_string(options.kernel);
  if (options.stride) text += ", stride " + to_string(*options.stride);
  if (options.padding != Padding2d(0)) text += ", padding " + to_string(options.padding);
  if (options.dilation != Size2d(1)) text += ", dilation " + to_string(options.dilation);
  if (options.divisor != 0) text += fmt::format(", divisor {}", options.divisor);
  return text;
}

}  // namespace

MaxPool2d::MaxPool2d(const Pool2dOptions& options) : options_(options) {
  works_in(options.layout);
  describe(description(options));
}
AvgPool2d::AvgPool2d(const Pool2dOptions& options) : options_(options) {
  works_in(options.layout);
  SINTER_CHECK(options.dilation == Size2d(1), "[avg_pool2d] expected no dilation but got {}",
               to_string(options.dilation));
  describe(description(options));
}
AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d output, Layout layout) : output_(output), layout_(layout) {
  SINTER_CHECK(output.height > 0 && output.width > 0,
               "[adaptive_avg_pool2d] expected an output of positive size but got {}", to_string(output));
  works_in(layout);
  describe("output " + to_string(output));
}
GlobalAvgPool2d::GlobalAvgPool2d(Layout layout) : layout_(layout) {
  works_in(layout);
}

Tensor MaxPool2d::forward(const Tensor& x) const {
  check_batch("max_pool2d", x);
  return ops::max_pool2d(x, op_options(options_));
}
Tensor AvgPool2d::forward(const Tensor& x) const {
  check_batch("avg_pool2d", x);
  return ops::avg_pool2d(x, op_options(options_));
}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) const {
  check_batch("adaptive_avg_pool2d", x);
  return ops::adaptive_avg_pool2d(x, output_, {.layout = layout_});
}
Tensor GlobalAvgPool2d::forward(const Tensor& x) const {
  check_batch("global_avg_pool2d", x);
  return ops::global_avg_pool2d(x, {.layout = layout_});
}

}  // namespace sinter::nn
