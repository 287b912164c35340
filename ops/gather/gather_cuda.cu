// Gather on a GPU. Its gradient adds in the order of the indices, without atomics: a line (all elements that
// differ in the index of the axis only) belongs to one thread, to one block, or each element of its result to
// one thread. Indices cannot raise errors here: one out of range gives NaN (0 for integers), and no gradient.
#include <cstring>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/gather/gather_grad_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256;
// A line is scanned by a thread for each element of its result if these are few enough and the line is long.
constexpr int64_t kMostScanned = int64_t{1} << 18;
constexpr int64_t kShortestScanned = 32;
// Else a block adds a line if there are too few of them to occupy the GPU with a thread each.
constexpr int64_t kMostTiled = int64_t{1} << 15;

/// Where a flat index over axes of the indices lies in the tensor that they pick from.
template <class Index>
struct Places {
  int rank = 0;
  IndexDivide<Index> extents[kMaxRank];
  int64_t strides[kMaxRank] = {};

  __device__ __forceinline__ int64_t locate(Index i) const {
    int64_t place = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      Index at = 0;
      i = extents[axis].divide(i, at);
      place += static_cast<int64_t>(at) * strides[axis];
    }
    return place;
  }
};

/// Over all axes, `skipped` with stride 0; or over all but `skipped`.
template <class Index>
Places<Index> make_places(const Shape& indices, const Shape& source, int skipped, bool with_skipped) {
  Places<Index> places;
  for (int axis = 0; axis < indices.rank(); ++axis) {
    if (axis == skipped && !with_skipped) continue;
    places.extents[places.rank] = IndexDivide<Index>(indices[axis]);
    places.strides[places.rank] = axis == skipped ? 0 : source.stride(axis);
    ++places.rank;
  }
  return places;
}

template <class Index, class T>
__global__ void gather_kernel(Index count, __grid_constant__ const Places<Index> places, int64_t extent,
                              int64_t stride, T missing, const T* x, const int64_t* indices, T* y) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t index = indices[i];
    const bool known = index >= 0 && index < extent;
    y[i] = known ? x[places.locate(i) + index * stride] : missing;
  }
}

void run_gather(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& indices = context.input(1);
  const int64_t count = indices.numel();
  if (count == 0) return;
  const int axis = normalize_axis(context.attributes<GatherAttributes>().axis, x.shape.rank(), "gather");
  dispatch_bits(x.dtype, [&]<class T> {
    T missing;
    // Bytes of ones are a NaN in every floating-point dtype.
    std::memset(&missing, is_float(x.dtype) ? 0xff : 0, sizeof(T));
    dispatch_index(count, [&]<class Index> {
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kThreads, kThreads),
                   gather_kernel<Index, T>, count, make_places<Index>(indices.shape, x.shape, axis, true),
                   x.shape[axis], x.shape.stride(axis), missing, x.as<const T>(), indices.as<const int64_t>(),
                   context.output(0).as<T>());
    });
  });
}

/// The lines of a call. `extent` and `inner`: of the indices; `rows` and `stride`: extent of the axis in the
/// result and the distance between its elements.
template <class Index>
struct Lines {
  Places<Index> places;
  IndexDivide<Index> divide_inner;
  int64_t count = 0, extent = 0, inner = 1, rows = 0, stride = 1;

  /// The first element of a line among the indices.
  __device__ __forceinline__ int64_t first(Index line) const {
    Index column = 0;
    const auto outer = static_cast<int64_t>(divide_inner.divide(line, column));
    return outer * extent * inner + static_cast<int64_t>(column);
  }
};

/// One thread for each line; `sums` holds zeros.
template <class Index, class T>
__global__ void add_lines_kernel(__grid_constant__ const Lines<Index> lines, const T* dy,
                                 const int64_t* indices, compute_type<T>* sums) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  const auto count = static_cast<Index>(lines.count);
  for (Index line = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; line < count; line += step) {
    compute_type<T>* to = sums + lines.places.locate(line);
    int64_t at = lines.first(line);
    for (int64_t i = 0; i < lines.extent; ++i, at += lines.inner) {
      const int64_t index = indices[at];
      if (index >= 0 && index < lines.rows) to[index * lines.stride] += cuda::load_as_compute(dy[at]);
    }
  }
}

/// One block for each line, which takes its elements in tiles; `sums` holds zeros. Of the elements of a tile
/// that go to one place, the first one's thread adds up all, so that every place is written once.
template <class Index, class T>
__global__ void tile_lines_kernel(__grid_constant__ const Lines<Index> lines, const T* dy,
                                  const int64_t* indices, compute_type<T>* sums) {
  using C = compute_type<T>;
  __shared__ int64_t tile_indices[kThreads];
  __shared__ C tile_values[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    C* to = sums + lines.places.locate(static_cast<Index>(line));
    const int64_t first = lines.first(static_cast<Index>(line));
    for (int64_t begin = 0; begin < lines.extent; begin += kThreads) {
      const int width = static_cast<int>(lines.extent - begin < kThreads ? lines.extent - begin : kThreads);
      int64_t index = -1;
      __syncthreads();  // the tile before has been used, and what it added is seen
      if (thread < width) {
        const int64_t at = first + (begin + thread) * lines.inner;
        index = indices[at];
        if (index >= lines.rows) index = -1;
        tile_indices[thread] = index;
        tile_values[thread] = cuda::load_as_compute(dy[at]);
      }
      __syncthreads();
      if (index < 0) continue;
      int i = 0;
      while (tile_indices[i] != index) ++i;
      if (i != thread) continue;  // an earlier thread adds this one's
      C sum = 0;
      for (; i < width; ++i) {
        if (tile_indices[i] == index) sum += tile_values[i];
      }
      to[index * lines.stride] += sum;
    }
  }
}

/// One thread for each element of the result, in blocks that share a line and look at all of its indices.
template <class Index, class T>
__global__ void scan_lines_kernel(__grid_constant__ const Lines<Index> lines, int64_t blocks_each,
                                  const T* dy, const int64_t* indices, T* dx) {
  using C = compute_type<T>;
  __shared__ int64_t tile_indices[kThreads];
  __shared__ C tile_values[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t task = blockIdx.x; task < lines.count * blocks_each; task += gridDim.x) {
    const auto line = static_cast<Index>(task / blocks_each);
    const int64_t row = task % blocks_each * kThreads + thread;
    const int64_t first = lines.first(line);
    C sum = 0;
    for (int64_t begin = 0; begin < lines.extent; begin += kThreads) {
      const int width = static_cast<int>(lines.extent - begin < kThreads ? lines.extent - begin : kThreads);
      __syncthreads();  // the tile before has been used
      if (thread < width) {
        const int64_t at = first + (begin + thread) * lines.inner;
        tile_indices[thread] = indices[at];
        tile_values[thread] = cuda::load_as_compute(dy[at]);
      }
      __syncthreads();
      for (int i = 0; i < width; ++i) {
        if (tile_indices[i] == row) sum += tile_values[i];
      }
    }
    if (row < lines.rows) dx[lines.places.locate(line) + row * lines.stride] = cuda::round_to<T>(sum);
  }
}

struct Round {
  __device__ float operator()(float x) const { return x; }
};

template <class Index>
Lines<Index> make_lines(const Shape& indices, const Shape& result, int axis) {
  const AxisSplit split = split_at(indices, axis);
  Lines<Index> lines;
  lines.places = make_places<Index>(indices, result, axis, false);
  lines.divide_inner = IndexDivide<Index>(split.inner);
  lines.count = split.outer * split.inner;
  lines.extent = split.extent;
  lines.inner = split.inner;
  lines.rows = result[axis];
  lines.stride = result.stride(axis);
  return lines;
}

size_t gather_grad_workspace(const KernelQuery& query) {
  const TensorSpec& dx = query.output(0);
  return is_half(dx.dtype) ? static_cast<size_t>(dx.shape.numel()) * sizeof(float) : 0;
}

void set_zero(const Stream& stream, void* data, int64_t bytes) {
  SINTER_CUDA_CHECK(
      cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream.native)));
}

template <class Index, class T>
void add_lines(const KernelContext& context, const Lines<Index>& lines) {
  using C = compute_type<T>;
  constexpr bool direct = std::is_same_v<T, C>;
  const TensorView& dx = context.output(0);
  C* sums = direct ? dx.as<C>() : context.workspace<C>();
  set_zero(context.stream(), sums, dx.numel() * static_cast<int64_t>(sizeof(C)));
  const bool tile = lines.extent >= kShortestScanned && lines.count <= kMostTiled;
  const auto shape = tile ? cuda::grid_stride_shape(lines.count, 1, kThreads)
                          : cuda::grid_stride_shape(lines.count, kThreads, kThreads);
  cuda::launch(context.stream(), shape, tile ? tile_lines_kernel<Index, T> : add_lines_kernel<Index, T>,
               lines, context.input(0).as<const T>(), context.input(1).as<const int64_t>(), sums);
  if constexpr (!direct) {
    launch_elementwise(context.stream(), dx.numel(), Round{}, dx.as<T>(), static_cast<const float*>(sums));
  }
}

template <class Index, class T>
void scan_lines(const KernelContext& context, const Lines<Index>& lines) {
  const TensorView& dx = context.output(0);
  set_zero(context.stream(), dx.data,
           dx.numel() * static_cast<int64_t>(sizeof(T)));  // lines may leave some out
  const int64_t blocks_each = cuda::blocks_for(lines.rows, kThreads);
  cuda::launch(context.stream(), cuda::grid_stride_shape(lines.count * blocks_each, 1, kThreads),
               scan_lines_kernel<Index, T>, lines, blocks_each, context.input(0).as<const T>(),
               context.input(1).as<const int64_t>(), dx.as<T>());
}

void run_gather_grad(const KernelContext& context) {
  const TensorView& indices = context.input(1);
  const TensorView& dx = context.output(0);
  if (dx.numel() == 0) return;
  if (indices.numel() == 0) {
    set_zero(context.stream(), dx.data, dx.numel() * static_cast<int64_t>(size_of(dx.dtype)));
    return;
  }
  const int axis =
      normalize_axis(context.attributes<GatherGradAttributes>().axis, dx.shape.rank(), "gather_grad");
  dispatch_index(indices.numel(), [&]<class Index> {
    const auto lines = make_lines<Index>(indices.shape, dx.shape, axis);
    const bool scan = lines.extent >= kShortestScanned && lines.count * lines.rows <= kMostScanned;
    dispatch_float(dx.dtype, "gather_grad", [&]<class T> {
      if (scan) {
        scan_lines<Index, T>(context, lines);
      } else {
        add_lines<Index, T>(context, lines);
      }
    });
  });
}

}  // namespace

void register_gather_cuda(OpRegistry& registry);
void register_gather_cuda(OpRegistry& registry) {
  registry.add_kernel("gather", {.device = DeviceType::kCuda, .run = run_gather});
  registry.add_kernel(
      "gather_grad",
      {.device = DeviceType::kCuda, .workspace_bytes = gather_grad_workspace, .run = run_gather_grad});
  register_held_gather_grad_cuda(registry);
}

}  // namespace sinter::ops
