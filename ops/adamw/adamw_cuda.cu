#include <new>

#include <sinter/core/op/registry.h>
#include <sinter/ops/adamw/adamw_math.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kArrays = 5;  // parameter, gradient, both averages, the largest square
constexpr int kWidth = kArrays + static_cast<int>(kUpdateInputs);

template <class T, class G>
__global__ void adamw_kernel(__grid_constant__ const SlotTable<kWidth> table, AdamWOptions options) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;  // all threads of the block agree
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* exp_avg = static_cast<T*>(inputs[2]);
  T* exp_avg_sq = static_cast<T*>(inputs[3]);
  T* largest_sq = static_cast<T*>(inputs[4]);
  [[maybe_unused]] G* working = static_cast<G*>(inputs[kArrays + kWorkingCopy]);
  // The powers in double precision cost too much for every thread.
  alignas(AdamWElement<C>) __shared__ unsigned char shared[sizeof(AdamWElement<C>)];
  if (threadIdx.x == 0) {
    new (shared)
        AdamWElement<C>(options, static_cast<const double*>(inputs[kArrays + kLearningRate]),
                        static_cast<double>(*static_cast<const int64_t*>(inputs[kArrays + kStepCount])));
  }
  __syncthreads();
  const AdamWElement<C> element = *reinterpret_cast<const AdamWElement<C>*>(shared);
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], average[pack], square[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
    load_pack(exp_avg + i, average);
    load_pack(exp_avg_sq + i, square);
    if (largest_sq == nullptr) {
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        p[j] = element(p[j], g[j] * static_cast<C>(factor), average[j], square[j], nullptr);
      }
    } else {
      C largest[pack];
      load_pack(largest_sq + i, largest);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        p[j] = element(p[j], g[j] * static_cast<C>(factor), average[j], square[j], &largest[j]);
      }
      store_pack(largest_sq + i, largest);
    }
    store_pack(parameter + i, p);
    store_pack(exp_avg + i, average);
    store_pack(exp_avg_sq + i, square);
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

void run_adamw_step(const KernelContext& context) {
  const auto& options = context.attributes<AdamWOptions>();
  for_each_update_table<kArrays>(
      context, "adamw_step",
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape) {
        cuda::launch(context.stream(), shape, adamw_kernel<T, G>, table, options);
      });
}

}  // namespace

void register_adamw_cuda(OpRegistry& registry);
void register_adamw_cuda(OpRegistry& registry) {
  registry.add_kernel("adamw_step", {.device = DeviceType::kCuda, .run = run_adamw_step});
}

}  // namespace sinter::ops
