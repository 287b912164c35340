#include <sinter/core/op/registry.h>
#include <sinter/ops/common/multi_tensor_cuda.h>
#include <sinter/ops/common/row_reduce_cuda.h>
#include <sinter/ops/sgd/sgd_math.h>

namespace sinter::ops {
namespace {

constexpr int kWidth = 4;  // parameter, gradient, momentum, learning rate

template <class T>
__global__ void sgd_kernel(__grid_constant__ const SlotTable<kWidth> table, SgdOptions options) {
  using C = compute_type<T>;
  const int slot = slot_of_block(table);
  T* parameter = static_cast<T*>(table.data[slot][0]);
  const T* gradient = static_cast<const T*>(table.data[slot][1]);
  T* momentum = static_cast<T*>(table.data[slot][2]);
  const SgdElement<C> element(options, *static_cast<const double*>(table.data[slot][3]));
  for_each_element<T>(table, slot, [&]<int pack>(int64_t i) {
    C p[pack], g[pack], m[pack];
    load_pack(parameter + i, p);
    load_pack(gradient + i, g);
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
  });
}

void run_sgd_step(const KernelContext& context) {
  const auto& options = context.attributes<SgdOptions>();
  for_each_slot_table<kWidth, 3>(
      context, "sgd_step", [&]<class T>(const SlotTable<kWidth>& table, const cuda::LaunchShape& shape) {
        cuda::launch(context.stream(), shape, sgd_kernel<T>, table, options);
      });
}

}  // namespace

void register_sgd_cuda(OpRegistry& registry);
void register_sgd_cuda(OpRegistry& registry) {
  registry.add_kernel("sgd_step", {.device = DeviceType::kCuda, .run = run_sgd_step});
}

}  // namespace sinter::ops
