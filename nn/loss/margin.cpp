#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/nn/loss/margin_logits_internal.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/where/where.h>

namespace sinter::nn {

Tensor CombinedMargin::operator()(const Tensor& cosine, const Tensor& labels) const {
  return ops::combined_margin(cosine, labels,
                              {.scale = scale,
                               .m1 = m1,
                               .m2 = m2,
                               .m3 = m3,
                               .interclass_filter = interclass_filter,
                               .gradient = gradient});
}

namespace {

/// The lengths of embeddings, in the dtype of logits from these cosines.
Tensor norms_of(const Tensor& embeddings, const Tensor& cosine) {
  return ops::norm(ops::cast(embeddings, accumulate_dtype(cosine.dtype())), {1});
}

}  // namespace

MarginHead::MarginHead(int64_t dimensions, int64_t classes, const MarginHeadOptions& options)
    : options_(options), dimensions_(dimensions) {
  SINTER_CHECK(dimensions > 0 && classes > 0,
               "[margin_head] expected positive counts but got {} dimensions, {} classes", dimensions,
               classes);
  SINTER_CHECK(options.sub_centres > 0, "[margin_head] expected a positive number of sub-centres but got {}",
               options.sub_centres);
  check_margin(options.margin);
  const int64_t width = options.sub_centres * dimensions;
  weight = parameter("weight", init::normal({classes, width}, 0.0, options.init_std, default_generator()),
                     {.keep_float32 = options.keep_float32});
  for (const auto& [name, start] : margin_state(options.margin))
    state_.push_back(buffer(name, Tensor::scalar(static_cast<float>(start)), {.keep_float32 = true}));
  const std::string of_each =
      options.sub_centres > 1 ? fmt::format(" x {} sub-centres", options.sub_centres) : "";
  describe(fmt::format("{}, {}{}, {}{}", dimensions, classes, of_each, describe_margin(options.margin),
                       options.keep_float32 ? ", float32" : ""));
}

Tensor MarginHead::sub_cosines(const Tensor& embeddings) const {
  SINTER_CHECK(embeddings.rank() == 2 && embeddings.size(1) == dimensions_,
               "[margin_head] expected embeddings of shape (N, {}) but got {}", dimensions_,
               embeddings.shape());
  const int64_t classes = weight.shape()[0], each = options_.sub_centres;
  // Normalised before they are rounded: their length may be anything.
  const Tensor directions = ops::cast(ops::l2_normalize(embeddings), weight.tensor().dtype());
  const Tensor centres = ops::l2_normalize(ops::reshape(weight, {classes * each, dimensions_}));
  return ops::reshape(ops::linear(directions, centres), {embeddings.size(0), classes, each});
}

Tensor MarginHead::cosine(const Tensor& embeddings) const {
  const Tensor cosines = sub_cosines(embeddings);
  return options_.sub_centres > 1 ? ops::max(cosines, {2}) : ops::squeeze(cosines, 2);
}

Tensor MarginHead::logits(const Tensor& embeddings, const Tensor& labels, const Communicator* ranks) const {
  MarginCall call{.cosine = cosine(embeddings),
                  .labels = labels,
                  .norms = {},
                  .state = state_,
                  .training = training(),
                  .ranks = ranks};
  if (uses_norms(options_.margin)) call.norms = norms_of(embeddings, call.cosine);
  return margin_logits(options_.margin, call);
}

/// What is added to the losses of rows; undefined for nothing.
Tensor MarginHead::penalty(const Tensor& embeddings, const Tensor& logits) const {
  return std::holds_alternative<MagFace>(options_.margin)
             ? margin_penalty(options_.margin, norms_of(embeddings, logits))
             : Tensor();
}

Tensor MarginHead::forward(const Tensor& embeddings, const Tensor& labels) const {
  if (options_.communicator != nullptr && options_.communicator->size() > 1) {
    const Communicator& ranks = *options_.communicator;
    SINTER_CHECK(labels.numel() == embeddings.size(0) * ranks.size(),
                 "[margin_head] expected labels of the rows of all {} ranks, {}, but got {}", ranks.size(),
                 embeddings.size(0) * ranks.size(), labels.shape());
    const Tensor logits = this->logits(ops::all_gather(embeddings, ranks), labels, &ranks);
    Tensor losses = ops::shard_cross_entropy(logits, labels, ranks);
    const Tensor more = penalty(embeddings, logits);
    if (more.defined()) losses = losses + more;
    if (options_.reduction == Reduction::kNone) return losses;
    return options_.reduction == Reduction::kSum ? ops::sum(losses) : ops::mean(losses);
  }
  const Tensor logits = this->logits(embeddings, labels, nullptr);
  const CrossEntropyLoss loss{.ignore_index = kNoPositive, .reduction = options_.reduction};
  const Tensor more = penalty(embeddings, logits);
  if (!more.defined()) return loss(logits, labels);
  const Tensor counts = ops::greater_equal(labels, ops::zeros_like(labels));
  const Tensor added = ops::where(counts, more, 0.0);
  if (options_.reduction == Reduction::kNone) return loss(logits, labels) + added;
  const Tensor sum = ops::sum(added);
  if (options_.reduction == Reduction::kSum) return loss(logits, labels) + sum;
  return loss(logits, labels) + sum / ops::cast(ops::sum(counts), sum.dtype());
}

}  // namespace sinter::nn
