// The norm in two passes: one partial sum for each block of each tensor, then their sum by a single block.
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kFinishThreads = 512;

/// The sum over a block's threads, on thread 0.
template <int threads>
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double values[threads];
  values[threadIdx.x] = value;
  cuda::fold_lanes(values, threadIdx.x, threadIdx.x, static_cast<unsigned>(threads), 1u,
                   [](double a, double b) { return a + b; });
  return values[0];
}

template <class T>
__global__ void squares_kernel(__grid_constant__ const SlotTable<1> table, double* partials) {
  const int slot = slot_of_block(table);
  const T* gradient = static_cast<const T*>(table.data[slot][0]);
  double sum = 0.0;
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    compute_type<T> g[pack];
    load_pack(gradient + i, g);
#pragma unroll
    for (int j = 0; j < pack; ++j) sum += static_cast<double>(g[j]) * static_cast<double>(g[j]);
  });
  sum = block_sum<kMultiTensorThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void finish_kernel(int64_t count, const double* partials, double* norm) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) sum += partials[i];
  sum = block_sum<kFinishThreads>(sum);
  if (threadIdx.x == 0) *norm = sqrt(sum);
}

size_t grad_norm_workspace(const KernelQuery& query) {
  int64_t blocks = 0;
  for (size_t i = 0; i < query.input_count(); ++i) {
    blocks += cuda::blocks_for(query.input(i).shape.numel(), kMultiTensorBlock);
  }
  return static_cast<size_t>(blocks) * sizeof(double);
}

void run_grad_norm(const KernelContext& context) {
  auto* partials = context.workspace<double>();
  int64_t blocks = 0;
  for_each_array_table(context, "grad_norm",
                       [&]<class T>(const SlotTable<1>& table, const cuda::LaunchShape& shape) {
                         cuda::launch(context.stream(), shape, squares_kernel<T>, table, partials + blocks);
                         blocks += shape.grid.x;
                       });
  cuda::launch(context.stream(), {dim3(1), dim3(kFinishThreads)}, finish_kernel, blocks, partials,
               context.output(0).as<double>());
}

}  // namespace

void register_grad_norm_cuda(OpRegistry& registry);
void register_grad_norm_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "grad_norm",
      {.device = DeviceType::kCuda, .workspace_bytes = grad_norm_workspace, .run = run_grad_norm});
}

}  // namespace sinter::ops
