#include <cmath>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/lanes.h>

namespace sinter::ops {
namespace {

/// Elements that make up one partial sum: a fixed number, so that threads do not change the result.
constexpr int64_t kPiece = 16384;

int64_t pieces_of(const Shape& shape) {
  return (shape.numel() + kPiece - 1) / kPiece;
}

size_t grad_norm_workspace(const KernelQuery& query) {
  int64_t pieces = 0;
  for (size_t i = 0; i < query.input_count(); ++i) pieces += pieces_of(query.input(i).shape);
  return static_cast<size_t>(pieces) * sizeof(double);
}

template <class T>
void sum_pieces(const TensorView& gradient, double* partials) {
  const T* x = gradient.as<const T>();
  const int64_t count = gradient.numel();
  parallel_for(pieces_of(gradient.shape), 1, [=](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const T* from = x + piece * kPiece;
      partials[piece] = lane_sum<double>(std::min(kPiece, count - piece * kPiece), [from](int64_t i) {
        const double value = static_cast<double>(static_cast<compute_type<T>>(from[i]));
        return value * value;
      });
    }
  });
}

void run_grad_norm(const KernelContext& context) {
  auto* partials = context.workspace<double>();
  int64_t pieces = 0;
  for (size_t i = 0; i < context.input_count(); ++i) {
    const TensorView& gradient = context.input(i);
    dispatch_float(gradient.dtype, "grad_norm", [&]<class T> { sum_pieces<T>(gradient, partials + pieces); });
    pieces += pieces_of(gradient.shape);
  }
  *context.output(0).as<double>() =
      std::sqrt(lane_sum<double>(pieces, [=](int64_t i) { return partials[i]; }));
}

}  // namespace

void register_grad_norm_cpu(OpRegistry& registry);
void register_grad_norm_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "grad_norm",
      {.device = DeviceType::kCpu, .workspace_bytes = grad_norm_workspace, .run = run_grad_norm});
}

}  // namespace sinter::ops
