#include <numeric>

#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/reduce_math.h>
#include <sinter/ops/topk/topk_attributes.h>

namespace sinter::ops {
namespace {

/// One line of elements `stride` apart. `order` is scratch for `extent` places.
template <class T>
void topk_line(const T* x, int64_t extent, int64_t stride, int64_t k, int64_t* order, T* values,
               int64_t* indices) {
  using C = compute_type<T>;
  std::iota(order, order + extent, int64_t{0});
  // A strict total order, so that the result does not depend on the algorithm: larger first, then the smaller
  // place.
  std::partial_sort(order, order + k, order + extent, [&](int64_t i, int64_t j) {
    const C a = static_cast<C>(x[i * stride]), b = static_cast<C>(x[j * stride]);
    if (MaxReducer::replaces(a, b)) return true;
    if (MaxReducer::replaces(b, a)) return false;
    return i < j;
  });
  for (int64_t i = 0; i < k; ++i) {
    values[i * stride] = x[order[i] * stride];
    indices[i * stride] = order[i];
  }
}

// One line of scratch for each part into which the lines are cut, at most one part per thread. Where the cuts
// lie does not matter to the result.
size_t topk_workspace(const KernelQuery& query) {
  const Shape& x = query.input(0).shape;
  const int axis = normalize_axis(query.attributes<TopKAttributes>().axis, x.rank(), "topk");
  return static_cast<size_t>(x[axis]) * static_cast<size_t>(query.threads()) * sizeof(int64_t);
}

void run_topk(const KernelContext& context) {
  const TensorView &x = context.input(0), &values = context.output(0), &indices = context.output(1);
  if (values.numel() == 0) return;
  const auto& attributes = context.attributes<TopKAttributes>();
  const int axis = normalize_axis(attributes.axis, x.shape.rank(), "topk");
  const int64_t extent = x.shape[axis], stride = x.shape.stride(axis), k = attributes.k;
  const int64_t lines = x.shape.count(0, axis) * stride;
  const int64_t parts =
      std::min<int64_t>(context.threads(), (lines * extent + kElementwiseGrain - 1) / kElementwiseGrain);
  dispatch_all(x.dtype, "topk", [&]<class T> {
    parallel_for(parts, 1, [&](int64_t first_part, int64_t last_part) {
      for (int64_t part = first_part; part < last_part; ++part) {
        int64_t* order = context.workspace<int64_t>() + part * extent;
        for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
          const int64_t outer = line / stride, inner = line % stride;
          const int64_t target = outer * k * stride + inner;
          topk_line(x.as<const T>() + outer * extent * stride + inner, extent, stride, k, order,
                    values.as<T>() + target, indices.as<int64_t>() + target);
        }
      }
    });
  });
}

void run_topk_grad(const KernelContext& context) {
  const TensorView &indices = context.input(0), &dy = context.input(1), &dx = context.output(0);
  const auto& attributes = context.attributes<TopKGradAttributes>();
  const int axis = normalize_axis(attributes.axis, dy.shape.rank(), "topk_grad");
  const int64_t k = dy.shape[axis], stride = dy.shape.stride(axis), extent = attributes.extent;
  dispatch_float(dy.dtype, "topk_grad", [&]<class T> {
    const T* from = dy.as<const T>();
    const auto* place = indices.as<const int64_t>();
    std::fill_n(dx.as<T>(), dx.numel(), T{});
    for (int64_t outer = 0; outer < dy.shape.count(0, axis); ++outer) {
      T* to = dx.as<T>() + outer * extent * stride;
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t inner = 0; inner < stride; ++inner, ++place, ++from) {
          SINTER_CHECK(*place >= 0 && *place < extent, "[topk_grad] expected indices from 0 to {} but got {}",
                       extent - 1, *place);
          to[*place * stride + inner] = *from;
        }
      }
    }
  });
}

}  // namespace

void register_topk_cpu(OpRegistry& registry);
void register_topk_cpu(OpRegistry& registry) {
  registry.add_kernel("topk",
                      {.device = DeviceType::kCpu, .workspace_bytes = topk_workspace, .run = run_topk});
  registry.add_kernel("topk_grad", {.device = DeviceType::kCpu, .run = run_topk_grad});
}

}  // namespace sinter::ops
