#include <sinter/core/op/registry.h>
#include <sinter/ops/lars/lars_math.h>
#include <sinter/ops/trust_ratio/trust_ratio_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kArrays = 3;  // parameter, gradient, momentum
constexpr int kWidth = kArrays + static_cast<int>(kUpdateInputs);

template <class T, class G>
__global__ void lars_norms_kernel(__grid_constant__ const SlotTable<kWidth> table, TrustSums* partials) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;  // all threads of the block agree
  const T* parameter = static_cast<const T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  TrustSums sums;
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      sums.add(static_cast<double>(p[j]), static_cast<double>(g[j] * static_cast<C>(factor)));
    }
  });
  store_block_sums(sums, partials + blockIdx.x);
}

/// `totals`: null if the options do not adapt.
template <class T, class G>
__global__ void lars_kernel(__grid_constant__ const SlotTable<kWidth> table, LarsOptions options,
                            const TrustSums* totals) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* momentum = static_cast<T*>(inputs[2]);
  [[maybe_unused]] G* working = static_cast<G*>(inputs[kArrays + kWorkingCopy]);
  const LarsElement<C> element(options, static_cast<const double*>(inputs[kArrays + kLearningRate]),
                               totals != nullptr ? totals[slot] : TrustSums{});
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], m[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
    load_pack(momentum + i, m);
#pragma unroll
    for (int j = 0; j < pack; ++j) p[j] = element(p[j], g[j] * static_cast<C>(factor), m[j]);
    store_pack(parameter + i, p);
    store_pack(momentum + i, m);
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

void run_lars_step(const KernelContext& context) {
  const auto& options = context.attributes<LarsOptions>();
  run_trust_step<kArrays>(
      context, "lars_step", options.adapts,
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape,
                            TrustSums* partials) {
        cuda::launch(context.stream(), shape, lars_norms_kernel<T, G>, table, partials);
      },
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape,
                            const TrustSums* totals) {
        cuda::launch(context.stream(), shape, lars_kernel<T, G>, table, options, totals);
      });
}

}  // namespace

void register_lars_cuda(OpRegistry& registry);
void register_lars_cuda(OpRegistry& registry) {
  registry.add_kernel("lars_step", {.device = DeviceType::kCuda,
                                    .workspace_bytes = trust_workspace_cuda<static_cast<size_t>(kWidth)>,
                                    .run = run_lars_step});
}

}  // namespace sinter::ops
