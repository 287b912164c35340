// Permutation on a GPU: a copy; copies of rows where the last axis stays; else transposes through tiles in
// shared memory.
#include <sinter/core/cuda/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/copy_units_cuda.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/permute_thin_cuda.h>
#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {
namespace {

template <class T, bool kShifted, bool kSeveral>
__global__ void __launch_bounds__(kTileThreads, kSeveral && !kShifted ? 5 : 4)
    tile_kernel(__grid_constant__ const TileJob job, const T* __restrict__ in, T* __restrict__ out) {
  __shared__ Pack<uint4> packs[kTilePacks];
  auto* shared = reinterpret_cast<std::byte*>(packs);
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t task = blockIdx.x; task < job.tiles; task += gridDim.x) {
    if (task != blockIdx.x) __syncthreads();  // the tile before has left shared memory
    const Tile tile = job.tile(task, Pack<T>::kSize);
    load_tile<T, kShifted, kSeveral>(job, tile, thread, in, shared);
    __syncthreads();
    store_tile<T, kShifted, kSeveral>(job, tile, thread, shared, out);
  }
}

template <class T, ThinSide kSide>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 1 ? 4 : 6)
    thin_kernel(__grid_constant__ const ThinJob job, const T* __restrict__ in, T* __restrict__ out) {
  __shared__ Pack<uint4> packs[kThinPacks];
  auto* image = reinterpret_cast<std::byte*>(packs);
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t task = blockIdx.x; task < job.tiles; task += gridDim.x) {
    if (task != blockIdx.x) __syncthreads();  // the tile before has left shared memory
    const ThinTile tile = thin_tile<kSide>(job, task);
    load_thin<T, kSide>(job, tile, thread, in, image);
    __syncthreads();
    store_thin<T, kSide>(job, tile, thread, image, out);
  }
}

template <class T>
auto tile_kernel_for(const TileJob& job) {
  if (job.shifted) return job.several ? tile_kernel<T, true, true> : tile_kernel<T, true, false>;
  return job.several ? tile_kernel<T, false, true> : tile_kernel<T, false, false>;
}

template <class T>
auto thin_kernel_for(ThinSide side) {
  if (side == ThinSide::kRows) return thin_kernel<T, ThinSide::kRows>;
  return side == ThinSide::kColumns ? thin_kernel<T, ThinSide::kColumns> : thin_kernel<T, ThinSide::kBoth>;
}

template <class T>
void launch_tiles(const Stream& stream, const PermutePlan& plan, const void* in, void* out) {
  const auto from = reinterpret_cast<uintptr_t>(in), to = reinterpret_cast<uintptr_t>(out);
  ThinJob thin;
  if (plan_thin(plan, sizeof(T), from, to, thin)) {
    cuda::launch(stream, cuda::grid_stride_shape(thin.tiles, 1, kTileThreads), thin_kernel_for<T>(thin.side),
                 thin, static_cast<const T*>(in), static_cast<T*>(out));
    return;
  }
  const TileJob job = plan_tiles(plan, sizeof(T), from, to);
  cuda::launch(stream, cuda::grid_stride_shape(job.tiles, 1, kTileThreads), tile_kernel_for<T>(job), job,
               static_cast<const T*>(in), static_cast<T*>(out));
}

void dispatch_tiles(const Stream& stream, const PermutePlan& plan, int64_t element_bytes, const void* in,
                    void* out) {
  switch (element_bytes) {
    case 1:
      return launch_tiles<uint8_t>(stream, plan, in, out);
    case 2:
      return launch_tiles<uint16_t>(stream, plan, in, out);
    case 4:
      return launch_tiles<uint32_t>(stream, plan, in, out);
    case 8:
      return launch_tiles<uint64_t>(stream, plan, in, out);
    default:
      return launch_tiles<Bits128>(stream, plan, in, out);
  }
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
  if (!plan.keeps_last()) return dispatch_tiles(context.stream(), plan, size, x.data, y.data);
  const int64_t row_bytes = plan.extents[static_cast<size_t>(plan.rank - 1)] * size;
  if (row_bytes <= 16 && widest_unit({address_of(x.data), address_of(y.data), row_bytes}) == row_bytes) {
    plan.drop_last();  // such a row is one element of a permutation that does not keep its last axis
    return dispatch_tiles(context.stream(), plan, row_bytes, x.data, y.data);
  }
  copy_permuted_rows(context.stream(), plan, row_bytes, x.data, y.data);
}

}  // namespace

void register_permute_cuda(OpRegistry& registry);
void register_permute_cuda(OpRegistry& registry) {
  registry.add_kernel("permute", {.device = DeviceType::kCuda, .run = run_permute});
}

}  // namespace sinter::ops
