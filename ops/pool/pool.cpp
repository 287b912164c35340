#include <algorithm>
#include <limits>

#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/pool/pool_geometry.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/where/where.h>

namespace sinter::ops {
namespace {

/// For errors: "3", "3 (dilation 2)"; "1", "1 and 2".
std::string kernel_text(const PoolAxis& axis) {
  return axis.dilation == 1 ? fmt::format("{}", axis.kernel)
                            : fmt::format("{} (dilation {})", axis.kernel, axis.dilation);
}
std::string padding_text(const PoolAxis& axis) {
  return axis.padding == axis.padding_after ? fmt::format("{}", axis.padding)
                                            : fmt::format("{} and {}", axis.padding, axis.padding_after);
}

PoolAxis make_axis(int64_t extent, const PoolAttributes& options, size_t axis, const char* tag) {
  const char* name = axis == 0 ? "height" : "width";
  const int64_t kernel = options.kernel[axis], padding = options.padding[axis];
  const int64_t after = options.padding_after[axis] == -1 ? padding : options.padding_after[axis];
  const int64_t dilation = options.dilation[axis];
  const int64_t stride = options.stride[axis] == 0 ? kernel : options.stride[axis];
  constexpr int64_t kMost = int64_t{1} << 30;
  SINTER_CHECK(kernel >= 1 && kernel <= kMost, "[{}] expected a kernel of {} >= 1 but got {}", tag, name,
               kernel);
  SINTER_CHECK(stride >= 1 && stride <= kMost,
               "[{}] expected a stride of {} >= 1, or 0 for the kernel's, but got {}", tag, name, stride);
  SINTER_CHECK(dilation >= 1 && dilation <= kMost, "[{}] expected a dilation of {} >= 1 but got {}", tag,
               name, dilation);
  PoolAxis made{.extent = extent,
                .kernel = kernel,
                .stride = stride,
                .padding = padding,
                .padding_after = after,
                .dilation = dilation,
                .span = (kernel - 1) * dilation + 1};
  for (const int64_t side : {padding, after}) {
    SINTER_CHECK(side >= 0 && side <= made.span / 2,
                 "[{}] expected padding of {} in [0, {}], half of the window, but got {}", tag, name,
                 made.span / 2, side);
  }
  const int64_t room = extent + padding + after - made.span;
  SINTER_CHECK(extent >= 1 && room + (options.ceil_mode ? stride - 1 : 0) >= 0,
               "[{}] expected {} of at least 1 output but got extent {} with kernel {} and padding {}", tag,
               name, extent, kernel_text(made), padding_text(made));
  made.out = (room + (options.ceil_mode ? stride - 1 : 0)) / stride + 1;
  // It would start behind the image.
  if (options.ceil_mode && (made.out - 1) * stride >= extent + padding) --made.out;
  return made;
}

void check_average(const PoolAttributes& options, const char* tag) {
  SINTER_CHECK(options.dilation == (std::array<int64_t, 2>{1, 1}),
               "[{}] expected no dilation but got {} x {}", tag, options.dilation[0], options.dilation[1]);
  SINTER_CHECK(options.divisor >= 0 && options.divisor <= std::numeric_limits<int32_t>::max(),
               "[{}] expected a divisor from 1 to 2^31 - 1, or 0 for none, but got {}", tag, options.divisor);
}

/// The places in a window have numbers of 32 bits.
void check_index_range(const PoolAttributes& options, const char* tag) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  SINTER_CHECK(options.kernel[0] * options.kernel[1] <= kMost,
               "[{}] expected a window of at most {} elements but got {} x {}", tag, kMost, options.kernel[0],
               options.kernel[1]);
}

/// Checks a gradient's inputs (dy, and indices if there are any) and gives dx.
std::vector<TensorSpec> infer_pool_grad(const InferContext& context) {
  const auto& options = context.attributes<PoolGradOptions>();
  if (context.input_count() == 1) check_average(options.pool, context.tag());
  context.expect_float(0);
  context.expect_rank(0, 4);
  const Shape image = pooled_image_shape(context.shape(0), options);
  context.expect_shape(0,
                       pool_geometry(image, options.pool, context.tag()).output_shape(options.pool.layout));
  if (context.input_count() > 1) {
    check_index_range(options.pool, context.tag());
    context.expect_dtype(1, pool_index_dtype(options.pool));
    context.expect_shape(1, context.shape(0));
  }
  return {{image, context.input(0).dtype, context.input(0).device}};
}

TensorSpec pooled_spec(const InferContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  context.expect_float(0);
  context.expect_rank(0, 4);
  const TensorSpec& x = context.input(0);
  return {pool_geometry(x.shape, options, context.tag()).output_shape(options.layout), x.dtype, x.device};
}

std::vector<TensorSpec> infer_avg_pool(const InferContext& context) {
  check_average(context.attributes<PoolAttributes>(), context.tag());
  return {pooled_spec(context)};
}

std::vector<TensorSpec> infer_max_pool(const InferContext& context) {
  const TensorSpec y = pooled_spec(context);
  check_index_range(context.attributes<PoolAttributes>(), context.tag());
  return {y, {y.shape, pool_index_dtype(context.attributes<PoolAttributes>()), y.device}};
}

PoolGradOptions grad_options(const GradientContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const Shape& x = context.input_spec(0).shape;
  const int axis = options.layout == Layout::kNCHW ? 2 : 1;
  return {options, x[axis], x[axis + 1]};
}

std::vector<Tensor> max_pool_gradient(const GradientContext& context) {
  return {vjp::max_pool2d(context.grad(), context.output(1), grad_options(context))};
}

/// For each output of a pooling where in its image, as one axis of pixels, the element was that `indices`
/// counts within the window: (N, C, outputs), or (N, outputs, C) under kNHWC.
Tensor pixels_of(const Tensor& indices, const PoolGeometry& geometry, Layout layout) {
  const auto& [batch, channels, y, x] = geometry;
  std::vector<int64_t> within,
      first;  // from a window's first pixel, and that pixel, which may lie in the padding
  for (int64_t i = 0; i < y.kernel * x.kernel; ++i)
    within.push_back(i / x.kernel * y.dilation * x.extent + i % x.kernel * x.dilation);
  for (int64_t i = 0; i < y.out * x.out; ++i)
    first.push_back((i / x.out * y.stride - y.padding) * x.extent + i % x.out * x.stride - x.padding);
  const int64_t outputs = y.out * x.out;
  const Device device = indices.device();
  const Tensor table = Tensor::from_values(within, {y.kernel * x.kernel}, device);
  const Tensor offsets = gather(table, 0, reshape(cast(indices, DType::kInt64), {-1}));
  const bool channels_first = layout == Layout::kNCHW;
  const Shape shape = channels_first ? Shape{batch, channels, outputs} : Shape{batch, outputs, channels};
  return add(reshape(offsets, {shape.begin(), shape.end()}),
             Tensor::from_values(first, channels_first ? Shape{outputs} : Shape{outputs, 1}, device));
}

/// Whether each window has an element of the image, as only dilation and padding can keep it from: (outputs),
/// or (outputs, 1) under kNHWC. Undefined if all do.
Tensor windows_with_elements(const PoolGeometry& geometry, Layout layout, Device device) {
  const auto has_any = [](const auto& axis, int64_t out) {
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      const int64_t at = out * axis.stride - axis.padding + tap * axis.dilation;
      if (at >= 0 && at < axis.extent) return true;
    }
    return false;
  };
  std::vector<uint8_t> found;
  for (int64_t i = 0; i < geometry.y.out * geometry.x.out; ++i)
    found.push_back(has_any(geometry.y, i / geometry.x.out) && has_any(geometry.x, i % geometry.x.out));
  if (std::ranges::find(found, 0) == found.end()) return {};
  const auto count = static_cast<int64_t>(found.size());
  const Shape shape = layout == Layout::kNCHW ? Shape{count} : Shape{count, 1};
  return cast(Tensor::from_values(found, shape, device), DType::kBool);
}

// The gradient of each element of dx at the place where dy went.
std::vector<Tensor> max_pool_grad_gradient(const GradientContext& context) {
  const auto& options = context.attributes<PoolGradOptions>();
  const Layout layout = options.pool.layout;
  const Tensor ddx = context.grad();
  const Shape& dy = context.input_spec(0).shape;
  if (dy.numel() == 0) return {reshape(ddx, {dy.begin(), dy.end()}), {}};
  const PoolGeometry geometry = pool_geometry(ddx.shape(), options.pool, "max_pool2d_grad");
  const bool channels_first = layout == Layout::kNCHW;
  const int64_t pixels = geometry.y.extent * geometry.x.extent;
  const Tensor flat =
      reshape(ddx, channels_first ? std::vector<int64_t>{geometry.batch, geometry.channels, pixels}
                                  : std::vector<int64_t>{geometry.batch, pixels, geometry.channels});
  const int axis = channels_first ? 2 : 1;
  const Tensor places = pixels_of(context.input(1), geometry, layout);
  const Tensor any = windows_with_elements(geometry, layout, ddx.device());
  const Tensor chosen = any.defined() ? where(any, gather(flat, axis, where(any, places, 0.0)), 0.0)
                                      : gather(flat, axis, places);
  return {reshape(chosen, {dy.begin(), dy.end()}), {}};
}

std::vector<Tensor> avg_pool_grad_gradient(const GradientContext& context) {
  static const Op& op = builtin("avg_pool2d");
  return {call_single(op, {context.grad()}, context.attributes<PoolGradOptions>().pool)};
}

std::vector<Tensor> global_avg_pool_grad_gradient(const GradientContext& context) {
  return {global_avg_pool2d(context.grad(), {.layout = context.attributes<GlobalPoolOptions>().layout})};
}

std::vector<Tensor> avg_pool_gradient(const GradientContext& context) {
  return {vjp::avg_pool2d(context.grad(), grad_options(context))};
}

std::vector<TensorSpec> infer_global_avg_pool(const InferContext& context) {
  context.expect_float(0);
  context.expect_rank(0, 4);
  const TensorSpec& x = context.input(0);
  const bool channels_first = context.attributes<GlobalPoolOptions>().layout == Layout::kNCHW;
  const int axis = channels_first ? 2 : 1;
  SINTER_CHECK(x.shape[axis] >= 1 && x.shape[axis + 1] >= 1,
               "[{}] expected height and width of at least 1 but got shape {}", context.tag(), x.shape);
  return {{Shape{x.shape[0], x.shape[channels_first ? 1 : 3]}, x.dtype, x.device}};
}

std::vector<Tensor> global_avg_pool_gradient(const GradientContext& context) {
  const Layout layout = context.attributes<GlobalPoolOptions>().layout;
  const Shape& x = context.input_spec(0).shape;
  const int axis = layout == Layout::kNCHW ? 2 : 1;
  return {vjp::global_avg_pool2d(context.grad(), {layout, x[axis], x[axis + 1]})};
}

std::vector<TensorSpec> infer_global_avg_pool_grad(const InferContext& context) {
  const auto& [layout, height, width] = context.attributes<GlobalPoolOptions>();
  context.expect_float(0);
  context.expect_rank(0, 2);
  SINTER_CHECK(height >= 1 && width >= 1, "[{}] expected height and width of at least 1 but got {} and {}",
               context.tag(), height, width);
  const TensorSpec& dy = context.input(0);
  const int64_t batch = dy.shape[0], channels = dy.shape[1];
  const Shape image =
      layout == Layout::kNCHW ? Shape{batch, channels, height, width} : Shape{batch, height, width, channels};
  return {{image, dy.dtype, dy.device}};
}

}  // namespace

PoolGeometry pool_geometry(const Shape& image, const PoolAttributes& options, const char* tag) {
  const int height = options.layout == Layout::kNCHW ? 2 : 1;
  return {image[0], image[options.layout == Layout::kNCHW ? 1 : 3], make_axis(image[height], options, 0, tag),
          make_axis(image[height + 1], options, 1, tag)};
}

Shape pooled_image_shape(const Shape& dy, const PoolGradOptions& options) {
  const int axis = options.pool.layout == Layout::kNCHW ? 2 : 1;
  return dy.with(axis, options.height).with(axis + 1, options.width);
}

DType pool_index_dtype(const PoolAttributes& options) {
  return options.kernel[0] * options.kernel[1] <= 255 ? DType::kUInt8 : DType::kInt32;
}

namespace {

PoolAttributes attributes_of(const char* tag, Size2d kernel, const Pool2dOptions& options) {
  const auto& [top, bottom, left, right] = options.padding;
  for (const auto& [side, least] :
       {std::pair("height", std::min(top, bottom)), std::pair("width", std::min(left, right))})
    SINTER_CHECK(least >= 0, "[{}] expected padding of {} >= 0 but got {}", tag, side, least);
  return {.kernel = kernel,
          .stride = options.stride,
          .padding = {top, left},
          .padding_after = {bottom, right},
          .dilation = options.dilation,
          .layout = options.layout,
          .ceil_mode = options.ceil_mode,
          .count_include_pad = options.count_include_pad,
          .divisor = options.divisor};
}

}  // namespace

Tensor max_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options) {
  static const Op& op = builtin("max_pool2d");
  return call(op, {x}, attributes_of("max_pool2d", kernel, options)).front();
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel, const Pool2dOptions& options) {
  static const Op& op = builtin("avg_pool2d");
  return call_single(op, {x}, attributes_of("avg_pool2d", kernel, options));
}

Tensor vjp::max_pool2d(const Tensor& dy, const Tensor& indices, const PoolGradOptions& options) {
  static const Op& op = builtin("max_pool2d_grad");
  return call_single(op, {dy, indices}, options);
}

Tensor avg_pool2d(const Tensor& x, const PoolAttributes& options) {
  static const Op& op = builtin("avg_pool2d");
  return call_single(op, {x}, options);
}

Tensor vjp::avg_pool2d(const Tensor& dy, const PoolGradOptions& options) {
  static const Op& op = builtin("avg_pool2d_grad");
  return call_single(op, {dy}, options);
}

Tensor global_avg_pool2d(const Tensor& x, const LayoutOptions& options) {
  static const Op& op = builtin("global_avg_pool2d");
  return call_single(op, {x}, GlobalPoolOptions{.layout = options.layout});
}

Tensor vjp::global_avg_pool2d(const Tensor& dy, const GlobalPoolOptions& options) {
  static const Op& op = builtin("global_avg_pool2d_grad");
  return call_single(op, {dy}, options);
}

void register_pool(OpRegistry& registry);
void register_pool(OpRegistry& registry) {
  registry.add({.name = "max_pool2d",
                .inputs = {{"x"}},
                .outputs = {{"y"}, {"indices", false}},
                .infer = infer_max_pool,
                .gradient = max_pool_gradient,
                .gradient_reads = {.outputs = reads_of({1})},
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0}),
                                      .image_outputs = reads_of({0, 1})}}});
  registry.add({.name = "max_pool2d_grad",
                .inputs = {{"dy"}, {"indices"}},
                .outputs = {{"dx"}},
                .infer = infer_pool_grad,
                .gradient = max_pool_grad_gradient,
                .gradient_reads = {.inputs = reads_of({1})}});
  registry.add({.name = "avg_pool2d",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_avg_pool,
                .gradient = avg_pool_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
  registry.add({.name = "avg_pool2d_grad",
                .inputs = {{"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_pool_grad,
                .gradient = avg_pool_grad_gradient});
  registry.add({.name = "global_avg_pool2d",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_global_avg_pool,
                .gradient = global_avg_pool_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
  registry.add({.name = "global_avg_pool2d_grad",
                .inputs = {{"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_global_avg_pool_grad,
                .gradient = global_avg_pool_grad_gradient});
}

}  // namespace sinter::ops
