// Padding on a GPU: every element of the result finds its source. Axes that no padding touches are merged,
// and the elements behind the last padded axis move in the widest units that they allow; units below 16 bytes
// in packs of the result, which find the source of their first element and how far neighbours follow it.
#include <cstring>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/flat_walk.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>
#include <sinter/ops/pad/pad_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// The padded axes and, between them, what is left of the others; the last axis is never padded.
struct PadAxes {
  PadAxes(const Shape& plain_shape, const PadAttributes& pad) : mode(pad.mode) {
    for (int axis = 0; axis < plain_shape.rank(); ++axis) {
      const auto [added_before, added_after] = pad.padding[static_cast<size_t>(axis)];
      const bool untouched = added_before == 0 && added_after == 0;
      if (untouched && rank > 0 && before[rank - 1] == 0 && after[rank - 1] == 0) {
        plain[rank - 1] *= plain_shape[axis];
      } else {
        plain[rank] = plain_shape[axis];
        before[rank] = added_before;
        after[rank] = added_after;
        ++rank;
      }
    }
    if (rank > 0 && before[rank - 1] == 0 && after[rank - 1] == 0) inner = plain[--rank];
  }
  int64_t padded(int axis) const { return before[axis] + plain[axis] + after[axis]; }

  PadMode mode;
  int rank = 0;  // without the innermost axis
  int64_t plain[kMaxRank] = {}, before[kMaxRank] = {}, after[kMaxRank] = {};
  int64_t inner = 1;  // extent of the innermost axis
};

/// Where the elements of a tensor lie in another of the same rank, which is shifted against it.
template <class Index>
struct PadMap {
  int rank = 0;
  PadMode mode = PadMode::kConstant;
  IndexDivide<Index> inner;
  IndexDivide<Index> to_extents[kMaxRank];
  int64_t from_extents[kMaxRank] = {}, before[kMaxRank] = {};
  int64_t last_extent = 1;  // of the last one of to_extents
};

/// Where an element of the result comes from.
struct PadPlace {
  int64_t source = 0;
  bool inside = true;  // else it is a new one
  int64_t run = 1;     // the elements from it on that lie side by side on both sides, or are new ones like it
};

template <class Index>
__device__ __forceinline__ PadPlace locate_padded(const PadMap<Index>& map, int64_t inner, Index i) {
  Index column = 0;
  Index rest = map.inner.divide(i, column);
  PadPlace place{.source = static_cast<int64_t>(column), .run = inner - static_cast<int64_t>(column)};
  int64_t stride = inner;
  for (int axis = map.rank - 1; axis >= 0; --axis) {
    Index index = 0;
    rest = map.to_extents[axis].divide(rest, index);
    const auto at = static_cast<int64_t>(index);
    const int64_t extent = map.from_extents[axis], plain = at - map.before[axis];
    if (axis == map.rank - 1 && plain >= 0 && plain < extent) {
      place.run += (min(extent - plain, map.last_extent - at) - 1) * inner;
    }
    const int64_t coordinate = pad_source(at, map.before[axis], extent, map.mode);
    place.inside = place.inside && coordinate >= 0;
    place.source += coordinate * stride;
    stride *= extent;
  }
  return place;
}

/// to[i] is the element of `from` that pad_source names, `value` if there is none.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads) pad_kernel(FlatCut cut, __grid_constant__ const PadMap<Index> map,
                                                       int64_t inner, T value, const T* from, T* to) {
  constexpr int pack = 16 / sizeof(T);
  const auto element = [&](int64_t i) {
    const PadPlace place = locate_padded(map, inner, static_cast<Index>(i));
    return place.inside ? from[place.source] : value;
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (int64_t i = thread; i < cut.packs; i += step) {
    const int64_t first = cut.head + i * pack;
    const PadPlace place = locate_padded(map, inner, static_cast<Index>(first));
    cuda::Pack<T, pack> result;
    if (place.run >= pack && place.inside) {
      result = load_unaligned<pack>(from + place.source);
    } else {
#pragma unroll
      for (int j = 0; j < pack; ++j) result.values[j] = place.run >= pack ? value : element(first + j);
    }
    *reinterpret_cast<cuda::Pack<T, pack>*>(to + first) = result;
  }
  const int64_t edge = cut.edge(thread);
  if (edge >= 0) to[edge] = element(edge);
}

template <class Index>
struct PadGradMap {
  int rank = 0;
  PadMode mode = PadMode::kReflect;
  IndexDivide<Index> inner;
  IndexDivide<Index> plain_divide[kMaxRank];
  int64_t plain[kMaxRank] = {}, before[kMaxRank] = {}, after[kMaxRank] = {};
};

/// dx[i] is the sum of the elements of dy that repeat it, in their order.
template <class Index, class T>
__global__ void pad_grad_kernel(Index count, __grid_constant__ const PadGradMap<Index> map, int64_t inner,
                                const T* dy, T* dx) {
  using C = compute_type<T>;
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    Index column = 0;
    const Index first = map.inner.divide(i, column);
    int64_t terms = 1;
    Index rest = first;
    for (int axis = map.rank - 1; axis >= 0; --axis) {
      Index at = 0;
      rest = map.plain_divide[axis].divide(rest, at);
      terms *=
          PadTargets(static_cast<int64_t>(at), map.before[axis], map.plain[axis], map.after[axis], map.mode)
              .count();
    }
    C sum = 0;
    for (int64_t term = 0; term < terms; ++term) {
      int64_t source = static_cast<int64_t>(column), stride = inner, choice = term;
      rest = first;
      for (int axis = map.rank - 1; axis >= 0; --axis) {
        Index at = 0;
        rest = map.plain_divide[axis].divide(rest, at);
        const PadTargets targets(static_cast<int64_t>(at), map.before[axis], map.plain[axis], map.after[axis],
                                 map.mode);
        int64_t chosen = 0;
        if (targets.count() > 1) {
          chosen = choice % targets.count();
          choice /= targets.count();
        }
        source += targets[chosen] * stride;
        stride *= map.before[axis] + map.plain[axis] + map.after[axis];
      }
      sum += cuda::load_as_compute(dy[source]);
    }
    dx[i] = cuda::round_to<T>(sum);
  }
}

/// 16 bytes of repetitions of `value` as an element of `dtype`.
std::array<std::byte, 16> repeated_bits(double value, DType dtype) {
  std::array<std::byte, 16> bits{};
  dispatch_all(dtype, "pad", [&]<class T> {
    const T rounded = static_cast<T>(value);
    for (size_t at = 0; at < bits.size(); at += sizeof(T)) std::memcpy(bits.data() + at, &rounded, sizeof(T));
  });
  return bits;
}

/// Writes all of `to`. Under `crop` it is the plain tensor and `from` the padded one, else the other way
/// round.
void launch_pad(const Stream& stream, const PadAxes& axes, bool crop, const TensorView& from,
                const TensorView& to, const std::array<std::byte, 16>& value_bits) {
  const auto size = static_cast<int64_t>(size_of(to.dtype));
  const int64_t unit = widest_unit({address_of(from.data), address_of(to.data), axes.inner * size});
  const int64_t inner = axes.inner * size / unit;
  const int64_t count = to.numel() * size / unit;
  dispatch_index(count, [&]<class Index> {
    PadMap<Index> map;
    map.rank = axes.rank;
    map.mode = crop ? PadMode::kConstant : axes.mode;
    map.inner = IndexDivide<Index>(inner);
    for (int i = 0; i < axes.rank; ++i) {
      map.to_extents[i] = IndexDivide<Index>(crop ? axes.plain[i] : axes.padded(i));
      map.from_extents[i] = crop ? axes.padded(i) : axes.plain[i];
      map.before[i] = crop ? -axes.before[i] : axes.before[i];
    }
    if (axes.rank > 0) map.last_extent = crop ? axes.plain[axes.rank - 1] : axes.padded(axes.rank - 1);
    dispatch_unit(unit, [&]<class T> {
      T value;
      std::memcpy(&value, value_bits.data(), sizeof(T));
      const FlatCut cut(count, elements_before_aligned(to.data, 16, unit, count),
                        static_cast<int>(16 / unit));
      cuda::launch(stream, cuda::grid_stride_shape(cut.packs, kThreads, kThreads), pad_kernel<Index, T>, cut,
                   map, inner, value, from.as<const T>(), to.as<T>());
    });
  });
}

void run_pad(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  if (y.numel() == 0) return;
  const auto& pad = context.attributes<PadAttributes>();
  launch_pad(context.stream(), PadAxes(x.shape, pad), false, x, y, repeated_bits(pad.value, x.dtype));
}

void run_pad_grad(const KernelContext& context) {
  const TensorView& dy = context.input(0);
  const TensorView& dx = context.output(0);
  if (dx.numel() == 0) return;
  const PadAxes axes(dx.shape, context.attributes<PadAttributes>());
  if (axes.mode == PadMode::kConstant) {
    launch_pad(context.stream(), axes, true, dy, dx, {});
    return;
  }
  const int64_t count = dx.numel();
  dispatch_index(count, [&]<class Index> {
    PadGradMap<Index> map;
    map.rank = axes.rank;
    map.mode = axes.mode;
    map.inner = IndexDivide<Index>(axes.inner);
    for (int i = 0; i < axes.rank; ++i) {
      map.plain_divide[i] = IndexDivide<Index>(axes.plain[i]);
      map.plain[i] = axes.plain[i];
      map.before[i] = axes.before[i];
      map.after[i] = axes.after[i];
    }
    dispatch_float(dx.dtype, "pad_grad", [&]<class T> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                   pad_grad_kernel<Index, T>, count, map, axes.inner, dy.as<const T>(), dx.as<T>());
    });
  });
}

}  // namespace

void register_pad_cuda(OpRegistry& registry);
void register_pad_cuda(OpRegistry& registry) {
  registry.add_kernel("pad", {.device = DeviceType::kCuda, .run = run_pad});
  registry.add_kernel("pad_grad", {.device = DeviceType::kCuda, .run = run_pad_grad});
}

}  // namespace sinter::ops
