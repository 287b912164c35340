#include <sinter/nn/layers/pool.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::nn {
namespace {

ops::Pool2dOptions op_options(const Pool2dOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation,
          .layout = options.layout,
          .ceil_mode = options.ceil_mode,
          .count_include_pad = options.count_include_pad,
          .divisor = options.divisor};
}

std::string description(Size2d kernel, const Pool2dOptions& options) {
  std::string text = "kernel " + to_string(kernel);
  if (options.stride != Size2d(0)) text += ", stride " + to_string(options.stride);
  if (options.padding != Padding2d(0)) text += ", padding " + to_string(options.padding);
  if (options.dilation != Size2d(1)) text += ", dilation " + to_string(options.dilation);
  if (options.divisor != 0) text += fmt::format(", divisor {}", options.divisor);
  return text;
}

}  // namespace

MaxPool2d::MaxPool2d(Size2d kernel, const Pool2dOptions& options) : kernel_(kernel), options_(options) {
  works_in(options.layout);
  describe(description(kernel, options));
}
AvgPool2d::AvgPool2d(Size2d kernel, const Pool2dOptions& options) : kernel_(kernel), options_(options) {
  works_in(options.layout);
  SINTER_CHECK(options.dilation == Size2d(1), "[avg_pool2d] expected no dilation but got {}",
               to_string(options.dilation));
  describe(description(kernel, options));
}
AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d output, Layout layout) : output_(output), layout_(layout) {
  SINTER_CHECK(output.height > 0 && output.width > 0,
               "[adaptive_avg_pool2d] expected an output of positive size but got {}", to_string(output));
  works_in(layout);
  describe("output " + to_string(output));
}
AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2d output, Layout layout) : output_(output), layout_(layout) {
  SINTER_CHECK(output.height > 0 && output.width > 0,
               "[adaptive_max_pool2d] expected an output of positive size but got {}", to_string(output));
  works_in(layout);
  describe("output " + to_string(output));
}
GlobalAvgPool2d::GlobalAvgPool2d(Layout layout) : layout_(layout) {
  works_in(layout);
}

Tensor MaxPool2d::forward(const Tensor& x) const {
  check_batch("max_pool2d", x);
  return ops::max_pool2d(x, kernel_, op_options(options_));
}
Tensor AvgPool2d::forward(const Tensor& x) const {
  check_batch("avg_pool2d", x);
  return ops::avg_pool2d(x, kernel_, op_options(options_));
}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) const {
  check_batch("adaptive_avg_pool2d", x);
  return ops::adaptive_avg_pool2d(x, output_, {.layout = layout_});
}
Tensor AdaptiveMaxPool2d::forward(const Tensor& x) const {
  check_batch("adaptive_max_pool2d", x);
  return ops::adaptive_max_pool2d(x, output_, {.layout = layout_});
}
Tensor GlobalAvgPool2d::forward(const Tensor& x) const {
  check_batch("global_avg_pool2d", x);
  return ops::global_avg_pool2d(x, {.layout = layout_});
}

}  // namespace sinter::nn
