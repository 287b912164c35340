// Margins on a GPU, in one pass over the elements: the thread that writes the pack around a row's own class
// writes that element over it. Labels cannot raise errors here: a row with one out of range gets a NaN.
#include <limits>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/margin/margin.h>
#include <sinter/ops/margin/margin_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
struct MarginForward {
  using C = compute_type<T>;

  template <int pack>
  __device__ void store(int64_t at) const {
    C values[pack];
    load_pack(cosine + at, values);
#pragma unroll
    for (int j = 0; j < pack; ++j) values[j] = math.other(values[j]);
    store_pack(logits + at, values);
  }
  __device__ void store_own(int64_t row, int64_t at) const {
    const C own = cuda::load_as_compute(cosine[at]);
    own_cosine[row] = own;
    logits[at] = math.own(own, margins.of(math, row));
  }
  __device__ void store_none(int64_t row) const {
    own_cosine[row] = C{0};
  }
  __device__ void store_unknown(int64_t row, int64_t first) const {
    own_cosine[row] = logits[first] = std::numeric_limits<C>::quiet_NaN();
  }

  MarginMath<C> math;
  RowMargins<C> margins;
  const T* cosine;
  C* logits;
  C* own_cosine;
};

template <class T>
struct MarginBackward {
  using C = compute_type<T>;

  template <int pack>
  __device__ void store(int64_t at) const {
    C values[pack], kept[pack];
    load_pack(dlogits + at, values);
    if (logits != nullptr) load_pack(logits + at, kept);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const bool filtered = logits != nullptr && MarginMath<C>::is_filtered(kept[j]);
      values[j] = filtered ? C{0} : math.scale * values[j];
    }
    store_pack(dcosine + at, values);
  }
  __device__ void store_own(int64_t row, int64_t at) const {
    dcosine[at] = cuda::round_to<T>(math.own_slope(own_cosine[row], margins.of(math, row)) * dlogits[at]);
  }
  __device__ void store_none(int64_t) const {}
  __device__ void store_unknown(int64_t, int64_t first) const {
    dcosine[first] = cuda::round_to<T>(std::numeric_limits<C>::quiet_NaN());
  }

  MarginMath<C> math;
  RowMargins<C> margins;
  const C* dlogits;
  const C* logits;  // null without a filter
  const C* own_cosine;
  T* dcosine;
};

/// op.store for all `count` elements in packs, the last of them one by one, and for each row whose first or
/// own element is among those of a thread what has to be written over them.
template <int pack, class Index, class Op>
__global__ void margin_kernel(Op op, Index count, IndexDivide<Index> divide_classes, int64_t classes,
                              const int64_t* labels) {
  const Index step = static_cast<Index>(gridDim.x) * kThreads * pack;
  for (Index first = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * pack; first < count;
       first += step) {
    const int64_t begin = static_cast<int64_t>(first);
    const int64_t end =
        begin + pack < static_cast<int64_t>(count) ? begin + pack : static_cast<int64_t>(count);
    if (end == begin + pack) {
      op.template store<pack>(begin);
    } else {
      for (int64_t at = begin; at < end; ++at) op.template store<1>(at);
    }
    Index column = 0;
    auto row = static_cast<int64_t>(divide_classes.divide(first, column));
    for (int64_t start = begin - static_cast<int64_t>(column); start < end; start += classes, ++row) {
      const int64_t label = labels[row], own = start + label;
      if (label >= 0 && label < classes) {
        if (own >= begin && own < end) op.store_own(row, own);
      } else if (start >= begin) {
        label == kNoPositive ? op.store_none(row) : op.store_unknown(row, start);
      }
    }
  }
}

/// `aligned`: whether the arrays that op reads can be read in packs; outputs always can be written so.
template <class T, class Op>
void launch_margin(const Stream& stream, const Op& op, const TensorView& matrix, const TensorView& labels,
                   bool aligned) {
  constexpr int pack = cuda::kPackSize<compute_type<T>>;
  const int64_t count = matrix.numel(), classes = matrix.shape[1];
  if (count == 0) return;
  dispatch_index(count, [&]<class Index> {
    const auto run = [&]<int width>(std::integral_constant<int, width>) {
      cuda::launch(stream, cuda::grid_stride_shape(count, int64_t{width} * kThreads, kThreads),
                   margin_kernel<width, Index, Op>, op, static_cast<Index>(count),
                   IndexDivide<Index>(classes), classes, labels.as<const int64_t>());
    };
    aligned ? run(std::integral_constant<int, pack>()) : run(std::integral_constant<int, 1>());
  });
}

void run_combined_margin(const KernelContext& context) {
  const TensorView& cosine = context.input(0);
  dispatch_float(cosine.dtype, "combined_margin", [&]<class T> {
    using C = compute_type<T>;
    const MarginForward<T> op{MarginMath<C>(context.attributes<CombinedMarginOptions>()),
                              {context.input(2).as<const C>(), context.input(3).as<const C>()},
                              cosine.as<const T>(),
                              context.output(0).as<C>(),
                              context.output(1).as<C>()};
    launch_margin<T>(context.stream(), op, cosine, context.input(1), cuda::is_aligned(cosine.data, 16));
  });
}

void run_combined_margin_grad(const KernelContext& context) {
  const TensorView &dlogits = context.input(0), &logits = context.input(2);
  const auto& options = context.attributes<CombinedMarginGradAttributes>().options;
  dispatch_float(context.output(0).dtype, "combined_margin_grad", [&]<class T> {
    using C = compute_type<T>;
    const MarginBackward<T> op{
        MarginMath<C>(options),         {context.input(4).as<const C>(), nullptr},
        dlogits.as<const C>(),          options.interclass_filter > 0 ? logits.as<const C>() : nullptr,
        context.input(3).as<const C>(), context.output(0).as<T>()};
    // A null pointer counts as aligned.
    launch_margin<T>(context.stream(), op, dlogits, context.input(1),
                     cuda::is_aligned(dlogits.data, 16) && cuda::is_aligned(op.logits, 16));
  });
}

}  // namespace

void register_margin_cuda(OpRegistry& registry);
void register_margin_cuda(OpRegistry& registry) {
  registry.add_kernel("combined_margin", {.device = DeviceType::kCuda, .run = run_combined_margin});
  registry.add_kernel("combined_margin_grad", {.device = DeviceType::kCuda, .run = run_combined_margin_grad});
}

}  // namespace sinter::ops
