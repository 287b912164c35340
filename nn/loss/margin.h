// Losses for embeddings that are compared by their angles: margins between the classes' directions.
#pragma once

#include <variant>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/loss/adaptive_margin.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/module/module.h>
#include <sinter/ops/margin/margin.h>

namespace sinter {
class Communicator;
}

namespace sinter::nn {

using ops::kNoPositive;
using ops::MarginGradient;

/// Logits (N, C) from cosines (N, C) between embeddings and the centres of classes, with a margin for each
/// row's own class, as ops::combined_margin. `labels` (N), int64: the own class, or kNoPositive (-1).
/// CrossEntropyLoss{.ignore_index = kNoPositive} of the logits is the loss. The default is ArcFace; CosFace
/// is CombinedMargin{.m2 = 0, .m3 = 0.4}.
struct CombinedMargin {
  double scale = 64.0;
  double m1 = 1.0;                 ///< factor of the angle
  double m2 = 0.5;                 ///< radians, added to the angle
  double m3 = 0.0;                 ///< taken from the cosine
  double interclass_filter = 0.0;  ///< cosines of other classes above it count as 0; 0: none do
  MarginGradient gradient = MarginGradient::kStraightThrough;

  Tensor operator()(const Tensor& cosine, const Tensor& labels) const;
};

using Margin = std::variant<CombinedMargin, AdaFace, ElasticFace, MagFace, CurricularFace>;

struct MarginHeadOptions {
  Margin margin = CombinedMargin{};
  /// Centres of each class, the nearest of which counts and gets the gradient: so that labels with errors do
  /// less harm. Source: J. Deng et al., "Sub-center ArcFace", ECCV 2020.
  int64_t sub_centres = 1;
  /// Centres and cosines in float32 in a half-precision model too, as InsightFace computes them.
  bool keep_float32 = false;
  Reduction reduction = Reduction::kMean;
  double init_std = 0.01;  ///< of the centres at the start, which are normal around 0
  /// The ranks that divide the classes: the head's are then those of this rank alone, and its labels, each a
  /// class among them or kNoPositive, those of the batches of all ranks, one behind the other. Each row's
  /// class is on one rank. The loss is that of this rank's rows over all classes, and the gradient of the
  /// weight that of the sum of all ranks' losses. PartialFC makes such heads and labels. Not owned; null:
  /// alone.
  const Communicator* communicator = nullptr;
};

/// Classification of embeddings by the angle to a centre per class, for training only: what is used later is
/// the backbone that gives the embeddings.
///
///   nn::IResNet backbone = nn::iresnet50();
///   nn::MarginHead head(512, identities);
///   Tensor loss = head(backbone(images), labels);
///
/// Embeddings (N, dimensions) of any floating-point dtype and any length, labels (N), int64, each a class or
/// kNoPositive; gives the cross-entropy of the margin's logits in float32 (float64 in a float64 model). Rows
/// without a positive have no loss; the mean over nothing but such rows is NaN, as of CrossEntropyLoss. Wrong
/// labels: see ops::combined_margin. Member: `weight` (classes, dimensions), whose rows count by their
/// direction only. In mixed precision cosines are 16-bit products of normalised vectors, logits float32.
///
/// With K sub-centres a row of the weight, (classes, K * dimensions), is those of a class, one behind the
/// other. Buffers, float32 scalars: `norm_mean` and `norm_deviation` with AdaFace, `t` with CurricularFace.
/// Throws InvalidArgument for margins that are out of range.
class MarginHead : public ModuleOf<Tensor(const Tensor&, const Tensor&)> {
 public:
  MarginHead(int64_t dimensions, int64_t classes, const MarginHeadOptions& options = {});

  Tensor forward(const Tensor& embeddings, const Tensor& labels) const override;
  /// (N, classes), without margins: what a prediction goes by. Of sub-centres, the largest.
  Tensor cosine(const Tensor& embeddings) const;
  /// (N, classes, K): of each sub-centre.
  Tensor sub_cosines(const Tensor& embeddings) const;

  Parameter weight;

 private:
  Tensor logits(const Tensor& embeddings, const Tensor& labels, const Communicator* ranks) const;
  Tensor penalty(const Tensor& embeddings, const Tensor& logits) const;

  MarginHeadOptions options_;
  int64_t dimensions_;
  std::vector<Buffer> state_;
};

}  // namespace sinter::nn
