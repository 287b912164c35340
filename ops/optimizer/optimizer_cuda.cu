// One kernel for all rules. With a trust ratio it is launched three times: each block sums over its part of a
// parameter, one block for each parameter adds these up in a fixed order, then all blocks step. Nothing waits
// for the host.
#include <new>

#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/multi_tensor_cuda.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/common/gradient_factor.h>
#include <sinter/ops/optimizer/rules.h>

namespace sinter::ops {
namespace {

template <class Rule>
constexpr int kWidth = static_cast<int>(kSlotInputs<Rule>);

enum class Pass { kMeasure, kTotal, kStep };

struct Launch {
  Pass pass = Pass::kStep;
  TrustSums* partials = nullptr;  ///< of the blocks of kMeasure
  TrustSums* totals = nullptr;    ///< of the slots; null if the options do not adapt
};

/// Writes the sums of a block, which all its threads call with their own.
__device__ __forceinline__ void store_block_sums(TrustSums sums, TrustSums* to) {
  sums.parameter = RowReduce<kMultiTensorThreads>{}(sums.parameter, SumOf{});
  sums.direction = RowReduce<kMultiTensorThreads>{}(sums.direction, SumOf{});
  if (threadIdx.x == 0) *to = sums;
}

/// Slot blockIdx.x: the sum of what its blocks wrote.
template <int width>
__device__ __forceinline__ void add_partials(const SlotTable<width>& table, const Launch& launch) {
  const int slot = static_cast<int>(blockIdx.x);
  TrustSums sums;
  for (int i = table.first_blocks[slot] + static_cast<int>(threadIdx.x); i < table.first_blocks[slot + 1];
       i += kMultiTensorThreads) {
    sums.add(launch.partials[i]);
  }
  store_block_sums(sums, launch.totals + slot);
}

/// The block's sums over its part of a slot.
template <class Rule, class T, class G, class Element, size_t kBuffers>
__device__ __forceinline__ void measure(const SlotTable<kWidth<Rule>>& table, int slot,
                                        const Element& element, compute_type<T> factor, const T* parameter,
                                        const G* gradient, T* const (&buffers)[kBuffers], TrustSums* to) {
  using C = compute_type<T>;
  TrustSums sums;
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], values[kBuffers][pack] = {};
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
#pragma unroll
    for (size_t k = 0; k < kBuffers; ++k) {
      if (Rule::kDirectionReadsBuffers) load_pack(buffers[k] + i, values[k]);
    }
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      C own[kBuffers];
#pragma unroll
      for (size_t k = 0; k < kBuffers; ++k) own[k] = values[k][j];
      sums.add(static_cast<double>(p[j]), static_cast<double>(element.direction(p[j], g[j] * factor, own)));
    }
  });
  store_block_sums(sums, to);
}

template <class Rule, class T, class G>
__global__ void update_kernel(__grid_constant__ const SlotTable<kWidth<Rule>> table,
                              typename Rule::Options options, Launch launch) {
  using C = compute_type<T>;
  using Element = typename Rule::template Element<C>;
  constexpr size_t kBuffers = Rule::kBuffers.size();
  if constexpr (Rule::kTrusts) {
    if (launch.pass == Pass::kTotal) return add_partials(table, launch);
  }
  const int slot = slot_of_block(table);
  void* const* inputs = table.data[slot];
  void* const* tail = inputs + kArrays<Rule>;
  const float factor = gradient_factor_at(tail[kGradientFactor]);
  // One thread makes the element: its powers in double precision cost too much for every one.
  alignas(Element) __shared__ unsigned char shared[sizeof(Element)];
  if (threadIdx.x == 0) {
    const auto* step = static_cast<const int64_t*>(tail[kStepCount]);
    const bool has_sums = launch.pass == Pass::kStep && launch.totals != nullptr;
    new (shared) Element(options, static_cast<const double*>(tail[kLearningRate]), step ? *step : 0,
                         has_sums ? launch.totals[slot] : TrustSums{});
  }
  __syncthreads();
  if (skips_update(factor)) return;  // all threads of the block agree
  const Element element = *reinterpret_cast<const Element*>(shared);
  T* parameter = static_cast<T*>(inputs[0]);
  const G* gradient = static_cast<const G*>(inputs[1]);
  T* buffers[kBuffers];
#pragma unroll
  for (size_t k = 0; k < kBuffers; ++k) buffers[k] = static_cast<T*>(inputs[2 + k]);
  [[maybe_unused]] G* working = static_cast<G*>(tail[kWorkingCopy]);
  if constexpr (Rule::kTrusts) {
    if (launch.pass == Pass::kMeasure) {
      return measure<Rule>(table, slot, element, static_cast<C>(factor), parameter, gradient, buffers,
                           launch.partials + blockIdx.x);
    }
  }
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], values[kBuffers][pack] = {};
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
#pragma unroll
    for (size_t k = 0; k < kBuffers; ++k) {
      if (element.uses(k)) load_pack(buffers[k] + i, values[k]);
    }
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      C own[kBuffers];
#pragma unroll
      for (size_t k = 0; k < kBuffers; ++k) own[k] = values[k][j];
      p[j] = element(p[j], g[j] * static_cast<C>(factor), own);
#pragma unroll
      for (size_t k = 0; k < kBuffers; ++k) values[k][j] = own[k];
    }
    store_pack(parameter + i, p);
#pragma unroll
    for (size_t k = 0; k < kBuffers; ++k) {
      if (element.uses(k)) store_pack(buffers[k] + i, values[k]);
    }
    if constexpr (!std::is_same_v<T, G>) store_pack(working + i, p);
  });
}

/// Launches what one table of slots takes, with trust ratios from `sums` on, which then points behind them.
template <class Rule, class T, class G>
void launch_step(const KernelContext& context, const SlotTable<kWidth<Rule>>& table,
                 const cuda::LaunchShape& shape, TrustSums*& sums) {
  const auto& options = context.attributes<typename Rule::Options>();
  const auto pass = [&](const cuda::LaunchShape& blocks, const Launch& launch) {
    cuda::launch(context.stream(), blocks, update_kernel<Rule, T, G>, table, options, launch);
  };
  Launch launch;
  if constexpr (Rule::kTrusts) {
    if (options.adapts) {
      launch = {Pass::kMeasure, sums + table.slots, sums};
      sums = launch.partials + shape.grid.x;
      pass(shape, launch);
      launch.pass = Pass::kTotal;
      pass({dim3(static_cast<unsigned>(table.slots)), dim3(kMultiTensorThreads)}, launch);
      launch.pass = Pass::kStep;
    }
  }
  pass(shape, launch);
}

template <class Rule>
void run_step(const KernelContext& context) {
  using enum DType;
  constexpr std::pair<DType, DType> kTypes[] = {{kFloat32, kFloat32},   {kFloat32, kFloat16},
                                                {kFloat32, kBFloat16},  {kFloat16, kFloat16},
                                                {kBFloat16, kBFloat16}, {kFloat64, kFloat64}};
  auto* sums = context.workspace<TrustSums>();
  SlotTable<kWidth<Rule>> table;
  const auto is_ranged = [](int i) { return i <= static_cast<int>(kArrays<Rule> + kWorkingCopy); };
  for (const auto& dtypes : kTypes) {
    dispatch_update(dtypes.first, dtypes.second, Rule::kName, [&]<class T, class G> {
      fill_slot_tables(context, Rule::kName, 1, dtypes, table, is_ranged,
                       [&](const auto& filled, const cuda::LaunchShape& shape) {
                         launch_step<Rule, T, G>(context, filled, shape, sums);
                       });
    });
  }
}

/// Sums of all blocks, and one for each slot.
template <class Rule>
size_t trust_workspace(const KernelQuery& query) {
  int64_t sums = 0;
  for (size_t slot = 0; slot < query.input_count(); slot += kSlotInputs<Rule>) {
    sums += cuda::blocks_for(query.input(slot).shape.numel(), kMultiTensorBlock) + 1;
  }
  return static_cast<size_t>(sums) * sizeof(TrustSums);
}

}  // namespace

void register_optimizer_cuda(OpRegistry& registry);
void register_optimizer_cuda(OpRegistry& registry) {
  for_each_rule([&]<class Rule> {
    Kernel kernel{.device = DeviceType::kCuda, .run = run_step<Rule>};
    if constexpr (Rule::kTrusts) kernel.workspace_bytes = trust_workspace<Rule>;
    registry.add_kernel(Rule::kName, kernel);
  });
}

}  // namespace sinter::ops
