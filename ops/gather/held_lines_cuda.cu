// The gradient of a gather whose sums are held in shared memory: indices and gradients are read once, results
// are written once, zeros among them. Elements that meet in a sum within a warp are added in pairs, warps one
// after the other or apart, so that equal calls give equal bits. No atomics.
#include <memory>
#include <string>

#include <fmt/format.h>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/op/kernel.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/channels/split_reduce_cuda.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/gather/gather_grad_cuda.h>
#include <sinter/ops/gather/held_lines_plan.h>

namespace sinter::ops {
namespace {

constexpr unsigned kFull = 0xffffffffu;
constexpr int kRounds = 4;  // elements of a thread that are asked for at once
constexpr unsigned kWarpSteps = 32 * kRounds;

/// Elements of a thread: the sums that they go to, -1 for none, and their gradients.
template <class C>
struct Batch {
  int sums[kRounds];
  C values[kRounds];
};

/// The steps first, first + 32, ... of a task.
template <HeldWalk walk, class T>
__device__ __forceinline__ Batch<compute_type<T>> load_batch(const HeldLines& lines, const HeldTask& task,
                                                             uint32_t first, const T* dy,
                                                             const int64_t* indices) {
  int64_t index[kRounds];
  uint32_t base[kRounds];
  T gradients[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const HeldElement at = lines.element<walk>(task, first + 32u * static_cast<unsigned>(r));
    index[r] = -1;
    base[r] = at.sum;
    if (at.inside) {
      index[r] = indices[at.element];
      gradients[r] = dy[at.element];
    }
  }
  Batch<compute_type<T>> batch;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const bool known = static_cast<uint64_t>(index[r]) < static_cast<uint64_t>(lines.rows);
    const uint32_t sum = base[r] + static_cast<uint32_t>(index[r]) * lines.row_step();
    batch.sums[r] = known ? static_cast<int>(sum) : -1;
    batch.values[r] = known ? cuda::load_as_compute(gradients[r]) : compute_type<T>{0};
  }
  return batch;
}

/// Adds up, in pairs, the values of a warp's lanes that go to the same sum; the first of them gets the total,
/// the others -1 in place of the sum.
template <class C>
__device__ __forceinline__ void merge_equal(int& sum, C& value) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned equal = __match_any_sync(kFull, sum);
  const unsigned behind = equal & (0xfffffffeu << lane);
  int next = sum < 0 ? -1 : __ffs(static_cast<int>(behind)) - 1;
  // In each round a lane takes in what its next one has, which reaches twice as far as in the round before.
  while (__any_sync(kFull, next >= 0)) {
    const C other = __shfl_sync(kFull, value, next & 31);
    const int after = __shfl_sync(kFull, next, next & 31);
    if (next >= 0) {
      value += other;
      next = after;
    }
  }
  if ((equal & ((1u << lane) - 1)) != 0) sum = -1;
}

/// Adds a warp's batch to its sums; for all lanes of the warp.
template <class C>
__device__ __forceinline__ void add_batch(const Batch<C>& batch, C* sums) {
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    if (batch.sums[r] >= 0) sums[batch.sums[r]] += batch.values[r];
    __syncwarp();
  }
}

template <class C>
inline constexpr int kSumPack = 16 / static_cast<int>(sizeof(C));

/// `pack` neighbouring sums, added over the copies of `copies` warps.
template <int copies, int pack, class C>
__device__ __forceinline__ void load_sums(const C* sums, int64_t copy_stride, C (&values)[pack]) {
  using Access = cuda::Pack<C, kSumPack<C>>;
#pragma unroll
  for (int copy = 0; copy < copies; ++copy) {
#pragma unroll
    for (int part = 0; part < pack / kSumPack<C>; ++part) {
      const Access loaded = reinterpret_cast<const Access*>(sums + copy * copy_stride)[part];
#pragma unroll
      for (int j = 0; j < kSumPack<C>; ++j) {
        C& value = values[part * kSumPack<C> + j];
        value = copy == 0 ? loaded.values[j] : value + loaded.values[j];
      }
    }
  }
}

/// Where `thread` of `threads` writes sums; each copy's begin `shift` places behind `sums`.
template <class C>
struct SumWriter {
  const C* sums;
  int64_t copy_stride;
  uint32_t shift, thread, threads;
};

/// The `count` sums of whole slabs to `out`, which is `shift` elements behind an aligned address.
template <int copies, class Out, class C>
__device__ __forceinline__ void write_span(const SumWriter<C>& from, uint32_t count, Out* out) {
  constexpr uint32_t pack = cuda::kPackSize<Out>;
  const uint32_t end = from.shift + count;
  for (uint32_t at = from.thread * pack; at < end; at += from.threads * pack) {
    C values[pack];
    load_sums<copies>(from.sums + at, from.copy_stride, values);
    cuda::Pack<Out, pack> rounded;
#pragma unroll
    for (uint32_t j = 0; j < pack; ++j) rounded.values[j] = cuda::round_to<Out>(values[j]);
    if (at >= from.shift && at + pack <= end) {
      *reinterpret_cast<cuda::Pack<Out, pack>*>(out + (at - from.shift)) = rounded;
    } else {
#pragma unroll
      for (uint32_t j = 0; j < pack; ++j) {
        if (at + j >= from.shift && at + j < end) out[at + j - from.shift] = rounded.values[j];
      }
    }
  }
}

/// The sums of a tile.
template <int copies, class Out, class C>
__device__ __forceinline__ void write_tile(const SumWriter<C>& from, const HeldLines& lines,
                                           const HeldTask& task, Out* out) {
  for (uint32_t i = from.thread; i < task.outputs; i += from.threads) {
    const uint32_t column = i & (static_cast<uint32_t>(lines.width) - 1);
    if (column >= task.width) continue;
    C value = from.sums[i];
#pragma unroll
    for (int copy = 1; copy < copies; ++copy) value += from.sums[copy * from.copy_stride + i];
    out[static_cast<int64_t>(i >> lines.width_shift) * lines.inner + column] = cuda::round_to<Out>(value);
  }
}

template <int copies, HeldWalk walk, class Out, class C>
__device__ __forceinline__ void write_sums(const SumWriter<C>& from, const HeldLines& lines,
                                           const HeldTask& task, Out* out) {
  if constexpr (walk == HeldWalk::kTile) {
    write_tile<copies>(from, lines, task, out);
  } else {
    write_span<copies>(from, task.outputs, out);
  }
}

/// How many elements `out` lies behind an address that is aligned to 16 bytes.
template <class T>
__device__ __forceinline__ uint32_t shift_of(const T* out) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out) % 16 / sizeof(T));
}

template <class C>
__device__ __forceinline__ void clear(C* sums, int64_t count, unsigned thread, unsigned threads) {
  const cuda::Pack<C, kSumPack<C>> zeros{};
  for (auto i = static_cast<int64_t>(thread); i < count / kSumPack<C>; i += threads) {
    reinterpret_cast<cuda::Pack<C, kSumPack<C>>*>(sums)[i] = zeros;
  }
}

/// Adds all steps of a task to `sums`, which are the warp's own.
template <HeldWalk walk, class T>
__device__ __forceinline__ void add_alone(const HeldLines& lines, const HeldTask& task, const T* dy,
                                          const int64_t* indices, compute_type<T>* sums) {
  const unsigned lane = threadIdx.x % 32;
  for (uint32_t first = 0; first < task.steps; first += kWarpSteps) {
    auto batch = load_batch<walk>(lines, task, first + lane, dy, indices);
    if (!lines.distinct()) {
#pragma unroll
      for (int r = 0; r < kRounds; ++r) merge_equal(batch.sums[r], batch.values[r]);
    }
    add_batch(batch, sums);
  }
}

/// The same for a block whose warps add in turn, in the order of the steps.
template <HeldWalk walk, class T>
__device__ __forceinline__ void add_in_turn(const HeldLines& lines, const HeldTask& task, const T* dy,
                                            const int64_t* indices, compute_type<T>* sums) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (uint32_t first = 0; first < task.steps; first += warps * kWarpSteps) {
    auto batch = load_batch<walk>(lines, task, first + warp * kWarpSteps + lane, dy, indices);
    if (!lines.distinct()) {
#pragma unroll
      for (int r = 0; r < kRounds; ++r) merge_equal(batch.sums[r], batch.values[r]);
    }
    for (unsigned turn = 0; turn < warps; ++turn) {
      if (turn == warp) add_batch(batch, sums);
      __syncthreads();
    }
  }
}

/// `partials`: the sums of every part in the order of the result, if there are several parts.
template <class T, Held mode, HeldWalk walk>
__global__ void __launch_bounds__(mode == Held::kTurns ? 1024 : 256)
    held_lines_kernel(__grid_constant__ const HeldLines lines, int64_t tasks, const T* dy,
                      const int64_t* indices, T* dx, compute_type<T>* partials) {
  using C = compute_type<T>;
  extern __shared__ __align__(16) unsigned char held_bytes[];
  constexpr bool alone = mode == Held::kWarps, turns = mode == Held::kTurns;
  constexpr int copies = mode == Held::kParts ? HeldLines::kBlockWarps : 1;
  const unsigned warp = threadIdx.x / 32;
  int64_t number = static_cast<int64_t>(blockIdx.x) * HeldLines::kBlockWarps + warp, part = 0;
  if constexpr (!alone) {
    number = blockIdx.x / static_cast<unsigned>(lines.parts);
    part = blockIdx.x % static_cast<unsigned>(lines.parts);
  }
  if (number >= tasks) return;  // whole warps, or whole blocks
  const bool several = !alone && lines.parts > 1;
  const HeldTask task = alone   ? lines.task<walk>(number, 0, 1)
                        : turns ? lines.task<walk>(number, part, lines.parts)
                                : lines.task<walk>(number, part * copies + warp, lines.parts * copies);
  T* const out = dx + task.result;
  C* const partial = partials + part * lines.results() + task.result;
  const uint32_t shift = walk == HeldWalk::kTile ? 0 : several ? shift_of(partial) : shift_of(out);

  C* const block_sums = reinterpret_cast<C*>(held_bytes);
  C* const sums = turns ? block_sums : block_sums + warp * lines.copy_stride;
  clear(sums, lines.copy_stride, turns ? threadIdx.x : threadIdx.x % 32, turns ? blockDim.x : 32u);
  if constexpr (turns) {
    __syncthreads();
    add_in_turn<walk>(lines, task, dy, indices, sums + shift);
  } else {
    __syncwarp();
    add_alone<walk>(lines, task, dy, indices, sums + shift);
  }

  if constexpr (alone) {
    write_sums<1, walk>(SumWriter<C>{sums, 0, shift, threadIdx.x % 32, 32u}, lines, task, out);
  } else {
    __syncthreads();
    const SumWriter<C> writer{block_sums, lines.copy_stride, shift, threadIdx.x, blockDim.x};
    if (several) {
      write_sums<copies, walk>(writer, lines, task, partial);
    } else {
      write_sums<copies, walk>(writer, lines, task, out);
    }
  }
}

template <class T, Held mode, HeldWalk walk>
void launch_held(const KernelContext& context, const HeldLines& lines) {
  const auto kernel = held_lines_kernel<T, mode, walk>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, context.stream().device.index);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(lines.blocks())),
                                dim3(static_cast<unsigned>(lines.threads)),
                                static_cast<size_t>(lines.shared_bytes)};
  T* dx = context.output(0).as<T>();
  auto* partials = context.workspace<compute_type<T>>();
  cuda::launch(context.stream(), shape, kernel, lines, lines.tasks(), context.input(0).as<const T>(),
               context.input(1).as<const int64_t>(), dx, partials);
  if (lines.parts > 1) {
    split_reduce(context.stream(), lines.parts, lines.results(), partials, StoreSums<T>{dx});
  }
}

template <class T, Held mode>
void launch_mode(const KernelContext& context, const HeldLines& lines) {
  switch (lines.walk()) {
    case HeldWalk::kLine:
      return launch_held<T, mode, HeldWalk::kLine>(context, lines);
    case HeldWalk::kSlabs:
      return launch_held<T, mode, HeldWalk::kSlabs>(context, lines);
    case HeldWalk::kTile:
      return launch_held<T, mode, HeldWalk::kTile>(context, lines);
  }
}

/// False if the sums do not fit, or if the indices are smaller than the result beside the axis.
bool plan_query(HeldLines& lines, const KernelQuery& query) {
  const Shape& indices = query.input(1).shape;
  const TensorSpec& dx = query.output(0);
  const int axis =
      normalize_axis(query.attributes<GatherGradAttributes>().axis, dx.shape.rank(), "gather_grad");
  if (indices != dx.shape.with(axis, indices[axis])) return false;
  const AxisSplit split = split_at(indices, axis);
  const cuda::DeviceTraits& traits = cuda::device_traits(dx.device.index);
  return plan_held_lines(lines,
                         {.outer = split.outer,
                          .extent = split.extent,
                          .inner = split.inner,
                          .rows = dx.shape[axis],
                          .sum_bytes = dx.dtype == DType::kFloat64 ? 8 : 4},
                         {.processors = traits.processors,
                          .most_shared = static_cast<int64_t>(traits.most_shared_bytes),
                          .shared = static_cast<int64_t>(traits.shared_bytes)});
}

struct PreparedHeld final : Prepared {
  HeldLines lines;
  size_t partial_bytes = 0;

  size_t workspace_bytes() const override { return partial_bytes; }
  std::string detail() const override {
    constexpr const char* kModes[] = {"warps", "parts", "turns"};
    constexpr const char* kWalks[] = {"lines", "slabs", "tiles"};
    return fmt::format("{} of {}", kModes[static_cast<int>(lines.mode)],
                       kWalks[static_cast<int>(lines.walk())]);
  }
};

std::shared_ptr<const Prepared> prepare_held(const KernelQuery& query) {
  auto prepared = std::make_shared<PreparedHeld>();
  const HeldLines& lines = prepared->lines;
  if (!plan_query(prepared->lines, query)) return nullptr;
  const size_t sum_bytes = query.output(0).dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  if (lines.parts > 1)
    prepared->partial_bytes = static_cast<size_t>(lines.parts * lines.results()) * sum_bytes;
  return prepared;
}

/// Results of narrow tiles are written in pieces of a few bytes: not where there are more of them than
/// indices.
double holding_time(const KernelQuery&, const Prepared* prepared) {
  const HeldLines& lines = static_cast<const PreparedHeld&>(*prepared).lines;
  return best_if(!lines.tiled || lines.width >= 8 || lines.rows <= lines.extent);
}

void run_held(const KernelContext& context) {
  const TensorView& dx = context.output(0);
  const HeldLines& lines = context.prepared<PreparedHeld>().lines;
  dispatch_float(dx.dtype, "gather_grad", [&]<class T> {
    switch (lines.mode) {
      case Held::kWarps:
        return launch_mode<T, Held::kWarps>(context, lines);
      case Held::kParts:
        return launch_mode<T, Held::kParts>(context, lines);
      case Held::kTurns:
        return launch_mode<T, Held::kTurns>(context, lines);
    }
  });
}

}  // namespace

void register_held_gather_grad_cuda(OpRegistry& registry) {
  registry.add_kernel("gather_grad", {.device = DeviceType::kCuda,
                                      .name = "held",
                                      .microseconds = holding_time,
                                      .prepare = prepare_held,
                                      .run = run_held});
}

}  // namespace sinter::ops
