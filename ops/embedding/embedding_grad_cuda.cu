// The gradient of an embedding with its look-ups sorted by row: every gradient is read once, whatever the
// table. The sort is stable and sums are cut by counts alone, so that equal calls give equal bits.
#include <algorithm>
#include <bit>

#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/sort/sort_pairs_cuda.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/embedding/embedding_grad_cuda.h>
#include <sinter/ops/embedding/embedding_grad_plan.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFewestSorted = 1024;  // fewer look-ups are found by scanning them

__global__ void make_keys_kernel(const int64_t* indices, int64_t count, int64_t rows, uint32_t* keys,
                                 uint32_t* positions) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t row = indices[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < rows ? row : rows);
    positions[i] = static_cast<uint32_t>(i);
  }
}

/// starts[r], for r in [0, rows], is how many of the sorted keys are below r.
__global__ void find_starts_kernel(const uint32_t* keys, int64_t count, int64_t rows, uint32_t* starts) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row <= rows; row += step) {
    int64_t begin = 0, end = count;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (keys[middle] < row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    starts[row] = static_cast<uint32_t>(begin);
  }
}

/// Adds the columns [column, column + pack) of the gradients of the sorted look-ups [first, end), in order.
template <class T, int pack>
__device__ __forceinline__ void add_gradients(const T* dy, const uint32_t* positions, int64_t first,
                                              int64_t end, int64_t columns, int64_t column,
                                              compute_type<T> (&sums)[pack]) {
  using Access = cuda::Pack<T, pack>;
  constexpr int kAhead = sizeof(Access) == 16 ? 4 : 8;  // gradients that are asked for before one is added
  for (int64_t k = first; k < end; k += kAhead) {
    uint32_t at[kAhead];
    Access loaded[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) at[j] = positions[k + j < end ? k + j : end - 1];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (k + j < end) loaded[j] = *reinterpret_cast<const Access*>(dy + at[j] * columns + column);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (k + j >= end) break;
#pragma unroll
      for (int i = 0; i < pack; ++i) sums[i] += cuda::load_as_compute(loaded[j].values[i]);
    }
  }
}

/// What the kernels of a call share.
struct Tasks {
  SortedLookups lookups;
  const uint32_t* positions = nullptr;
  cuda::WideDivide by_tiles;
  int64_t columns = 0, row_tasks = 0, tasks = 0;
  int across_shift = 0;  ///< 2 to this power are the threads of a task
};

template <class T, int pack>
__device__ __forceinline__ void add_row(const Tasks& tasks, int64_t row, int64_t column, const T* dy,
                                        T* dweight) {
  if (tasks.lookups.is_long(row)) return;
  compute_type<T> sums[pack] = {};
  add_gradients<T, pack>(dy, tasks.positions, tasks.lookups.begin_of(row), tasks.lookups.end_of(row),
                         tasks.columns, column, sums);
  cuda::Pack<T, pack> rounded;
#pragma unroll
  for (int i = 0; i < pack; ++i) rounded.values[i] = cuda::round_to<T>(sums[i]);
  *reinterpret_cast<cuda::Pack<T, pack>*>(dweight + row * tasks.columns + column) = rounded;
}

template <class T, int pack>
__device__ __forceinline__ void add_share(const Tasks& tasks, const ChunkShare& share, int64_t column,
                                          const T* dy, compute_type<T>* chunk_sums) {
  if (share.first == share.end) return;
  compute_type<T> sums[pack] = {};
  add_gradients<T, pack>(dy, tasks.positions, share.first, share.end, tasks.columns, column, sums);
  cuda::Pack<compute_type<T>, pack> sum;
#pragma unroll
  for (int i = 0; i < pack; ++i) sum.values[i] = sums[i];
  *reinterpret_cast<cuda::Pack<compute_type<T>, pack>*>(chunk_sums + share.slot * tasks.columns + column) =
      sum;
}

/// Short rows into the result, chunks of long ones into `chunk_sums`.
template <class T, int pack>
__global__ void __launch_bounds__(kThreads)
    add_lookups_kernel(__grid_constant__ const Tasks tasks, const T* dy, T* dweight,
                       compute_type<T>* chunk_sums) {
  const int lane = static_cast<int>(threadIdx.x) & ((1 << tasks.across_shift) - 1);
  const int64_t tasks_each = kThreads >> tasks.across_shift;
  for (int64_t task = blockIdx.x * tasks_each + (threadIdx.x >> tasks.across_shift); task < tasks.tasks;
       task += gridDim.x * tasks_each) {
    const bool whole = task < tasks.row_tasks;
    int64_t tile = 0;
    const int64_t which = tasks.by_tiles.divide(whole ? task : task - tasks.row_tasks, tile);
    const int64_t column = ((tile << tasks.across_shift) + lane) * pack;
    if (column >= tasks.columns) continue;
    if (whole) {
      add_row<T, pack>(tasks, which, column, dy, dweight);
    } else {
      add_share<T, pack>(tasks, first_share(tasks.lookups, which), column, dy, chunk_sums);
      add_share<T, pack>(tasks, last_share(tasks.lookups, which), column, dy, chunk_sums);
    }
  }
}

constexpr int kFoldColumns = 32;  // of a block, side by side
constexpr int kFoldLanes = 32;    // that share the parts of a row
constexpr int kFoldThreads = kFoldColumns * kFoldLanes;

/// The sums of a long row's parts in the block's columns from `first_column` on. For all threads of a block.
template <class T>
__device__ __forceinline__ void fold_row(const LongRow& found, const compute_type<T>* chunk_sums,
                                         int64_t columns, int64_t first_column, compute_type<T>* lanes,
                                         T* dweight) {
  using C = compute_type<T>;
  constexpr int kAhead = 4;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread / kFoldColumns;
  const int64_t column = first_column + thread % kFoldColumns;
  C sum = 0;
  for (int64_t part = lane; column < columns && part < found.parts; part += kAhead * kFoldLanes) {
    C loaded[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t at = part + j * kFoldLanes;
      loaded[j] = at < found.parts ? chunk_sums[found.slot(at) * columns + column] : C{0};
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) sum += loaded[j];
  }
  lanes[thread] = sum;
  cuda::fold_lanes(lanes, threadIdx.x, static_cast<unsigned>(lane), kFoldLanes, kFoldColumns,
                   [](C a, C b) { return a + b; });
  if (lane == 0 && column < columns) dweight[found.row * columns + column] = cuda::round_to<T>(lanes[thread]);
}

/// Long rows. Block (x, y) takes those that begin in every gridDim.x-th chunk, and every gridDim.y-th strip
/// of columns.
template <class T>
__global__ void __launch_bounds__(kFoldThreads)
    fold_long_rows_kernel(SortedLookups lookups, int64_t chunks, int64_t columns,
                          const compute_type<T>* chunk_sums, T* dweight) {
  __shared__ compute_type<T> lanes[kFoldThreads];
  __shared__ unsigned begun[kFoldThreads / 32];  // a bit for each chunk of a round in which a long row begins
  const unsigned thread = threadIdx.x;
  const int64_t step = gridDim.x;
  for (int64_t round = blockIdx.x; round < chunks; round += kFoldThreads * step) {
    const int64_t own = round + thread * step;
    const bool begins = own < chunks && long_row_from(lookups, own).parts > 0;
    const unsigned bits = __ballot_sync(0xffffffffu, begins);
    if (thread % 32 == 0) begun[thread / 32] = bits;
    if (__syncthreads_or(begins) == 0) continue;
    for (int word = 0; word < kFoldThreads / 32; ++word) {
      for (unsigned left = begun[word]; left != 0; left &= left - 1) {
        const LongRow found =
            long_row_from(lookups, round + (word * 32 + __ffs(static_cast<int>(left)) - 1) * step);
        for (int64_t column = static_cast<int64_t>(blockIdx.y) * kFoldColumns; column < columns;
             column += static_cast<int64_t>(gridDim.y) * kFoldColumns) {
          fold_row<T>(found, chunk_sums, columns, column, lanes, dweight);
        }
      }
    }
    __syncthreads();  // the bits have been used
  }
}

/// The arrays of a call in its scratch.
struct Arrays {
  Arrays(const KernelContext& context, const EmbeddingGradScratch& scratch)
      : base(context.workspace<std::byte>()),
        keys(at<uint32_t>(scratch.keys)),
        positions(at<uint32_t>(scratch.positions)),
        sorted_keys(at<uint32_t>(scratch.sorted_keys)),
        sorted_positions(at<uint32_t>(scratch.sorted_positions)),
        starts(at<uint32_t>(scratch.starts)) {}

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base + offset);
  }

  std::byte* base;
  uint32_t *keys, *positions, *sorted_keys, *sorted_positions, *starts;
};

void sort_lookups(const KernelContext& context, const EmbeddingGradPlan& plan,
                  const EmbeddingGradScratch& scratch, const Arrays& arrays) {
  cuda::launch(context.stream(), cuda::grid_stride_shape(plan.count, kThreads, kThreads), make_keys_kernel,
               context.input(1).as<const int64_t>(), plan.count, plan.rows, arrays.keys, arrays.positions);
  sort_pairs(context.stream(), arrays.at<void>(scratch.sort), scratch.bytes - scratch.sort, arrays.keys,
             arrays.sorted_keys, arrays.positions, arrays.sorted_positions, plan.count, plan.key_bits());
  cuda::launch(context.stream(), cuda::grid_stride_shape(plan.rows + 1, kThreads, kThreads),
               find_starts_kernel, arrays.sorted_keys, plan.count, plan.rows, arrays.starts);
}

template <class T, int pack>
void add_lookups(const KernelContext& context, const EmbeddingGradPlan& plan, const Arrays& arrays,
                 compute_type<T>* chunk_sums) {
  Tasks tasks;
  tasks.lookups = {arrays.sorted_keys, arrays.starts, plan.count, plan.rows};
  tasks.positions = arrays.sorted_positions;
  tasks.by_tiles = cuda::WideDivide(plan.tiles);
  tasks.columns = plan.columns;
  tasks.row_tasks = plan.row_tasks();
  tasks.tasks = plan.tasks();
  tasks.across_shift = std::countr_zero(static_cast<uint64_t>(plan.across));
  const T* dy = context.input(0).as<const T>();
  T* dweight = context.output(0).as<T>();
  cuda::launch(context.stream(), cuda::grid_stride_shape(plan.tasks(), kThreads / plan.across, kThreads),
               add_lookups_kernel<T, pack>, tasks, dy, dweight, chunk_sums);

  const int64_t strips = std::min<int64_t>(cuda::blocks_for(plan.columns, kFoldColumns), 65535);
  const int64_t most = int64_t{4} * cuda::device_traits(context.stream().device.index).processors;
  const int64_t beside = std::clamp<int64_t>(most / strips, 1, plan.chunks);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(beside), static_cast<unsigned>(strips)),
                                dim3(kFoldThreads)};
  cuda::launch(context.stream(), shape, fold_long_rows_kernel<T>, tasks.lookups, plan.chunks, plan.columns,
               chunk_sums, dweight);
}

/// Elements that an access of the result and of dy may hold.
template <class T>
int64_t widest_pack(const KernelContext& context) {
  const int64_t columns = context.output(0).shape[1];
  for (int64_t pack = cuda::kPackSize<T>; pack > 1; pack = pack == 8 ? 2 : 1) {
    const size_t bytes = static_cast<size_t>(pack) * sizeof(T);
    if (columns % pack == 0 && cuda::is_aligned(context.input(0).data, bytes) &&
        cuda::is_aligned(context.output(0).data, bytes)) {
      return pack;
    }
  }
  return 1;
}

size_t sum_bytes(DType dtype) {
  return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
}

EmbeddingGradScratch scratch_of(const EmbeddingGradPlan& plan, DType dtype) {
  return {plan, sum_bytes(dtype), sort_pairs_bytes(plan.count, plan.key_bits())};
}

void run_sorted(const KernelContext& context) {
  const TensorView& dweight = context.output(0);
  if (dweight.numel() == 0) return;
  const int64_t count = context.input(1).numel();
  dispatch_float(dweight.dtype, "embedding_grad", [&]<class T> {
    const int64_t pack = widest_pack<T>(context);
    const EmbeddingGradPlan plan(count, dweight.shape[0], dweight.shape[1], pack);
    const EmbeddingGradScratch scratch = scratch_of(plan, dweight.dtype);
    const Arrays arrays(context, scratch);
    sort_lookups(context, plan, scratch, arrays);
    auto* chunk_sums = arrays.at<compute_type<T>>(scratch.sums);
    if (pack == cuda::kPackSize<T>) {
      add_lookups<T, cuda::kPackSize<T>>(context, plan, arrays, chunk_sums);
    } else if (pack == 2) {
      add_lookups<T, 2>(context, plan, arrays, chunk_sums);
    } else {
      add_lookups<T, 1>(context, plan, arrays, chunk_sums);
    }
  });
}

bool can_sort(const KernelQuery& query) {
  const TensorSpec& dweight = query.output(0);
  return EmbeddingGradPlan::takes(query.input(1).shape.numel(), dweight.shape[0], dweight.shape[1]);
}

double sorting_time(const KernelQuery& query, const Prepared*) {
  return best_if(query.input(1).shape.numel() >= kFewestSorted);
}

size_t sorted_workspace(const KernelQuery& query) {
  const TensorSpec& dweight = query.output(0);
  const EmbeddingGradPlan plan(query.input(1).shape.numel(), dweight.shape[0], dweight.shape[1], 1);
  return scratch_of(plan, dweight.dtype).bytes;
}

}  // namespace

void register_sorted_embedding_grad_cuda(OpRegistry& registry) {
  registry.add_kernel("embedding_grad", {.device = DeviceType::kCuda,
                                         .name = "sorted",
                                         .can_run = can_sort,
                                         .microseconds = sorting_time,
                                         .workspace_bytes = sorted_workspace,
                                         .run = run_sorted});
}

}  // namespace sinter::ops
