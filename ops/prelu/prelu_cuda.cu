#include <sinter/ops/common/channel_map_cuda.h>
#include <sinter/ops/common/channel_reduce_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/prelu/prelu_math.h>

namespace sinter::ops {
namespace {

ChannelView view_of(const Shape& x, const Shape& alpha, Layout layout) {
  if (alpha.numel() == 1) return {.outer = 1, .channels = 1, .inner = x.numel()};
  const bool last = x.rank() <= 2 || layout == Layout::kNHWC;
  return channel_view(x, last ? x.rank() - 1 : 1);
}

template <class T>
struct Slopes {
  const T* alpha;

  __device__ compute_type<T> operator()(int64_t channel) const {
    return cuda::load_as_compute(alpha[channel]);
  }
};

struct PReluFunction {
  template <class C>
  __device__ C operator()(C alpha, C x) const {
    return prelu_value(x, alpha);
  }
};

void run_prelu(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const ChannelView view =
      view_of(x.shape, context.input(1).shape, context.attributes<PReluAttributes>().layout);
  dispatch_float(x.dtype, "prelu", [&]<class T> {
    map_channels(context.stream(), view, Slopes<T>{context.input(1).as<const T>()}, PReluFunction{},
                 context.output(0).as<T>(), x.as<const T>());
  });
}

/// The terms of dalpha; writes dx on the way.
template <class T>
struct PReluGradTerms {
  using Compute = compute_type<T>;
  using Parameter = Compute;
  static constexpr int kValues = 1;

  const T *alpha, *x, *dy;
  T* dx;

  __device__ Parameter parameter(int64_t channel) const { return cuda::load_as_compute(alpha[channel]); }
  template <int pack>
  __device__ void add(int64_t offset, const Parameter (&alphas)[pack], Compute (&sums)[1][pack]) const {
    using Elements = cuda::Pack<T, pack>;
    const Elements values = *reinterpret_cast<const Elements*>(x + offset);
    const Elements slopes = *reinterpret_cast<const Elements*>(dy + offset);
    Elements result;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      const Compute value = cuda::load_as_compute(values.values[lane]);
      const Compute slope = cuda::load_as_compute(slopes.values[lane]);
      result.values[lane] = cuda::round_to<T>(prelu_slope(value, alphas[lane], slope));
      sums[0][lane] += prelu_alpha_slope(value, slope);
    }
    *reinterpret_cast<Elements*>(dx + offset) = result;
  }
};

template <class T>
struct StoreSum {
  T* sums;

  __device__ void operator()(int64_t channel, const double* values, double) const {
    sums[channel] = cuda::round_to<T>(values[0]);
  }
};

void run_prelu_grad(const KernelContext& context) {
  const ChannelView view =
      view_of(context.input(0).shape, context.input(1).shape, context.attributes<PReluAttributes>().layout);
  dispatch_float(context.input(0).dtype, "prelu_grad", [&]<class T> {
    const PReluGradTerms<T> terms{context.input(1).as<const T>(), context.input(0).as<const T>(),
                                  context.input(2).as<const T>(), context.output(0).as<T>()};
    const bool aligned =
        cuda::is_aligned(terms.x, 16) && cuda::is_aligned(terms.dy, 16) && cuda::is_aligned(terms.dx, 16);
    reduce_channels<T>(context.stream(), view, aligned, ChannelSums<PReluGradTerms<T>>{terms},
                       context.workspace<double>(), StoreSum<T>{context.output(1).as<T>()});
  });
}

size_t prelu_grad_workspace(const KernelQuery& query) {
  const ChannelView view =
      view_of(query.input(0).shape, query.input(1).shape, query.attributes<PReluAttributes>().layout);
  return reduce_channels_bytes(view, 1, size_of(query.input(0).dtype));
}

}  // namespace

void register_prelu_cuda(OpRegistry& registry);
void register_prelu_cuda(OpRegistry& registry) {
  registry.add_kernel("prelu", {.device = DeviceType::kCuda, .run = run_prelu});
  registry.add_kernel(
      "prelu_grad",
      {.device = DeviceType::kCuda, .workspace_bytes = prelu_grad_workspace, .run = run_prelu_grad});
}

}  // namespace sinter::ops
