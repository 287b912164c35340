// Adaptive pooling and the gradient of averages as ops. Sizes that have a kernel of their own go there.
#include <sinter/core/base/checked.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {
namespace {

int height_axis(Layout layout) {
  return layout == Layout::kNCHW ? 2 : 1;
}

/// Input 0 with `size` in place of its height and width; from either to the other.
std::vector<TensorSpec> infer_resized(const InferContext& context) {
  const auto& [size, layout] = context.attributes<AdaptivePoolAttributes>();
  context.expect_float(0);
  context.expect_rank(0, 4);
  const Shape& shape = context.shape(0);
  const int axis = height_axis(layout);
  SINTER_CHECK(shape[axis] >= 1 && shape[axis + 1] >= 1,
               "[{}] expected height and width of at least 1 but got shape {}", context.tag(), shape);
  for (const int64_t extent : size) {
    SINTER_CHECK(extent >= 1 && extent <= int64_t{1} << 30,
                 "[{}] expected a size in [1, 2^30] but got {} x {}", context.tag(), size[0], size[1]);
  }
  // Where windows begin and end is a quotient of such products.
  for (const int i : {0, 1})
    checked_multiply(context.tag(), shape[axis + i], size[static_cast<size_t>(i)] + 1);
  return {
      {shape.with(axis, size[0]).with(axis + 1, size[1]), context.input(0).dtype, context.input(0).device}};
}

std::array<int64_t, 2> size_of_input(const GradientContext& context, Layout layout) {
  const Shape& shape = context.input_spec(0).shape;
  return {shape[height_axis(layout)], shape[height_axis(layout) + 1]};
}

std::vector<Tensor> adaptive_avg_pool_gradient(const GradientContext& context) {
  const Layout layout = context.attributes<AdaptivePoolAttributes>().layout;
  return {vjp::adaptive_avg_pool2d(context.grad(), size_of_input(context, layout), layout)};
}

std::vector<Tensor> adaptive_avg_pool_grad_gradient(const GradientContext& context) {
  const Layout layout = context.attributes<AdaptivePoolAttributes>().layout;
  const auto [height, width] = size_of_input(context, layout);
  return {adaptive_avg_pool2d(context.grad(), {height, width}, {.layout = layout})};
}

/// y, and which pixel of its image each element was: row * width + column.
std::vector<TensorSpec> infer_adaptive_max_pool(const InferContext& context) {
  std::vector<TensorSpec> outputs = infer_resized(context);
  outputs.push_back({outputs[0].shape, DType::kInt64, outputs[0].device});
  return outputs;
}

/// Images with their pixels as one axis.
Shape with_flat_pixels(const Shape& images, Layout layout) {
  if (layout == Layout::kNCHW) return {images[0], images[1], images.count(2, 4)};
  return {images[0], images.count(1, 3), images[3]};
}

std::vector<Tensor> adaptive_max_pool_gradient(const GradientContext& context) {
  const Layout layout = context.attributes<AdaptivePoolAttributes>().layout;
  const Shape images = context.input_spec(0).shape, pooled = context.grad().shape();
  const Shape picked = with_flat_pixels(pooled, layout);
  const auto flat = [&](const Tensor& t) { return reshape(t, {picked.begin(), picked.end()}); };
  const Tensor dx = vjp::gather(flat(context.grad()), layout == Layout::kNCHW ? 2 : 1,
                                flat(context.output(1)), with_flat_pixels(images, layout));
  return {reshape(dx, {images.begin(), images.end()})};
}

/// The kernel of ordinary pooling with the same windows, where `size` divides the images evenly.
std::optional<Size2d> even_windows(const Tensor& x, Size2d size, Layout layout) {
  const auto [rows, columns] = size;
  if (x.rank() != 4 || rows < 1 || columns < 1) return {};
  const int64_t height = x.size(height_axis(layout)), width = x.size(height_axis(layout) + 1);
  if (height < rows || width < columns || height % rows != 0 || width % columns != 0) return {};
  return Size2d(height / rows, width / columns);
}

}  // namespace

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size, const LayoutOptions& options) {
  static const Op& op = builtin("adaptive_avg_pool2d");
  const Layout layout = options.layout;
  const auto [rows, columns] = size;
  if (x.rank() == 4 && rows >= 1 && columns >= 1) {
    const int axis = height_axis(layout);
    const int64_t height = x.size(axis), width = x.size(axis + 1);
    if (size == Size2d(1) && height >= 1 && width >= 1) {
      return reshape(global_avg_pool2d(x, options), layout == Layout::kNCHW
                                                        ? std::vector<int64_t>{x.size(0), x.size(1), 1, 1}
                                                        : std::vector<int64_t>{x.size(0), 1, 1, x.size(3)});
    }
  }
  if (const auto windows = even_windows(x, size, layout)) return avg_pool2d(x, *windows, {.layout = layout});
  return call_single(op, {x}, AdaptivePoolAttributes{size, layout});
}

Tensor vjp::adaptive_avg_pool2d(const Tensor& dy, std::array<int64_t, 2> size, Layout layout) {
  static const Op& op = builtin("adaptive_avg_pool2d_grad");
  return call_single(op, {dy}, AdaptivePoolAttributes{size, layout});
}

Tensor adaptive_max_pool2d(const Tensor& x, Size2d size, const LayoutOptions& options) {
  static const Op& op = builtin("adaptive_max_pool2d");
  const auto windows = even_windows(x, size, options.layout);
  if (windows && windows->height * windows->width <= INT32_MAX)
    return max_pool2d(x, *windows, {.layout = options.layout});
  return call_single(op, {x}, AdaptivePoolAttributes{size, options.layout});
}

void register_adaptive_pool(OpRegistry& registry);
void register_adaptive_pool(OpRegistry& registry) {
  registry.add({.name = "adaptive_avg_pool2d",
                .inputs = {{"x"}},
                .outputs = {{"y"}},
                .infer = infer_resized,
                .gradient = adaptive_avg_pool_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
  registry.add({.name = "adaptive_avg_pool2d_grad",
                .inputs = {{"dy"}},
                .outputs = {{"dx"}},
                .infer = infer_resized,
                .gradient = adaptive_avg_pool_grad_gradient,
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
  registry.add({.name = "adaptive_max_pool2d",
                .inputs = {{"x"}},
                .outputs = {{"y"}, {"indices", false}},
                .infer = infer_adaptive_max_pool,
                .gradient = adaptive_max_pool_gradient,
                .gradient_reads = {.outputs = reads_of({1})},
                .traits = {.precision = Precision::kFollow,
                           .layout = {.kind = LayoutRule::Kind::kAttribute,
                                      .images = reads_of({0}),
                                      .image_outputs = reads_of({0, 1})}}});
}

}  // namespace sinter::ops
