// Copies of blocks between places at fixed distances, on a GPU: slices, and permutations of whole blocks.
#include <sinter/core/base/shape.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256;
// Of the kernel that moves wide units: few threads with many independent loads each.
constexpr int kCopyThreads = 128, kCopyItems = 8;

/// Where units lie: the last axis is that of the units of a piece.
template <class Index>
struct UnitAxes {
  int rank = 0;
  IndexDivide<Index> extents[kMaxRank + 1];
  int64_t to_strides[kMaxRank + 1] = {}, from_strides[kMaxRank + 1] = {};

  void add(int64_t extent, int64_t to_stride, int64_t from_stride) {
    extents[rank] = IndexDivide<Index>(extent);
    to_strides[rank] = to_stride;
    from_strides[rank++] = from_stride;
  }
  __device__ __forceinline__ void locate(Index index, int64_t& to, int64_t& from) const {
    Index at = 0;
    index = extents[rank - 1].divide(index, at);
    to = from = static_cast<int64_t>(at);
    for (int axis = rank - 2; axis > 0; --axis) {
      index = extents[axis].divide(index, at);
      to += static_cast<int64_t>(at) * to_strides[axis];
      from += static_cast<int64_t>(at) * from_strides[axis];
    }
    to += static_cast<int64_t>(index) * to_strides[0];
    from += static_cast<int64_t>(index) * from_strides[0];
  }
  /// Where piece `piece` begins in the input.
  __device__ __forceinline__ int64_t locate_piece(Index piece) const {
    int64_t from = 0;
    for (int axis = rank - 2; axis > 0; --axis) {
      Index at = 0;
      piece = extents[axis].divide(piece, at);
      from += static_cast<int64_t>(at) * from_strides[axis];
    }
    return from + static_cast<int64_t>(piece) * from_strides[0];
  }
};

/// kContiguous: `out` is one piece.
template <class Index, class T, bool kContiguous>
__global__ void __launch_bounds__(kCopyThreads)
    copy_units_kernel(Index count, __grid_constant__ const UnitAxes<Index> axes, T* __restrict__ out,
                      const T* __restrict__ in) {
  constexpr Index kBlockUnits = kCopyThreads * kCopyItems;
  for (Index base = blockIdx.x * kBlockUnits + threadIdx.x; base < count; base += gridDim.x * kBlockUnits) {
    T units[kCopyItems];
    int64_t to[kCopyItems];
#pragma unroll
    for (int i = 0; i < kCopyItems; ++i) {
      const Index index = base + static_cast<Index>(i * kCopyThreads);
      int64_t from = 0;
      axes.locate(index, to[i], from);
      if (index < count) units[i] = __ldg(in + from);
    }
#pragma unroll
    for (int i = 0; i < kCopyItems; ++i) {
      const Index index = base + static_cast<Index>(i * kCopyThreads);
      if (index < count) __stcs(out + (kContiguous ? static_cast<int64_t>(index) : to[i]), units[i]);
    }
  }
}

/// For narrow units and a contiguous, aligned `out`: a thread collects 16 bytes of it.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    gather_packs_kernel(Index count, __grid_constant__ const UnitAxes<Index> axes, T* __restrict__ out,
                        const T* __restrict__ in) {
  constexpr Index kPack = 16 / sizeof(T);
  const Index step = static_cast<Index>(gridDim.x) * kThreads * kPack;
  for (Index base = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * kPack; base < count;
       base += step) {
    alignas(16) T pack[kPack];
#pragma unroll
    for (Index i = 0; i < kPack; ++i) {
      int64_t to = 0, from = 0;
      axes.locate(base + i, to, from);
      if (base + i < count) pack[i] = __ldg(in + from);
    }
    if (base + kPack <= count) {
      __stcs(reinterpret_cast<uint4*>(out + base), *reinterpret_cast<const uint4*>(pack));
    } else {
#pragma unroll
      for (Index i = 0; i < kPack; ++i) {
        if (base + i < count) out[base + i] = pack[i];
      }
    }
  }
}

/// 16 bytes from anywhere on, out of the five aligned words that hold them.
__device__ __forceinline__ uint4 load_words(const void* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto behind = static_cast<unsigned>(address & 3), bits = behind * 8;
  const auto* const words = reinterpret_cast<const uint32_t*>(address - behind);
  uint32_t w[5];
#pragma unroll
  for (int i = 0; i < 4; ++i) w[i] = __ldg(words + i);
  w[4] = behind != 0 ? __ldg(words + 4) : 0;
  return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
          __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

/// The first `bytes` bytes of `a`, behind them those of `b`.
__device__ __forceinline__ uint4 merge_bytes(const uint4& a, const uint4& b, int bytes) {
  const auto merge = [&](uint32_t x, uint32_t y, int word) {
    const int own = bytes - 4 * word;
    const uint32_t other = __funnelshift_lc(0u, ~0u, static_cast<uint32_t>(own > 0 ? 8 * own : 0));
    return (x & ~other) | (y & other);
  };
  return {merge(a.x, b.x, 0), merge(a.y, b.y, 1), merge(a.z, b.z, 2), merge(a.w, b.w, 3)};
}

/// As gather_packs_kernel, for pieces of `piece` units, 16 bytes at least, so that a pack lies in two of them
/// at most. Units below four bytes come out of words, which may hold what is around a piece, between `begin`
/// and `end`.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    gather_long_packs_kernel(Index count, Index piece, __grid_constant__ const UnitAxes<Index> axes,
                             T* __restrict__ out, const T* __restrict__ begin, const T* __restrict__ end) {
  constexpr Index kPack = 16 / sizeof(T);
  constexpr bool kWords = sizeof(T) < 4;
  constexpr int64_t kAround = kWords ? 4 / sizeof(T) : 0;  // units that words hold beside those of a pack
  const Index step = static_cast<Index>(gridDim.x) * kThreads * kPack;
  for (Index base = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * kPack; base < count;
       base += step) {
    Index at = 0;
    const Index first = axes.extents[axes.rank - 1].divide(base, at), left = piece - at;
    const bool is_cut = left < kPack && base + left < count;
    const T* const here = begin + axes.locate_piece(first) + at;
    const T* const next = is_cut ? begin + axes.locate_piece(first + 1) - left : here;
    const auto has_words = [&](const T* from) {
      return from - begin >= kAround && end - from >= static_cast<int64_t>(kPack) + kAround;
    };
    if (base + kPack > count || (kWords && !(has_words(here) && has_words(next)))) {
#pragma unroll 1
      for (Index i = 0; i < kPack && base + i < count; ++i) out[base + i] = (i < left ? here : next)[i];
      continue;
    }
    uint4 pack;
    if constexpr (kWords) {
      pack = load_words(here);
      if (is_cut) pack = merge_bytes(pack, load_words(next), static_cast<int>(left * sizeof(T)));
    } else {
      alignas(16) T units[kPack];
#pragma unroll
      for (Index i = 0; i < kPack; ++i) units[i] = __ldg((i < left ? here : next) + i);
      pack = *reinterpret_cast<const uint4*>(units);
    }
    __stcs(reinterpret_cast<uint4*>(out + base), pack);
  }
}

/// True if pieces follow each other in `to` without gaps.
bool is_contiguous(std::span<const StridedAxis> axes, int64_t bytes) {
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].to_stride != bytes) return false;
    bytes *= axes[i].extent;
  }
  return true;
}

}  // namespace

void copy_strided_cuda(const Stream& stream, void* to, const void* from, std::span<const StridedAxis> axes,
                       int64_t bytes) {
  int64_t unit = widest_unit({address_of(to), address_of(from), bytes}), pieces = 1;
  for (const StridedAxis& axis : axes) {
    unit = widest_unit({unit, axis.to_stride, axis.from_stride});
    pieces *= axis.extent;
  }
  const int64_t count = bytes / unit * pieces;
  if (count == 0) return;
  const bool contiguous = is_contiguous(axes, bytes);
  const bool packs = unit < 16 && contiguous && address_of(to) % 16 == 0;
  dispatch_unit(unit, [&]<class T> {
    dispatch_index(count, [&]<class Index> {
      UnitAxes<Index> unit_axes;
      for (const StridedAxis& axis : axes) {
        unit_axes.add(axis.extent, axis.to_stride / unit, axis.from_stride / unit);
      }
      unit_axes.add(bytes / unit, 1, 1);
      const auto run = [&](auto kernel, int threads, int64_t units) {
        cuda::launch(stream, cuda::grid_stride_shape(count, units, static_cast<unsigned>(threads)), kernel,
                     count, unit_axes, static_cast<T*>(to), static_cast<const T*>(from));
      };
      if (packs && bytes >= 16) {
        int64_t last = bytes;  // behind the last piece
        for (const StridedAxis& axis : axes) last += (axis.extent - 1) * axis.from_stride;
        const T* const begin = static_cast<const T*>(from);
        cuda::launch(stream, cuda::grid_stride_shape(count, kThreads * 16 / unit, kThreads),
                     gather_long_packs_kernel<Index, T>, count, bytes / unit, unit_axes, static_cast<T*>(to),
                     begin, begin + last / unit);
      } else if (packs) {
        run(gather_packs_kernel<Index, T>, kThreads, kThreads * 16 / unit);
      } else {
        run(contiguous ? copy_units_kernel<Index, T, true> : copy_units_kernel<Index, T, false>, kCopyThreads,
            kCopyThreads * kCopyItems);
      }
    });
  });
}

void copy_rows_cuda(const Stream& stream, void* to, int64_t to_stride, const void* from, int64_t from_stride,
                    int64_t bytes, int64_t rows) {
  if (bytes == 0 || rows == 0) return;
  if (rows == 1 || (to_stride == bytes && from_stride == bytes)) {
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes * rows), cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream.native)));
    return;
  }
  const StridedAxis axis{rows, to_stride, from_stride};
  copy_strided_cuda(stream, to, from, {&axis, 1}, bytes);
}

}  // namespace sinter::ops
