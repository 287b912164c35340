// Batch normalisation over ranks as two ops: statistics, which sum over the ranks, and the map with its
// gradient, which does so too. Checks, shapes, what the gradient reads.
#include <algorithm>

#include <sinter/core/op/node.h>
#include <sinter/core/op/norm_chain.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/norm/norm_checks.h>
#include <sinter/ops/normalize_act/normalize_act.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_call.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_fusion.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm_gradient.h>

namespace sinter::ops {
namespace {

using In = SyncNormInput;

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

/// Parameters and statistics of one tensor, from input `first` on.
void check_state(const InferContext& context, size_t first, bool wanted, int64_t channels) {
  for (size_t i = first; i < first + 4; ++i) {
    expect_channel_vector(context, i, channels);
    SINTER_CHECK(wanted || !context.has(i), "[{}] expected {} only with normalize_addend", context.tag(),
                 context.op().input_def(i).name);
  }
  SINTER_CHECK(!wanted || (context.has(first + 2) && context.has(first + 3)),
               "[{}] expected {} and {} but got none", context.tag(), context.op().input_def(first + 2).name,
               context.op().input_def(first + 3).name);
}

void check_alpha(const InferContext& context, Activation activation, int64_t channels) {
  const bool wanted = activation == Activation::kPRelu;
  SINTER_CHECK(context.has(In::kAlpha) == wanted, "[{}] expected alpha with prelu only, got {} with {}",
               context.tag(), context.has(In::kAlpha) ? "one" : "none", to_string(activation));
  if (!wanted) return;
  context.expect_dtype(In::kAlpha, accumulate_dtype(context.input(In::kX).dtype));
  context.expect_rank(In::kAlpha, 1);
  const int64_t slopes = context.shape(In::kAlpha).numel();
  SINTER_CHECK(slopes == 1 || slopes == channels, "[{}] expected alpha of 1 or {} elements but got {}",
               context.tag(), channels, slopes);
}

std::vector<TensorSpec> infer_sync_batch_norm(const InferContext& context) {
  const auto& options = context.attributes<SyncBatchNormAttributes>();
  const int64_t channels = expect_norm_input(context, options.layout);
  const TensorSpec& x = context.input(In::kX);
  check_state(context, In::kWeight, true, channels);
  context.expect_dtype(In::kShare, accumulate_dtype(x.dtype));
  context.expect_shape(In::kShare, Shape{1});
  check_alpha(context, options.activation, channels);
  SINTER_CHECK(context.has(In::kAddend) || !options.normalize_addend,
               "[{}] expected an addend to normalize but got none", context.tag());
  if (context.has(In::kAddend)) {
    context.expect_same_dtype(In::kAddend, In::kX);
    context.expect_shape(In::kAddend, x.shape);
  }
  check_state(context, In::kAddendWeight, options.normalize_addend, channels);
  if (options.activation == Activation::kNone || !options.save_mask) return {x};
  return {x, {Shape{mask_bytes(x.shape.numel())}, DType::kUInt8, x.device}};
}

Tensor sync_batch_norm_again(const FoundCall& call, const std::vector<Tensor>&) {
  const auto& options = call.attributes.as<SyncBatchNormAttributes>();
  const auto input = [&](size_t i) { return i < call.inputs.size() ? call.inputs[i] : Tensor(); };
  const auto state = [&](size_t first) {
    return NormState{input(first), input(first + 1), input(first + 2), input(first + 3)};
  };
  return normalize_act(input(In::kX), state(In::kWeight),
                       {.layout = options.layout,
                        .activation = options.activation,
                        .normalize_addend = options.normalize_addend},
                       input(In::kAlpha), input(In::kAddend), state(In::kAddendWeight));
}

void register_statistics(OpRegistry& registry) {
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

}  // namespace

Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const SyncBatchNormOptions& options,
                       const Communicator& communicator) {
  static const Op &statistics = builtin("rank_statistics"), &map = builtin("sync_batch_norm");
  std::vector<Tensor> known;
  {
    const NoGrad no_grad;  // the map's gradient has that of the statistics
    known = call(statistics, {x, running_mean, running_var},
                 RankStatisticsAttributes{.epsilon = options.epsilon,
                                          .momentum = options.momentum,
                                          .layout = options.layout,
                                          .communicator = communicator.id()});
  }
  return call_single(map, {x, weight, bias, known[0], known[1], known[2], {}, {}, {}, {}, {}, {}},
                     SyncBatchNormAttributes{.layout = options.layout, .communicator = communicator.id()});
}

void register_sync_batch_norm(OpRegistry& registry);
void register_sync_batch_norm(OpRegistry& registry) {
  register_statistics(registry);
  const uint64_t reads = ~reads_of({In::kShare});
  registry.add(
      {.name = "sync_batch_norm",
       .inputs = {{"x"},
                  {"weight", true},
                  {"bias", true},
                  {"mean"},
                  {"inv_std"},
                  {"share"},
                  {"alpha", true},
                  {"addend", true},
                  {"addend_weight", true},
                  {"addend_bias", true},
                  {"addend_mean", true},
                  {"addend_inv_std", true}},
       .outputs = {{"y"}, {"mask", false}},
       .infer = infer_sync_batch_norm,
       .gradient = sync_batch_norm_gradient,
       .gradient_reads = {.inputs = kReadsAll, .outputs = reads_of({1})},
       .traits = {.precision = Precision::kFollow,
                  .float32_inputs = ~reads_of({In::kX, In::kAddend}),
                  .layout = {.kind = LayoutRule::Kind::kAttribute, .images = reads_of({In::kX, In::kAddend})},
                  .role = Role::kNormalization,
                  .fuse_norm = fuse_sync_batch_norm}});
  add_recompute_rule(
      {.op = "sync_batch_norm", .reads = {.inputs = reads, .outputs = 0}, .compute = sync_batch_norm_again});
}

}  // namespace sinter::ops
