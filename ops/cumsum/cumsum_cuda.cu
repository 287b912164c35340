// Cumulative sums on a GPU. Along the last axis a warp walks over a row, else a thread over a column. Where
// rows or columns are few, each is cut into chunks: one kernel sums every chunk, and in the next each chunk
// begins with the sums of those before it, added up in their order.
#include <algorithm>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/cumsum/cumsum.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256, kLanes = 32;
constexpr int kItems = 4;  // neighbours that a lane takes at a time
constexpr unsigned kAll = 0xffffffffu;

// What keeps a GPU busy, and the chunks that are worth a second kernel.
constexpr int64_t kRowWarps = 4096, kShortestRowChunk = 1024, kMostRowChunks = 1024;
constexpr int64_t kColumnThreads = int64_t{1} << 16, kShortestColumnChunk = 32, kMostColumnChunks = 256;

/// The lines along the axis and their chunks; the order of additions follows from it, and it from the shape.
struct ScanPlan {
  ScanPlan(const Shape& shape, const CumsumAttributes& attributes)
      : split(split_at(shape, normalize_axis(attributes.axis, shape.rank(), "cumsum"))),
        reverse(attributes.reverse) {
    const int64_t lines = std::max<int64_t>(split.outer * split.inner, 1);
    const bool is_row = split.inner == 1;
    const int64_t wanted = (is_row ? kRowWarps : kColumnThreads) / lines;
    const int64_t worthwhile = split.extent / (is_row ? kShortestRowChunk : kShortestColumnChunk);
    const int64_t most = is_row ? kMostRowChunks : kMostColumnChunks;
    chunk = cuda::blocks_for(split.extent, std::clamp<int64_t>(std::min(wanted, worthwhile), 1, most));
    if (is_row) chunk = cuda::blocks_for(chunk, kLanes * kItems) * kLanes * kItems;
    chunk = std::max<int64_t>(chunk, 1);
    chunks = cuda::blocks_for(split.extent, chunk);
  }
  int64_t pieces() const { return split.outer * split.inner * chunks; }
  /// Where element i of the sum lies along the axis.
  __device__ int64_t place(int64_t i) const { return (reverse ? split.extent - 1 - i : i) * split.inner; }

  AxisSplit split;
  int64_t chunk = 1, chunks = 1;
  bool reverse;
};

template <class A>
__device__ A warp_sum(A value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAll, value, offset);
  return value;
}

/// The sum of the values of all lanes up to this one.
template <class A>
__device__ A warp_scan(A value, int lane) {
  for (int offset = 1; offset < kLanes; offset *= 2) {
    const A before = __shfl_up_sync(kAll, value, offset);
    if (lane >= offset) value += before;
  }
  return value;
}

/// A warp for each chunk of a row; kTotals: writes its sum alone, to totals (rows, chunks).
template <bool kTotals, class A, class T, class To>
__global__ void __launch_bounds__(kThreads)
    scan_rows_kernel(int64_t pieces, __grid_constant__ const ScanPlan plan, const T* __restrict__ x,
                     A* totals, To* __restrict__ y) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  for (int64_t piece = warp; piece < pieces; piece += static_cast<int64_t>(gridDim.x) * (kThreads / kLanes)) {
    const int64_t row = piece / plan.chunks, chunk = piece % plan.chunks;
    const int64_t first = row * plan.split.extent;
    const int64_t begin = chunk * plan.chunk, end = min(begin + plan.chunk, plan.split.extent);
    A carry{0};
    if constexpr (!kTotals) {
      for (int64_t i = lane; i < chunk; i += kLanes) carry += totals[row * plan.chunks + i];
      carry = warp_sum(carry);
    }
    for (int64_t base = begin; base < end; base += kLanes * kItems) {
      const int64_t own = base + lane * kItems;
      A sums[kItems], sum{0};
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        if (own + i < end) sum += static_cast<A>(cuda::load_as_compute(x[first + plan.place(own + i)]));
        sums[i] = sum;
      }
      if constexpr (kTotals) {
        carry += sum;
      } else {
        const A through = warp_scan(sum, lane);
        A before = __shfl_up_sync(kAll, through, 1);
        before = lane == 0 ? carry : carry + before;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          if (own + i < end) y[first + plan.place(own + i)] = cuda::round_to<To>(before + sums[i]);
        }
        carry += __shfl_sync(kAll, through, kLanes - 1);
      }
    }
    if constexpr (kTotals) {
      carry = warp_sum(carry);
      if (lane == 0) totals[piece] = carry;
    }
  }
}

/// A thread for each chunk of a column; kTotals: writes its sum alone, to totals (outer, chunks, inner).
template <bool kTotals, class A, class T, class To>
__global__ void __launch_bounds__(kThreads)
    scan_columns_kernel(int64_t pieces, __grid_constant__ const ScanPlan plan, const T* __restrict__ x,
                        A* totals, To* __restrict__ y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; piece < pieces;
       piece += step) {
    const int64_t column = piece % plan.split.inner, line = piece / plan.split.inner;
    const int64_t outer = line / plan.chunks, chunk = line % plan.chunks;
    const int64_t first = outer * plan.split.extent * plan.split.inner + column;
    const int64_t begin = chunk * plan.chunk, end = min(begin + plan.chunk, plan.split.extent);
    A carry{0};
    if constexpr (!kTotals) {
      for (int64_t i = 0; i < chunk; ++i)
        carry += totals[(outer * plan.chunks + i) * plan.split.inner + column];
    }
#pragma unroll 4
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = first + plan.place(i);
      carry += static_cast<A>(cuda::load_as_compute(x[at]));
      if constexpr (!kTotals) y[at] = cuda::round_to<To>(carry);
    }
    if constexpr (kTotals) totals[piece] = carry;
  }
}

template <class T, class To>
void run_typed(const KernelContext& context) {
  using A = compute_type<To>;
  const TensorView &x = context.input(0), &y = context.output(0);
  const ScanPlan plan(x.shape, context.attributes<CumsumAttributes>());
  const bool is_row = plan.split.inner == 1;
  const auto shape = cuda::grid_stride_shape(plan.pieces(), is_row ? kThreads / kLanes : kThreads, kThreads);
  auto* const totals = static_cast<A*>(context.workspace());
  const auto launch = [&](auto* kernel) {
    cuda::launch(context.stream(), shape, kernel, plan.pieces(), plan, x.as<const T>(), totals, y.as<To>());
  };
  if (plan.chunks > 1)
    launch(is_row ? scan_rows_kernel<true, A, T, To> : scan_columns_kernel<true, A, T, To>);
  launch(is_row ? scan_rows_kernel<false, A, T, To> : scan_columns_kernel<false, A, T, To>);
}

void run_cumsum(const KernelContext& context) {
  const DType dtype = context.input(0).dtype;
  if (context.output(0).numel() == 0) return;
  if (is_float(dtype)) {
    dispatch_float(dtype, "cumsum", [&]<class T> { run_typed<T, T>(context); });
  } else {
    dispatch_all(dtype, "cumsum", [&]<class T> { run_typed<T, int64_t>(context); });
  }
}

/// No accumulator is wider than 8 bytes.
size_t cumsum_workspace(const KernelQuery& query) {
  const ScanPlan plan(query.input(0).shape, query.attributes<CumsumAttributes>());
  return plan.chunks > 1 ? static_cast<size_t>(plan.pieces()) * sizeof(double) : 0;
}

}  // namespace

void register_cumsum_cuda(OpRegistry& registry);
void register_cumsum_cuda(OpRegistry& registry) {
  registry.add_kernel("cumsum",
                      {.device = DeviceType::kCuda, .workspace_bytes = cumsum_workspace, .run = run_cumsum});
}

}  // namespace sinter::ops
