// From a call of sync_batch_norm to what the kernels of ops/norm take.
#include <sinter/ops/sync_batch_norm/sync_batch_norm_call.h>

namespace sinter::ops {
namespace {

NormOptions norm_options(const SyncBatchNormAttributes& options) {
  return {.activation = options.activation,
          .normalize_addend = options.normalize_addend,
          .statistics_given = true};
}

}  // namespace

NormProblem sync_batch_norm_problem(const KernelQuery& query) {
  const auto& options = query.attributes<SyncBatchNormAttributes>();
  const TensorSpec& x = query.input(SyncNormInput::kX);
  return {.view = norm_view(x.shape, options.layout),
          .dtype = x.dtype,
          .device = x.device.index,
          .options = norm_options(options),
          .has_mask = options.save_mask};
}

NormCall sync_batch_norm_call(const KernelContext& context) {
  using In = SyncNormInput;
  const auto& options = context.attributes<SyncBatchNormAttributes>();
  const auto tensor = [&](size_t x, size_t weight) {
    NormTensor result;
    result.x = context.input(x);
    result.weight = context.input(weight);
    result.bias = context.input(weight + 1);
    result.mean = context.input(weight + 2);
    result.inv_std = context.input(weight + 3);
    return result;
  };
  NormCall call;
  call.view = norm_view(context.input(In::kX).shape, options.layout);
  call.options = norm_options(options);
  call.main = tensor(In::kX, In::kWeight);
  if (options.normalize_addend) {
    call.addend = tensor(In::kAddend, In::kAddendWeight);
  } else {
    call.addend.x = context.input(In::kAddend);
  }
  call.alpha = context.input(In::kAlpha);
  call.y = context.output(0);
  if (options.activation != Activation::kNone && options.save_mask) call.mask = context.output(1);
  return call;
}

void sum_over_ranks(const double* own, double* sums, int64_t count, uint64_t communicator,
                    const Stream& stream) {
  if (communicator == 0) {  // this process alone
    backend_of(stream.device)
        .copy(sums, stream.device, own, stream.device, static_cast<size_t>(count) * sizeof(double), stream);
    return;
  }
  const Communicator& ranks = Communicator::of(communicator);
  const Communicator::Part part{own, 0, count};
  ranks.begin_all_reduce({{&part, 1}, sums, count, DType::kFloat64}, stream);
  ranks.end_all_reduce(sums, stream);
}

}  // namespace sinter::ops
