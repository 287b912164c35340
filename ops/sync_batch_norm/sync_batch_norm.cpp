// Batch normalisation over ranks as two calls: statistics, which sum over the ranks, and batch_norm_act with
// these, whose gradient does so too.
#include <sinter/core/op/node.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>
#include <sinter/ops/sync_batch_norm/rank_sums.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {
namespace {

std::vector<TensorSpec> infer_rank_statistics(const InferContext& context) {
  const auto& options = context.attributes<RankStatisticsAttributes>();
  const int64_t channels = expect_norm_input(context, options.layout);
  expect_channel_vector(context, 1, channels);
  expect_channel_vector(context, 2, channels);
  SINTER_CHECK(context.has(1) == context.has(2),
               "[{}] expected both running_mean and running_var or neither but got only one", context.tag());
  expect_norm_options(context, options.epsilon, options.momentum, false, options.layout);
  const TensorSpec& x = context.input(0);
  const DType dtype = accumulate_dtype(x.dtype);
  const TensorSpec statistic{Shape{channels}, dtype, x.device};
  return {statistic, statistic, {Shape{1}, dtype, x.device}};
}

}  // namespace

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

Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const SyncBatchNormOptions& options,
                       const Communicator& communicator) {
  static const Op& statistics = builtin("rank_statistics");
  if (weight.defined()) update::check_on_ranks("sync_batch_norm", weight.spec(), communicator);
  std::vector<Tensor> known;
  {
    const NoGrad no_grad;  // the map's gradient has that of the statistics
    known = call(statistics, {x, running_mean, running_var},
                 RankStatisticsAttributes{.epsilon = options.epsilon,
                                          .momentum = options.momentum,
                                          .layout = options.layout,
                                          .communicator = communicator.id()});
  }
  return fused::batch_norm_act(
      x, {.weight = weight, .bias = bias, .mean = known[0], .inv_std = known[1], .share = known[2]}, {}, {},
      {},
      {.training = false,
       .layout = options.layout,
       .activation = fused::Activation::kNone,
       .ranks = communicator.id()});
}

void register_sync_batch_norm(OpRegistry& registry);
void register_sync_batch_norm(OpRegistry& registry) {
  registry.add({.name = "rank_statistics",
                .inputs = {{"x"},
                           {.name = "running_mean", .optional = true, .mutated = true},
                           {.name = "running_var", .optional = true, .mutated = true}},
                .outputs = {{"mean", false}, {"inv_std", false}, {"share", false}},
                .infer = infer_rank_statistics,
                .traits = {.precision = Precision::kFollow,
                           .float32_inputs = reads_of({1, 2}),
                           .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({0})}}});
}

}  // namespace sinter::ops
