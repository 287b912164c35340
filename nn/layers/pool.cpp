#include <sinter/nn/layers/pool.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>

namespace sinter::nn {
namespace {

/// `options` with the layout that the module works in now.
Pool2dOptions in_layout(const Pool2dOptions& options, Layout layout) {
  Pool2dOptions present = options;
  present.layout = layout;
  return present;
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
AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d output, Layout layout) : output_(output) {
  SINTER_CHECK(output.height > 0 && output.width > 0,
               "[adaptive_avg_pool2d] expected an output of positive size but got {}", to_string(output));
  works_in(layout);
  describe("output " + to_string(output));
}
AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2d output, Layout layout) : output_(output) {
  SINTER_CHECK(output.height > 0 && output.width > 0,
               "[adaptive_max_pool2d] expected an output of positive size but got {}", to_string(output));
  works_in(layout);
  describe("output " + to_string(output));
}
GlobalAvgPool2d::GlobalAvgPool2d(Layout layout) {
  works_in(layout);
}

Tensor MaxPool2d::forward(const Tensor& x) const {
  check_batch("max_pool2d", x);
  return ops::max_pool2d(x, kernel_, in_layout(options_, layout()));
}
Tensor AvgPool2d::forward(const Tensor& x) const {
  check_batch("avg_pool2d", x);
  return ops::avg_pool2d(x, kernel_, in_layout(options_, layout()));
}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) const {
  check_batch("adaptive_avg_pool2d", x);
  return ops::adaptive_avg_pool2d(x, output_, {.layout = layout()});
}
Tensor AdaptiveMaxPool2d::forward(const Tensor& x) const {
  check_batch("adaptive_max_pool2d", x);
  return ops::adaptive_max_pool2d(x, output_, {.layout = layout()});
}
Tensor GlobalAvgPool2d::forward(const Tensor& x) const {
  check_batch("global_avg_pool2d", x);
  return ops::global_avg_pool2d(x, {.layout = layout()});
}

}  // namespace sinter::nn
