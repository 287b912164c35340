// topk by two algorithms: for a small k a block finds one element of its line after the other; else all lines
// are sorted by a bitonic network (K. Batcher, "Sorting networks and their applications", AFIPS 1968).
#include <bit>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/reduce/arg_reduce_cuda.h>
#include <sinter/ops/topk/topk_attributes.h>

namespace sinter::ops {
namespace {

constexpr int kTopKThreads = 256;
constexpr int64_t kMostSelected = 16;  // the largest k that is selected element by element

/// Where lines of x and of the outputs begin. A line's elements are `inner` apart.
struct Lines {
  int64_t count, extent, k, inner;

  __device__ int64_t input(int64_t line) const { return line / inner * extent * inner + line % inner; }
  __device__ int64_t output(int64_t line) const { return line / inner * k * inner + line % inner; }
};

/// Whether a comes before b in the result: larger first, then the smaller place.
template <class C>
__device__ __forceinline__ bool precedes(const Place<C>& a, const Place<C>& b) {
  if (MaxReducer::replaces(a.value, b.value)) return true;
  if (MaxReducer::replaces(b.value, a.value)) return false;
  return a.term < b.term;
}

/// One block a line; round i finds the first element behind that of round i - 1.
template <class T>
__global__ void __launch_bounds__(kTopKThreads)
    select_kernel(Lines lines, const T* x, T* values, int64_t* indices) {
  using C = compute_type<T>;
  __shared__ Place<C> places[kTopKThreads];
  for (int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const T* from = x + lines.input(line);
    const int64_t to = lines.output(line);
    Place<C> last{C{}, -1};
    for (int64_t i = 0; i < lines.k; ++i) {
      Place<C> best = no_place<MaxReducer, C>();
      for (int64_t term = threadIdx.x; term < lines.extent; term += kTopKThreads) {
        const Place<C> place{cuda::load_as_compute(from[term * lines.inner]), term};
        if ((i == 0 || precedes(last, place)) && precedes(place, best)) best = place;
      }
      places[threadIdx.x] = best;
      cuda::fold_lanes(places, threadIdx.x, threadIdx.x, kTopKThreads, 1u,
                       [](const Place<C>& a, const Place<C>& b) { return precedes(b, a) ? b : a; });
      last = places[0];
      if (threadIdx.x == 0) {
        values[to + i * lines.inner] = from[last.term * lines.inner];
        indices[to + i * lines.inner] = last.term;
      }
      __syncthreads();  // places are used again
    }
  }
}

/// order[line][i] = i. The lines of `order` are 2^log_width long; places behind the extent stand for nothing.
__global__ void __launch_bounds__(kTopKThreads) number_kernel(int64_t count, int log_width, int64_t* order) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    order[i] = i & ((int64_t{1} << log_width) - 1);
  }
}

/// One step of the network: compares the places of all lines that differ in bit `distance`, within runs of
/// `run` places that are sorted forwards and backwards by turns.
template <class T>
__global__ void __launch_bounds__(kTopKThreads)
    exchange_kernel(Lines lines, int log_width, int64_t run, int64_t distance, const T* x, int64_t* order) {
  using C = compute_type<T>;
  const int log_pairs = log_width - 1;
  const int64_t pairs = lines.count << log_pairs;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += stride) {
    const int64_t line = i >> log_pairs;
    const int64_t pair = i & ((int64_t{1} << log_pairs) - 1);
    const int64_t low =
        (pair & (distance - 1)) | ((pair & ~(distance - 1)) << 1);  // a zero at bit `distance`
    int64_t* first = order + (line << log_width) + low;
    int64_t* second = first + distance;
    const int64_t a = *first, b = *second;
    const T* from = x + lines.input(line);
    bool in_order;  // whether a comes before b
    if (a >= lines.extent || b >= lines.extent) {
      in_order = a < b;  // nothing comes last
    } else {
      in_order = precedes(Place<C>{cuda::load_as_compute(from[a * lines.inner]), a},
                          Place<C>{cuda::load_as_compute(from[b * lines.inner]), b});
    }
    const bool forwards = (low & run) == 0;
    if (in_order != forwards) {
      *first = b;
      *second = a;
    }
  }
}

/// Takes the first k places of every line.
template <class T>
__global__ void __launch_bounds__(kTopKThreads)
    take_kernel(Lines lines, int log_width, const int64_t* order, const T* x, T* values, int64_t* indices) {
  const int64_t total = lines.count * lines.k;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
    const int64_t line = i / lines.k, rank = i % lines.k;
    const int64_t place = order[(line << log_width) + rank];
    const int64_t to = lines.output(line) + rank * lines.inner;
    values[to] = x[lines.input(line) + place * lines.inner];
    indices[to] = place;
  }
}

/// log2 of the places that a line of `extent` elements takes in the network.
int log_width_of(int64_t extent) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(extent - 1)));
}

bool is_selected(int64_t k, int64_t extent) {
  return k <= kMostSelected || extent == 1;
}

template <class T>
void sort_lines(const Stream& stream, const Lines& lines, const T* x, int64_t* order, T* values,
                int64_t* indices) {
  const int log_width = log_width_of(lines.extent);
  const int64_t width = int64_t{1} << log_width, places = lines.count << log_width;
  cuda::launch(stream, cuda::grid_stride_shape(places, kTopKThreads, kTopKThreads), number_kernel, places,
               log_width, order);
  const auto shape = cuda::grid_stride_shape(places / 2, kTopKThreads, kTopKThreads);
  for (int64_t run = 2; run <= width; run *= 2) {
    for (int64_t distance = run / 2; distance > 0; distance /= 2) {
      cuda::launch(stream, shape, exchange_kernel<T>, lines, log_width, run, distance, x, order);
    }
  }
  cuda::launch(stream, cuda::grid_stride_shape(lines.count * lines.k, kTopKThreads, kTopKThreads),
               take_kernel<T>, lines, log_width, static_cast<const int64_t*>(order), x, values, indices);
}

size_t topk_workspace(const KernelQuery& query) {
  const Shape& x = query.input(0).shape;
  const auto& attributes = query.attributes<TopKAttributes>();
  const AxisSplit split = split_at(x, normalize_axis(attributes.axis, x.rank(), "topk"));
  if (query.output(0).shape.numel() == 0 || is_selected(attributes.k, split.extent)) return 0;
  return (static_cast<size_t>(split.outer * split.inner) << log_width_of(split.extent)) * sizeof(int64_t);
}

void run_topk(const KernelContext& context) {
  const TensorView &x = context.input(0), &values = context.output(0), &indices = context.output(1);
  if (values.numel() == 0) return;
  const auto& attributes = context.attributes<TopKAttributes>();
  const AxisSplit split = split_at(x.shape, normalize_axis(attributes.axis, x.shape.rank(), "topk"));
  const Lines lines{split.outer * split.inner, split.extent, attributes.k, split.inner};
  dispatch_all(x.dtype, "topk", [&]<class T> {
    if (is_selected(lines.k, lines.extent)) {
      cuda::launch(context.stream(), cuda::grid_stride_shape(lines.count, 1, kTopKThreads), select_kernel<T>,
                   lines, x.as<const T>(), values.as<T>(), indices.as<int64_t>());
    } else {
      sort_lines(context.stream(), lines, x.as<const T>(), context.workspace<int64_t>(), values.as<T>(),
                 indices.as<int64_t>());
    }
  });
}

/// dx, which is zero, takes dy at the indices. Those out of range, which only the CPU can report, are left
/// out.
template <class Word>
__global__ void __launch_bounds__(kTopKThreads)
    scatter_kernel(Lines lines, const int64_t* indices, const Word* dy, Word* dx) {
  const int64_t total = lines.count * lines.k;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
    const int64_t outer = i / (lines.k * lines.inner), place = indices[i];
    if (place < 0 || place >= lines.extent) continue;
    dx[(outer * lines.extent + place) * lines.inner + i % lines.inner] = dy[i];
  }
}

void run_topk_grad(const KernelContext& context) {
  const TensorView &indices = context.input(0), &dy = context.input(1), &dx = context.output(0);
  if (dx.numel() == 0) return;
  const auto& attributes = context.attributes<TopKGradAttributes>();
  const AxisSplit split = split_at(dy.shape, normalize_axis(attributes.axis, dy.shape.rank(), "topk_grad"));
  const Lines lines{split.outer * split.inner, attributes.extent, split.extent, split.inner};
  // Zero is all bits zero in every floating-point dtype.
  SINTER_CUDA_CHECK(cudaMemsetAsync(dx.data, 0, static_cast<size_t>(dx.numel()) * size_of(dx.dtype),
                                    static_cast<cudaStream_t>(context.stream().native)));
  if (dy.numel() == 0) return;
  dispatch_bits(dy.dtype, [&]<class Word> {
    cuda::launch(context.stream(), cuda::grid_stride_shape(dy.numel(), kTopKThreads, kTopKThreads),
                 scatter_kernel<Word>, lines, indices.as<const int64_t>(), dy.as<const Word>(),
                 dx.as<Word>());
  });
}

}  // namespace

void register_topk_cuda(OpRegistry& registry);
void register_topk_cuda(OpRegistry& registry) {
  registry.add_kernel("topk",
                      {.device = DeviceType::kCuda, .workspace_bytes = topk_workspace, .run = run_topk});
  registry.add_kernel("topk_grad", {.device = DeviceType::kCuda, .run = run_topk_grad});
}

}  // namespace sinter::ops
