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
#include <sinter/ops/permute/plain_transpose_cuda.h>

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

/// A call in the widest elements that both tensors have: rows that stay rows are elements, or made of some.
struct Call {
  PermutePlan plan;
  int bytes = 0;  ///< of an element
  uintptr_t in = 0, out = 0;

  Call(const Shape& shape, const PermuteAttributes& attributes, DType dtype, const void* x, const void* y)
      : bytes(static_cast<int>(size_of(dtype))),
        in(reinterpret_cast<uintptr_t>(x)),
        out(reinterpret_cast<uintptr_t>(y)) {
    const auto axes = check_permutation(attributes.axes, shape.rank());
    plan = plan_permute(shape, std::span(axes.data(), static_cast<size_t>(shape.rank())));
    if (plan.is_copy() || !plan.keeps_last()) return;
    int64_t& length = plan.extents[static_cast<size_t>(plan.rank - 1)];
    const int64_t row_bytes = length * bytes, unit = widest_unit({address_of(x), address_of(y), row_bytes});
    bytes = static_cast<int>(unit);
    length = row_bytes / unit;
    if (length == 1) --plan.rank;
  }
  /// As it is planned: the output is aligned.
  explicit Call(const KernelQuery& query)
      : Call(query.input(0).shape, query.attributes<PermuteAttributes>(), query.input(0).dtype,
             query.inputs().empty() ? nullptr : query.inputs()[0].data, nullptr) {}

  std::optional<PlainJob> plain() const {
    if (!plan.is_transpose()) return std::nullopt;
    return choose_plain(plan.rank == 3 ? plan.extent(0) : 1, plan.extent(plan.rank - 2),
                        plan.extent(plan.rank - 1), bytes, in, out);
  }
  bool has_tiles() const { return !plan.is_copy() && !plan.keeps_last(); }
  std::optional<TileJob> tiles() const {
    return has_tiles() ? std::optional(plan_tiles(plan, bytes, in, out)) : std::nullopt;
  }
  std::optional<WovenJob> woven() const {
    return plan.is_copy() ? std::nullopt : plan_woven(plan, bytes, in, out);
  }
  /// Where these serve better than `tiles`, or than rows.
  std::optional<WovenJob> better_woven(const std::optional<TileJob>& tiles) const {
    if (tiles) return choose_woven(plan, *tiles, bytes, in, out);
    const int64_t row_bytes = plan.extent(plan.rank - 1) * bytes;
    const bool is_short = row_bytes < (bytes < 4 ? kMostNarrowRowBytes : kMostShortRowBytes) && bytes < 16;
    return is_short ? woven() : std::nullopt;
  }
};

/// The last axis stays: rows are copied whole.
void copy_permuted_rows(const Stream& stream, const PermutePlan& plan, int64_t bytes, const void* in,
                        void* out) {
  std::array<StridedAxis, kMaxRank> axes;
  for (int i = 0; i + 1 < plan.rank; ++i) {
    const int axis = plan.input_axis(i);
    axes[static_cast<size_t>(i)] = {plan.extent(axis), plan.output_stride(i) * bytes,
                                    plan.input_stride(axis) * bytes};
  }
  copy_strided_cuda(stream, out, in, std::span(axes.data(), static_cast<size_t>(plan.rank - 1)),
                    plan.extent(plan.rank - 1) * bytes);
}

/// Which way elements go.
enum class Way : uint8_t { kBest, kRows, kPlain, kTiles, kWoven };

template <Way kWay>
bool can_permute(const KernelQuery& query) {
  if (query.input(0).shape.numel() == 0) return false;
  const Call call(query);
  return kWay == Way::kRows    ? !call.plan.is_copy() && call.plan.keeps_last()
         : kWay == Way::kPlain ? call.plain().has_value()
         : kWay == Way::kTiles ? call.has_tiles()
                               : call.woven().has_value();
}

template <Way kWay>
void run_permute(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  if (x.numel() == 0) return;
  const Call call(x.shape, context.attributes<PermuteAttributes>(), x.dtype, x.data, y.data);
  const Stream& stream = context.stream();
  if (call.plan.is_copy()) {
    const int64_t bytes = x.numel() * call.bytes;
    return copy_rows_cuda(stream, y.data, bytes, x.data, bytes, bytes, 1);
  }
  if constexpr (kWay == Way::kBest || kWay == Way::kPlain) {
    const auto plain = call.plain();
    if (plain) return transpose_plain_cuda(stream, *plain, call.bytes, x.data, y.data);
  }
  constexpr bool is_rows = kWay == Way::kRows;
  const auto tiles = is_rows || kWay == Way::kWoven ? std::nullopt : call.tiles();
  const auto woven = is_rows || kWay == Way::kTiles ? std::nullopt
                     : kWay == Way::kWoven          ? call.woven()
                                                    : call.better_woven(tiles);
  if (!tiles && !woven) return copy_permuted_rows(stream, call.plan, call.bytes, x.data, y.data);
  dispatch_unit(call.bytes, [&]<class T> {
    if (woven) return launch_woven<T>(stream, *woven, x.data, y.data);
    launch_tiles<T>(stream, *tiles, x.data, y.data);
  });
}

}  // namespace

void register_permute_cuda(OpRegistry& registry);
void register_permute_cuda(OpRegistry& registry) {
  const auto add = [&](const char* name, auto can_run, auto run) {
    registry.add_kernel("permute",
                        {.device = DeviceType::kCuda, .name = name, .can_run = can_run, .run = run});
  };
  add("rows", can_permute<Way::kRows>, run_permute<Way::kRows>);
  add("plain", can_permute<Way::kPlain>, run_permute<Way::kPlain>);
  add("tiles", can_permute<Way::kTiles>, run_permute<Way::kTiles>);
  add("woven", can_permute<Way::kWoven>, run_permute<Way::kWoven>);
  add("default", nullptr, run_permute<Way::kBest>);  // one of these; the others are timed beside it
}

}  // namespace sinter::ops
