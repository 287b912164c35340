#include <sinter/core/op/registry.h>
#include <sinter/ops/cross_entropy/loss_rows_cuda.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_registration.h>

namespace sinter::ops {
namespace {

template <class T>
LossRows<T> shard_rows(const KernelContext& context) {
  LossRows<T> rows(context.input(0), context.input(1), 0.0, kElsewhere);
  rows.shard = true;
  return rows;
}

void run_shard_sums(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "shard_log_sums", [&]<class T> {
    using C = compute_type<T>;
    launch_loss<T>(context.stream(), shard_rows<T>(context), context.output(0).as<C>(),
                   context.output(1).as<C>());
  });
}

void run_shard_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "shard_cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    launch_gradient<T>(context.stream(), shard_rows<T>(context),
                       {.log_sums = context.input(2).as<const C>(),
                        .dloss = context.input(3).as<const C>(),
                        .loss_per_row = true,
                        .divisor = nullptr,
                        .dlogits = context.output(0).as<T>()});
  });
}

}  // namespace

void register_shard_cross_entropy_cuda(OpRegistry& registry) {
  registry.add_kernel("shard_log_sums", {.device = DeviceType::kCuda, .run = run_shard_sums});
  registry.add_kernel("shard_cross_entropy", {.device = DeviceType::kCuda, .run = run_shard_cross_entropy});
  registry.add_kernel("shard_cross_entropy_grad", {.device = DeviceType::kCuda, .run = run_shard_grad});
}

}  // namespace sinter::ops
