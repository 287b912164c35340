#include <new>

#include <sinter/core/op/registry.h>
#include <sinter/ops/lamb/lamb_math.h>
#include <sinter/ops/trust_ratio/trust_ratio_cuda.h>

namespace sinter::ops {
namespace {

constexpr int kArrays = 4;  // parameter, gradient, both averages
constexpr int kWidth = kArrays + static_cast<int>(kUpdateInputs);

/// The element of a slot, made by one thread: its powers in double precision cost too much for every one.
template <class C>
__device__ __forceinline__ LambElement<C> shared_element(const LambOptions& options, void* const* inputs) {
  alignas(LambElement<C>) __shared__ unsigned char shared[sizeof(LambElement<C>)];
  if (threadIdx.x == 0) {
    new (shared)
        LambElement<C>(options, static_cast<const double*>(inputs[kArrays + kLearningRate]),
                       static_cast<double>(*static_cast<const int64_t*>(inputs[kArrays + kStepCount])));
  }
  __syncthreads();
  return *reinterpret_cast<const LambElement<C>*>(shared);
}

/// Sums over the direction that follows from the new averages, which are not kept.
template <class T, class G>
__global__ void lamb_norms_kernel(__grid_constant__ const SlotTable<kWidth> table, LambOptions options,
                                  TrustSums* partials) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;  // all threads of the block agree
  const T* parameter = static_cast<const T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  const T* exp_avg = static_cast<const T*>(inputs[2]);
  const T* exp_avg_sq = static_cast<const T*>(inputs[3]);
  const LambElement<C> element = shared_element<C>(options, inputs);
  TrustSums sums;
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], average[pack], square[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
    load_pack(exp_avg + i, average);
    load_pack(exp_avg_sq + i, square);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const C u = element.direction(p[j], g[j] * static_cast<C>(factor), average[j], square[j]);
      sums.add(static_cast<double>(p[j]), static_cast<double>(u));
    }
  });
  store_block_sums(sums, partials + blockIdx.x);
}

/// `totals`: null if the options do not adapt.
template <class T, class G>
__global__ void lamb_kernel(__grid_constant__ const SlotTable<kWidth> table, LambOptions options,
                            const TrustSums* totals) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  const float factor = gradient_factor_at(inputs[kArrays + kGradientFactor]);
  if (skips_update(factor)) return;
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* exp_avg = static_cast<T*>(inputs[2]);
  T* exp_avg_sq = static_cast<T*>(inputs[3]);
  [[maybe_unused]] G* working = static_cast<G*>(inputs[kArrays + kWorkingCopy]);
  const LambElement<C> element = shared_element<C>(options, inputs);
  const auto* rates = static_cast<const double*>(inputs[kArrays + kLearningRate]);
  const C rate = static_cast<C>(lamb_rate(options, rates, totals != nullptr ? totals[slot] : TrustSums{}));
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], average[pack], square[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
    load_pack(exp_avg + i, average);
    load_pack(exp_avg_sq + i, square);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      p[j] -= rate * element.direction(p[j], g[j] * static_cast<C>(factor), average[j], square[j]);
    }
    store_pack(parameter + i, p);
    store_pack(exp_avg + i, average);
    store_pack(exp_avg_sq + i, square);
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

void run_lamb_step(const KernelContext& context) {
  const auto& options = context.attributes<LambOptions>();
  run_trust_step<kArrays>(
      context, "lamb_step", options.adapts,
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape,
                            TrustSums* partials) {
        cuda::launch(context.stream(), shape, lamb_norms_kernel<T, G>, table, options, partials);
      },
      [&]<class T, class G>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape,
                            const TrustSums* totals) {
        cuda::launch(context.stream(), shape, lamb_kernel<T, G>, table, options, totals);
      });
}

}  // namespace

void register_lamb_cuda(OpRegistry& registry);
void register_lamb_cuda(OpRegistry& registry) {
  registry.add_kernel("lamb_step", {.device = DeviceType::kCuda,
                                    .workspace_bytes = trust_workspace_cuda<static_cast<size_t>(kWidth)>,
                                    .run = run_lamb_step});
}

}  // namespace sinter::ops
