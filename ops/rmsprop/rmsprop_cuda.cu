#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/rmsprop/rmsprop_math.h>

namespace sinter::ops {
namespace {

constexpr int kArrays = 5;  // parameter, gradient, both averages, momentum
constexpr int kWidth = kArrays + static_cast<int>(kUpdateInputs);

template <class T, class G>
__global__ void rmsprop_kernel(__grid_constant__ const SlotTable<kWidth> table, RmsPropOptions options) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* square_avg = static_cast<T*>(inputs[2]);
  T* grad_avg = static_cast<T*>(inputs[3]);
  T* momentum = static_cast<T*>(inputs[4]);
  [[maybe_unused]] G* working = static_cast<G*>(inputs[kArrays + kWorkingCopy]);
  const RmsPropElement<C> element(options, *static_cast<const double*>(inputs[kArrays + kLearningRate]));
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], square[pack], mean[pack], buffer[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
    load_pack(square_avg + i, square);
    if (grad_avg != nullptr) load_pack(grad_avg + i, mean);
    if (momentum != nullptr) load_pack(momentum + i, buffer);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      p[j] = element(p[j], g[j] * static_cast<C>(factor), square[j], grad_avg != nullptr ? &mean[j] : nullptr,
                     momentum != nullptr ? &buffer[j] : nullptr);
    }
    store_pack(parameter + i, p);
    store_pack(square_avg + i, square);
    if (grad_avg != nullptr) store_pack(grad_avg + i, mean);
    if (momentum != nullptr) store_pack(momentum + i, buffer);
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

void run_rmsprop_step(const KernelContext& context) {
  const auto& options = context.attributes<RmsPropOptions>();
  for_each_update_table<kArrays>(
      context, "rmsprop_step",
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape) {
        cuda::launch(context.stream(), shape, rmsprop_kernel<T, G>, table, options);
      });
}

}  // namespace

void register_rmsprop_cuda(OpRegistry& registry);
void register_rmsprop_cuda(OpRegistry& registry) {
  registry.add_kernel("rmsprop_step", {.device = DeviceType::kCuda, .run = run_rmsprop_step});
}

}  // namespace sinter::ops
