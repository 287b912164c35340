#include <algorithm>
#include <limits>
#include <utility>

#include <sinter/core/base/checked.h>
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

// Keeps every product of two such numbers, and sums of them, far from overflow.
constexpr int64_t kLargestOption = std::numeric_limits<int32_t>::max();

void check_option(const char* tag, const char* name, const std::array<int64_t, 2>& pair, int64_t least) {
  for (int64_t value : pair) {
    SINTER_CHECK(value >= least, "[{}] expected {} of at least {} but got ({}, {})", tag, name, least,
                 pair[0], pair[1]);
    SINTER_CHECK(value <= kLargestOption, "[{}] expected {} of at most {} but got ({}, {})", tag, name,
                 kLargestOption, pair[0], pair[1]);
  }
}

/// With this, channels * groups cannot overflow: groups <= O.
void check_weight(const char* tag, const Shape& weight, const Conv2dAttributes& options) {
  SINTER_CHECK(options.groups >= 1, "[{}] expected at least 1 group but got {}", tag, options.groups);
  SINTER_CHECK(weight.numel() > 0, "[{}] expected a weight without empty axes but got shape {}", tag, weight);
  SINTER_CHECK(weight[0] % options.groups == 0,
               "[{}] expected output channels that {} groups divide but got {}", tag, options.groups,
               weight[0]);
}

void check_options(const char* tag, const Conv2dAttributes& options) {
  check_option(tag, "a stride", options.stride, 1);
  check_option(tag, "a padding", options.padding, 0);
  check_option(tag, "a dilation", options.dilation, 1);
}

int channel_axis(Layout layout) {
  return layout == Layout::kNCHW ? 1 : 3;
}
int height_axis(Layout layout) {
  return layout == Layout::kNCHW ? 2 : 1;
}

Conv2dAxis make_axis(const char* tag, const char* name, int64_t input, int64_t kernel,
                     const Conv2dAttributes& options, size_t axis) {
  Conv2dAxis made{.input = input,
                  .kernel = kernel,
                  .stride = options.stride[axis],
                  .padding = options.padding[axis],
                  .dilation = options.dilation[axis]};
  const int64_t reach = checked_multiply(tag, made.dilation, kernel - 1);
  const int64_t room = input + 2 * made.padding - reach - 1;
  SINTER_CHECK(
      room >= 0,
      "[{}] the filter is larger than the padded input: {} {} with padding {}, kernel {} with dilation {}",
      tag, name, input, made.padding, kernel, made.dilation);
  made.output = room / made.stride + 1;
  return made;
}

/// `Options` are Conv2dAttributes or derive from them.
template <class Options>
std::vector<TensorSpec> infer_conv2d(const InferContext& context) {
  const auto& options = context.attributes<Options>();
  context.expect_rank(0, 4);
  context.expect_rank(1, 4);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  const Conv2dGeometry geometry = conv2d_geometry(context.tag(), context.shape(0), context.shape(1), options);
  if (context.has(2)) {
    context.expect_same_dtype(2, 0);
    context.expect_shape(2, {geometry.out_channels});
  }
  return {{geometry.y_shape(), context.input(0).dtype, context.input(0).device}};
}

std::vector<TensorSpec> infer_conv2d_sums(const InferContext& context) {
  std::vector<TensorSpec> outputs = infer_conv2d<Conv2dAttributes>(context);
  const TensorSpec& y = outputs[0];
  outputs.push_back({Shape{2, context.shape(1)[0]}, accumulate_dtype(y.dtype), y.device});
  return outputs;
}

std::vector<TensorSpec> infer_conv2d_bias_act(const InferContext& context) {
  std::vector<TensorSpec> outputs = infer_conv2d<Conv2dActOptions>(context);
  const TensorSpec& y = outputs[0];
  if (context.has(3)) {
    context.expect_same_dtype(3, 0);
    const bool for_all = context.shape(3).rank() == 4 && context.shape(3)[0] == 1;
    context.expect_shape(3, for_all ? one_image(y.shape) : y.shape);
  }
  const bool wants_slope = context.attributes<Conv2dActOptions>().activation == fused::Activation::kPRelu;
  SINTER_CHECK(context.has(4) == wants_slope, "[{}] expected {} slope beside activation {} but got {}",
               context.tag(), wants_slope ? "a" : "no",
               to_string(context.attributes<Conv2dActOptions>().activation),
               wants_slope ? "none" : fmt::format("{}", context.input(4)));
  if (wants_slope) {
    if (context.input(4).dtype != accumulate_dtype(y.dtype)) context.expect_same_dtype(4, 0);
    context.expect_shape(4, {context.shape(1)[0]});
  }
  return outputs;
}

/// A plan may be there for one kernel and not yet for the other: the tuner would keep the choice between
/// those that are ready.
KernelChoice choose_conv2d_bias_act(const Op& op, Device device, const KernelQuery& query) {
  if (device.is_cpu() || OnlyKnownPlans::wanted()) return choose_by_estimate(op, device, query);
  return choose_by_time(op, device, query);
}

Conv2dAttributes recorded(const char* tag, const Conv2dOptions& options) {
  const Padding2d& padding = options.padding;
  SINTER_CHECK(padding.is_even(),
               "[{}] expected the same padding on both sides of an axis but got top {}, bottom {}, left {}, "
               "right {}",
               tag, padding.top, padding.bottom, padding.left, padding.right);
  return {.stride = options.stride,
          .padding = {padding.top, padding.left},
          .dilation = options.dilation,
          .groups = options.groups,
          .layout = options.layout};
}

/// What both sides of an axis have.
Padding2d common_padding(const Padding2d& padding) {
  return {std::min(padding.top, padding.bottom), std::min(padding.left, padding.right)};
}

/// x with what one side of an axis has more than the other.
Tensor pad_further(const Tensor& x, const Conv2dOptions& options) {
  const auto [top, bottom, left, right] = options.padding;
  const bool is_allowed = std::min({top, bottom, left, right}) >= 0;  // else the op complains
  if (options.padding.is_even() || x.rank() != 4 || !is_allowed) return x;
  std::vector<std::array<int64_t, 2>> around(4);
  const auto height = static_cast<size_t>(height_axis(options.layout));
  around[height] = {std::max<int64_t>(top - bottom, 0), std::max<int64_t>(bottom - top, 0)};
  around[height + 1] = {std::max<int64_t>(left - right, 0), std::max<int64_t>(right - left, 0)};
  return pad(x, std::move(around));
}

std::vector<Tensor> conv2d_gradient(const GradientContext& context) {
  const auto& options = context.attributes<Conv2dAttributes>();
  const Tensor dy = context.grad();
  const int height = height_axis(options.layout);
  std::vector<Tensor> gradients(3);
  if (context.needs(0)) {
    const Shape& x = context.input_spec(0).shape;
    gradients[0] = vjp::conv2d_input(dy, context.input(1), {x[height], x[height + 1]}, options);
  }
  if (context.needs(1)) {
    const Shape& weight = context.input_spec(1).shape;
    gradients[1] = vjp::conv2d_weight(dy, context.input(0), {weight[height], weight[height + 1]}, options);
  }
  if (context.needs(2)) gradients[2] = sum(dy, {0, height, height + 1});
  return gradients;
}

std::vector<TensorSpec> infer_grad_input(const InferContext& context) {
  const auto& attributes = context.attributes<Conv2dGradInputAttributes>();
  check_option(context.tag(), "an input size", attributes.input_size, 0);
  context.expect_rank(0, 4);
  context.expect_rank(1, 4);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  const Shape& weight = context.shape(1);
  check_weight(context.tag(), weight, attributes);
  const int64_t channels = weight[channel_axis(attributes.layout)];
  const Shape x = image_shape(attributes.layout, context.shape(0)[0], channels * attributes.groups,
                              attributes.input_size[0], attributes.input_size[1]);
  const Conv2dGeometry geometry = conv2d_geometry(context.tag(), x, weight, attributes);
  context.expect_shape(0, geometry.y_shape());
  return {{x, context.input(0).dtype, context.input(0).device}};
}

// y is linear in x and in weight, so the gradients of the gradients are the three ops again.
std::vector<Tensor> grad_input_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<Conv2dGradInputAttributes>();
  const Tensor grad = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) gradients[0] = conv2d(grad, context.input(1), {}, attributes);
  if (context.needs(1)) {
    const Shape& weight = context.input_spec(1).shape;
    const int height = height_axis(attributes.layout);
    gradients[1] =
        vjp::conv2d_weight(context.input(0), grad, {weight[height], weight[height + 1]}, attributes);
  }
  return gradients;
}

std::vector<TensorSpec> infer_grad_weight(const InferContext& context) {
  const auto& attributes = context.attributes<Conv2dGradWeightAttributes>();
  check_option(context.tag(), "a kernel size", attributes.kernel_size, 1);
  context.expect_rank(0, 4);
  context.expect_rank(1, 4);
  context.expect_float(0);
  context.expect_same_dtype(1, 0);
  const int channel = channel_axis(attributes.layout);
  const int64_t channels = context.shape(0)[channel];
  SINTER_CHECK(attributes.groups >= 1 && channels % attributes.groups == 0,
               "[{}] expected channels that {} groups divide but got an input of shape {}", context.tag(),
               attributes.groups, context.shape(0));
  const Shape weight = image_shape(attributes.layout, context.shape(1)[channel], channels / attributes.groups,
                                   attributes.kernel_size[0], attributes.kernel_size[1]);
  const Conv2dGeometry geometry = conv2d_geometry(context.tag(), context.shape(0), weight, attributes);
  context.expect_shape(1, geometry.y_shape());
  return {{weight, context.input(0).dtype, context.input(0).device}};
}

std::vector<Tensor> grad_weight_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<Conv2dGradWeightAttributes>();
  const Tensor grad = context.grad();
  std::vector<Tensor> gradients(2);
  if (context.needs(0)) {
    const Shape& x = context.input_spec(0).shape;
    const int height = height_axis(attributes.layout);
    gradients[0] = vjp::conv2d_input(context.input(1), grad, {x[height], x[height + 1]}, attributes);
  }
  if (context.needs(1)) gradients[1] = conv2d(context.input(0), grad, {}, attributes);
  return gradients;
}

/// Every element of y is a sum of C / groups * KH * KW products, one for each element of a filter. Each of
/// the three ops forms all of these products: 2 N O OH OW (C / groups) KH KW operations, those with the
/// padding's zeros included and a bias left out.
double conv2d_flops_of(const Shape& y, const Shape& weight) {
  return 2.0 * static_cast<double>(y.numel()) * static_cast<double>(weight.stride(0));
}

double conv2d_flops(const InferContext& context, std::span<const TensorSpec> outputs) {
  return conv2d_flops_of(outputs[0].shape, context.shape(1));
}

double grad_input_flops(const InferContext& context, std::span<const TensorSpec>) {
  return conv2d_flops_of(context.shape(0), context.shape(1));
}

double grad_weight_flops(const InferContext& context, std::span<const TensorSpec> outputs) {
  return conv2d_flops_of(context.shape(1), outputs[0].shape);
}

}  // namespace

bool Conv2dGeometry::is_pointwise() const {
  const auto reads_each_once = [](const Conv2dAxis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0;
  };
  return reads_each_once(height) && reads_each_once(width);
}

Shape Conv2dGeometry::x_shape() const {
  return image_shape(layout, batch, in_channels, height.input, width.input);
}
Shape Conv2dGeometry::weight_shape() const {
  return image_shape(layout, out_channels, group_in(), height.kernel, width.kernel);
}
Shape Conv2dGeometry::y_shape() const {
  return image_shape(layout, batch, out_channels, height.output, width.output);
}

Shape image_shape(Layout layout, int64_t n, int64_t channels, int64_t height, int64_t width) {
  return layout == Layout::kNCHW ? Shape{n, channels, height, width} : Shape{n, height, width, channels};
}

Conv2dGeometry conv2d_geometry(const char* tag, const Shape& x, const Shape& weight,
                               const Conv2dAttributes& options) {
  check_options(tag, options);
  check_weight(tag, weight, options);
  const int channel = channel_axis(options.layout);
  const int height = height_axis(options.layout);
  SINTER_CHECK(
      x[channel] == options.groups * weight[channel],
      "[{}] expected an input of {} channels ({} for each of {} groups) but got shape {} in layout {}", tag,
      options.groups * weight[channel], weight[channel], options.groups, x, to_string(options.layout));
  return {.batch = x[0],
          .in_channels = x[channel],
          .out_channels = weight[0],
          .groups = options.groups,
          .height = make_axis(tag, "height", x[height], weight[height], options, 0),
          .width = make_axis(tag, "width", x[height + 1], weight[height + 1], options, 1),
          .layout = options.layout};
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options) {
  static const Op& op = builtin("conv2d");
  SINTER_CHECK(options.bias || !bias.defined(),
               "[conv2d] expected no bias, as the options say, but got one of shape {}", bias.shape());
  const Tensor images = options.keep_float32 && weight.defined() ? cast(x, weight.dtype()) : x;
  Conv2dOptions padded = options;
  padded.padding = common_padding(options.padding);
  return call_single(op, {pad_further(images, options), weight, bias}, recorded("conv2d", padded));
}

std::array<Tensor, 2> fused::conv2d_sums(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                         const Conv2dOptions& options) {
  static const Op& op = builtin("conv2d_sums");
  const std::vector<Tensor> results = call(op, {x, weight, bias}, recorded("conv2d_sums", options));
  return {results[0], results[1]};
}

Tensor conv2d_bias_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& addend,
                       const Tensor& slope, const Conv2dActOptions& options) {
  static const Op& op = builtin("conv2d_bias_act");
  return call_single(op, {x, weight, bias, addend, slope}, options);
}

Tensor vjp::conv2d_input(const Tensor& dy, const Tensor& weight, std::array<int64_t, 2> input_size,
                         const Conv2dOptions& options) {
  static const Op& op = builtin("conv2d_grad_input");
  return call_single(op, {dy, weight},
                     Conv2dGradInputAttributes{recorded("conv2d_grad_input", options), input_size});
}

Tensor vjp::conv2d_weight(const Tensor& dy, const Tensor& x, std::array<int64_t, 2> kernel_size,
                          const Conv2dOptions& options) {
  static const Op& op = builtin("conv2d_grad_weight");
  return call_single(op, {x, dy},
                     Conv2dGradWeightAttributes{recorded("conv2d_grad_weight", options), kernel_size});
}

void register_conv2d(OpRegistry& registry);
void register_conv2d(OpRegistry& registry) {
  registry.add({.name = "conv2d",
                .inputs = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                .outputs = {{"y"}},
                .infer = infer_conv2d<Conv2dAttributes>,
                .gradient = conv2d_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced,
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0}),
                                      .filters = reads_of({1})},
                           .role = Role::kConvolution,
                           .with_channel_sums = "conv2d_sums"},
                .flops = conv2d_flops});
  registry.add({.name = "conv2d_sums",
                .inputs = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                .outputs = {{"y"}, {"sums", false}},
                .infer = infer_conv2d_sums,
                .gradient = conv2d_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced,
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0}),
                                      .filters = reads_of({1})}},
                .flops = conv2d_flops});
  registry.add({.name = "conv2d_bias_act",
                .inputs = {{"x"},
                           {"weight"},
                           {.name = "bias", .optional = true},
                           {.name = "addend", .optional = true},
                           {.name = "slope", .optional = true}},
                .outputs = {{"y", false}},
                .infer = infer_conv2d_bias_act,
                .traits = {.precision = Precision::kReduced,
                           .float32_inputs = reads_of({4}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0, 3}),
                                      .filters = reads_of({1})}},
                .flops = conv2d_flops,
                .choose = choose_conv2d_bias_act});
  registry.add({.name = "conv2d_grad_input",
                .inputs = {{"dy"}, {"weight"}},
                .outputs = {{"dx"}},
                .infer = infer_grad_input,
                .gradient = grad_input_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced,
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0}),
                                      .filters = reads_of({1})}},
                .flops = grad_input_flops});
  registry.add({.name = "conv2d_grad_weight",
                .inputs = {{"x"}, {"dy"}},
                .outputs = {{"dweight"}},
                .infer = infer_grad_weight,
                .gradient = grad_weight_gradient,
                .gradient_reads = {.inputs = reads_of({0, 1})},
                .traits = {.precision = Precision::kReduced,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0, 1})}},
                .flops = grad_weight_flops});
}

}  // namespace sinter::ops
