// Permutation on a GPU: a copy; copies of rows where the last axis stays; else transposes through tiles in
// shared memory.
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/permute_load_cuda.h>
#include <sinter/ops/permute/permute_store_cuda.h>
#include <sinter/ops/permute/permute_woven_cuda.h>
#include <sinter/ops/permute/plain/plain_transpose_cuda.h>

namespace sinter::ops {
namespace {

constexpr int64_t kMostGridY = 65535;
constexpr size_t kUsualSharedBytes = 48 << 10;  // more has to be asked for
constexpr int kMostSharedBytes = 96 << 10;      // what a tile may need
// Percent of a multiprocessor's memory that blocks share where tiles overlap: the rest is L1 cache, in which
// they find what both load.
constexpr int kShiftedCarveout = 60;
// Shorter rows go in tiles, since each on its own would fetch sectors of others, or be collected by units of
// less than 4 bytes.
constexpr int64_t kMostShortRowBytes = 64, kMostNarrowRowBytes = 160;

/// Blocks that a multiprocessor's registers are to suffice for: aligned tiles fill its memory, others leave a
/// part of it to the cache.
constexpr int least_blocks(TileKind kind, size_t element_bytes) {
  if (kind != TileKind::kColumns || element_bytes == 1) return 1024 >> log_threads(kind);
  return element_bytes == 2 ? 10 : 9;
}

template <class T, TileKind kKind>
__global__ void __launch_bounds__(1 << log_threads(kKind), least_blocks(kKind, sizeof(T)))
    tile_kernel(__grid_constant__ const TileJob job, const T* __restrict__ in, T* __restrict__ out) {
  extern __shared__ uint4 shared[];
  const TileMemory memory(reinterpret_cast<std::byte*>(shared), job);
  const int thread = static_cast<int>(threadIdx.x);
  const Tile tile = job.tile(blockIdx.x, job.first_outer + blockIdx.y);
  if (tile.rows <= 0) return;  // behind the last group of rows
  if constexpr (kKind == TileKind::kSeveralAxes) {
    note_tile<T>(job, tile, thread, memory);
    __syncthreads();
  }
  load_tile<T, kKind>(job, tile, thread, in, memory);
  wait_for_copies();
  __syncthreads();
  store_tile<T, kKind>(job, tile, thread, memory, out);
}

template <class T>
__global__ void __launch_bounds__(1 << kLogWovenThreads, 4)
    woven_kernel(__grid_constant__ const WovenJob job, const T* __restrict__ in, T* __restrict__ out) {
  extern __shared__ uint4 shared[];
  const auto image = reinterpret_cast<std::byte*>(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const WovenTile tile = job.tile(blockIdx.x);
  load_woven(job, tile, thread, in, image);
  wait_for_copies();
  __syncthreads();
  store_woven(job, tile, thread, image, out);
}

template <class T>
auto tile_kernel_for(TileKind kind) {
  if constexpr (Pack<T>::kSize > 1) {  // elements that are packs are never shifted nor collected
    if (kind == TileKind::kShiftedColumns) return tile_kernel<T, TileKind::kShiftedColumns>;
    if (kind == TileKind::kWholeColumns) return tile_kernel<T, TileKind::kWholeColumns>;
  }
  if (kind == TileKind::kSeveralAxes) return tile_kernel<T, TileKind::kSeveralAxes>;
  return tile_kernel<T, TileKind::kColumns>;
}

/// Lets blocks of a kernel have so much shared memory.
template <class Kernel>
void allow_shared_bytes(Kernel kernel, size_t bytes) {
  if (bytes <= kUsualSharedBytes) return;
  SINTER_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes));
}

template <class T>
void launch_woven(const Stream& stream, const WovenJob& job, const void* in, void* out) {
  const auto shared_bytes = static_cast<size_t>(job.shared_bytes());
  allow_shared_bytes(woven_kernel<T>, shared_bytes);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(job.tiles)), dim3(1u << kLogWovenThreads),
                                shared_bytes};
  cuda::launch(stream, shape, woven_kernel<T>, job, static_cast<const T*>(in), static_cast<T*>(out));
}

template <class T>
void launch_tiles(const Stream& stream, TileJob job, const void* in, void* out) {
  const auto kernel = tile_kernel_for<T>(job.kind);
  const auto shared_bytes = static_cast<size_t>(TileMemory::bytes(job));
  allow_shared_bytes(kernel, shared_bytes);
  if (job.kind == TileKind::kShiftedColumns) {
    SINTER_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kShiftedCarveout));
  }
  for (; job.first_outer < job.outer_count; job.first_outer += kMostGridY) {
    const auto outer = static_cast<unsigned>(std::min(kMostGridY, job.outer_count - job.first_outer));
    const cuda::LaunchShape shape{dim3(static_cast<unsigned>(job.matrix_tiles), outer),
                                  dim3(1u << log_threads(job.kind)), shared_bytes};
    cuda::launch(stream, shape, kernel, job, static_cast<const T*>(in), static_cast<T*>(out));
  }
}

/// Elements of `bytes` bytes, whose last axis moves.
void permute_elements(const Stream& stream, const PermutePlan& plan, int64_t bytes, const void* in,
                      void* out) {
  const auto size = static_cast<int>(bytes);
  const auto from = reinterpret_cast<uintptr_t>(in), to = reinterpret_cast<uintptr_t>(out);
  if (plan.kind == PermutePlan::Kind::kTranspose) {
    const std::optional<PlainJob> plain = choose_plain(plan.batch, plan.rows, plan.columns, size, from, to);
    if (plain) return transpose_plain_cuda(stream, *plain, size, in, out);
  }
  const TileJob tiles = plan_tiles(plan, size, from, to);
  const std::optional<WovenJob> woven = choose_woven(plan, tiles, size, from, to);
  dispatch_unit(bytes, [&]<class T> {
    if (woven) return launch_woven<T>(stream, *woven, in, out);
    launch_tiles<T>(stream, tiles, in, out);
  });
}

/// Short rows of `row_bytes` bytes in units of `unit`. False if there are no tiles for them.
bool weave_rows(const Stream& stream, PermutePlan plan, int64_t row_bytes, int64_t unit, const void* in,
                void* out) {
  plan.extents[static_cast<size_t>(plan.rank - 1)] = row_bytes / unit;
  const std::optional<WovenJob> job = plan_woven(
      plan, static_cast<int>(unit), reinterpret_cast<uintptr_t>(in), reinterpret_cast<uintptr_t>(out));
  if (job) dispatch_unit(unit, [&]<class T> { launch_woven<T>(stream, *job, in, out); });
  return job.has_value();
}

/// The last axis stays: rows of `bytes` bytes are copied whole.
void copy_permuted_rows(const Stream& stream, const PermutePlan& plan, int64_t bytes, const void* in,
                        void* out) {
  const int64_t length = plan.extents[static_cast<size_t>(plan.rank - 1)];
  std::array<StridedAxis, kMaxRank> axes;
  for (int i = 0; i + 1 < plan.rank; ++i) {
    const int axis = plan.axes[static_cast<size_t>(i)];
    axes[static_cast<size_t>(i)] = {plan.extents[static_cast<size_t>(axis)],
                                    plan.output_stride(i) / length * bytes,
                                    plan.input_stride(axis) / length * bytes};
  }
  copy_strided_cuda(stream, out, in, std::span(axes.data(), static_cast<size_t>(plan.rank - 1)), bytes);
}

void run_permute(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  if (x.numel() == 0) return;
  const auto axes = check_permutation(context.attributes<PermuteAttributes>().axes, x.shape.rank());
  PermutePlan plan = plan_permute(x.shape, std::span(axes.data(), static_cast<size_t>(x.shape.rank())));
  const auto size = static_cast<int64_t>(size_of(x.dtype));
  if (plan.kind == PermutePlan::Kind::kCopy) {
    const int64_t bytes = x.numel() * size;
    copy_rows_cuda(context.stream(), y.data, bytes, x.data, bytes, bytes, 1);
    return;
  }
  if (!plan.keeps_last()) return permute_elements(context.stream(), plan, size, x.data, y.data);
  const int64_t row_bytes = plan.extents[static_cast<size_t>(plan.rank - 1)] * size;
  const int64_t unit = widest_unit({address_of(x.data), address_of(y.data), row_bytes});
  if (row_bytes == unit) {
    plan.drop_last();  // such a row is one element of a permutation that does not keep its last axis
    return permute_elements(context.stream(), plan, row_bytes, x.data, y.data);
  }
  const bool is_short = row_bytes < (unit < 4 ? kMostNarrowRowBytes : kMostShortRowBytes) && unit < 16;
  if (is_short && weave_rows(context.stream(), plan, row_bytes, unit, x.data, y.data)) return;
  copy_permuted_rows(context.stream(), plan, row_bytes, x.data, y.data);
}

}  // namespace

void register_permute_cuda(OpRegistry& registry);
void register_permute_cuda(OpRegistry& registry) {
  registry.add_kernel("permute", {.device = DeviceType::kCuda, .run = run_permute});
}

}  // namespace sinter::ops
