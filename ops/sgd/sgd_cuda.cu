#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/sgd/sgd_math.h>

namespace sinter::ops {
namespace {

constexpr int kArrays = 3;  // parameter, gradient, momentum
constexpr int kWidth = kArrays + static_cast<int>(kUpdateInputs);

template <class T, class G>
__global__ void sgd_kernel(__grid_constant__ const SlotTable<kWidth> table, SgdOptions options) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* momentum = static_cast<T*>(inputs[2]);
  [[maybe_unused]] G* working = static_cast<G*>(inputs[kArrays + kWorkingCopy]);
  const auto* step = static_cast<const int64_t*>(inputs[kArrays + kStepCount]);
  const SgdElement<C> element(options, static_cast<const double*>(inputs[kArrays + kLearningRate]),
                              step != nullptr && *step == 1);
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], m[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
#pragma unroll
    for (int j = 0; j < pack; ++j) g[j] *= static_cast<C>(factor);
    if (momentum == nullptr) {
#pragma unroll
      for (int j = 0; j < pack; ++j) p[j] = element.plain(p[j], g[j]);
    } else {
      load_pack(momentum + i, m);
#pragma unroll
      for (int j = 0; j < pack; ++j) p[j] = element.with_momentum(p[j], g[j], m[j]);
      store_pack(momentum + i, m);
    }
    store_pack(parameter + i, p);
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

void run_sgd_step(const KernelContext& context) {
  const auto& options = context.attributes<SgdOptions>();
  for_each_update_table<kArrays>(
      context, "sgd_step",
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape) {
        cuda::launch(context.stream(), shape, sgd_kernel<T, G>, table, options);
      });
}

}  // namespace

void register_sgd_cuda(OpRegistry& registry);
void register_sgd_cuda(OpRegistry& registry) {
  registry.add_kernel("sgd_step", {.device = DeviceType::kCuda, .run = run_sgd_step});
}

}  // namespace sinter::ops
