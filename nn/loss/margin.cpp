#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>

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

MarginHead::MarginHead(int64_t dimensions, int64_t classes, const MarginHeadOptions& options)
    : options_(options) {
  SINTER_CHECK(dimensions > 0 && classes > 0,
               "[margin_head] expected positive counts but got {} dimensions, {} classes", dimensions,
               classes);
  weight =
      parameter("weight", init::normal({classes, dimensions}, 0.0, options.init_std, default_generator()));
  const CombinedMargin& margin = options.margin;
  describe(fmt::format("{}, {}, scale {}, margins ({}, {}, {})", dimensions, classes, margin.scale, margin.m1,
                       margin.m2, margin.m3));
}

Tensor MarginHead::cosine(const Tensor& embeddings) const {
  SINTER_CHECK(embeddings.rank() == 2 && embeddings.size(1) == weight.shape()[1],
               "[margin_head] expected embeddings of shape (N, {}) but got {}", weight.shape()[1],
               embeddings.shape());
  // Normalised before they are rounded: their length may be anything.
  const Tensor directions = ops::cast(ops::l2_normalize(embeddings), weight.tensor().dtype());
  return ops::linear(directions, ops::l2_normalize(weight));
}

Tensor MarginHead::forward(const Tensor& embeddings, const Tensor& labels) const {
  if (options_.communicator != nullptr && options_.communicator->size() > 1) {
    const Communicator& ranks = *options_.communicator;
    SINTER_CHECK(labels.numel() == embeddings.size(0) * ranks.size(),
                 "[margin_head] expected labels of the rows of all {} ranks, {}, but got {}", ranks.size(),
                 embeddings.size(0) * ranks.size(), labels.shape());
    const Tensor logits = options_.margin(cosine(ops::all_gather(embeddings, ranks)), labels);
    const Tensor losses = ops::shard_cross_entropy(logits, labels, ranks);
    if (options_.reduction == Reduction::kNone) return losses;
    return options_.reduction == Reduction::kSum ? ops::sum(losses) : ops::mean(losses);
  }
  const Tensor logits = options_.margin(cosine(embeddings), labels);
  return CrossEntropyLoss{.ignore_index = kNoPositive, .reduction = options_.reduction}(logits, labels);
}

}  // namespace sinter::nn
