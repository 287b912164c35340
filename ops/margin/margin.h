// Angular margins between classes: cosines to logits, for training embeddings of faces and the like.
#pragma once

#include <string_view>
#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// The label of a row none of whose classes is its own, as in a shard of the classes.
inline constexpr int64_t kNoPositive = -1;

/// What goes back through the margin of a row's own class.
enum class MarginGradient : uint8_t {
  kStraightThrough,  ///< `scale`, as if the margin were the identity
  kExact,            ///< the derivative
};

/// "straight_through" or "exact".
std::string_view to_string(MarginGradient gradient);

struct CombinedMarginOptions {
  double scale = 64.0;             ///< > 0
  double m1 = 1.0;                 ///< > 0: factor of the angle
  double m2 = 0.5;                 ///< in [0, pi), radians: added to the angle
  double m3 = 0.0;                 ///< >= 0: taken from the cosine
  double interclass_filter = 0.0;  ///< in [0, 1): cosines of other classes above it count as 0; 0: none do
  MarginGradient gradient = MarginGradient::kStraightThrough;
  /// In [0, 1); not 0: own cosines are kept within +-(1 - epsilon) and their moved angles within [epsilon, pi
  /// - epsilon]; beyond, the exact gradient is 0.
  double epsilon = 0.0;

  bool operator==(const CombinedMarginOptions&) const = default;
  template <class Self = CombinedMarginOptions>
  static constexpr auto fields() {
    return std::tuple(field("scale", &Self::scale), field("m1", &Self::m1), field("m2", &Self::m2),
                      field("m3", &Self::m3), field("interclass_filter", &Self::interclass_filter),
                      field("gradient", &Self::gradient), field("epsilon", &Self::epsilon));
  }
};

/// Logits for a softmax over classes from the cosines between embeddings and the classes' centres. cosine:
/// (N, C), floating-point. labels: (N), int64, the row's own class or kNoPositive. With theta the angle of an
/// element's cosine, the logits (N, C) are
///
///   scale * (cos(m1 * theta + m2) - m3)   for the row's own class,
///   scale * cosine                        for the others; 0 if the cosine is above a given interclass_filter
///
/// in float32 for 16-bit cosines, else in their dtype. (m1, m2, m3) = (1, 0.5, 0) is ArcFace, (1, 0, 0.4)
/// CosFace. Own cosines beyond +-1, which rounding gives, count as +-1. Differentiable in the cosines.
///
/// By default the gradient of the own class is `scale`, as InsightFace trains: the exact derivative, scale *
/// m1 * sin(m1 * theta + m2) / sin(theta), grows without limit where theta goes to 0, in samples that are
/// learnt, and is negative where m1 * theta + m2 exceeds pi, where it drives the hardest samples away from
/// their centre. Under MarginGradient::kExact it is taken at a cosine of at most 1 - 2^-21 in magnitude: a
/// float32 cosine does not tell smaller angles.
///
/// Margins of each row: `angles` (N) takes the place of m2, and may be any radians, `shifts` (N) that of m3,
/// in the dtype of the logits; either may be left out. Differentiable in both, always exactly: by angle
/// -scale * sin(theta + angle), by shift -scale. Angles need m1 = 1.
///
/// Throws InvalidArgument for other shapes, dtypes and options and C = 0; on the CPU also for a label outside
/// [0, C) that is not kNoPositive; on a GPU the first logit of such a row is NaN, and so are the row's loss
/// and gradient. Sources: J. Deng et al., "ArcFace: Additive angular margin loss for deep face recognition",
/// CVPR 2019; H. Wang et al., "CosFace: Large margin cosine loss for deep face recognition", CVPR 2018; the
/// filter: X. An et al., "Killing two birds with one stone: Efficient and robust training of face recognition
/// CNNs by Partial FC", CVPR 2022.
Tensor combined_margin(const Tensor& cosine, const Tensor& labels, const CombinedMarginOptions& options = {},
                       const Tensor& angles = {}, const Tensor& shifts = {});

/// The element of each row's own class, (N), of `x` (N, C); 0 for a row of kNoPositive. Differentiable.
Tensor own_elements(const Tensor& x, const Tensor& labels);

struct CombinedMarginGradAttributes {
  CombinedMarginOptions options;
  DType dtype = DType::kFloat32;  ///< of the cosines

  bool operator==(const CombinedMarginGradAttributes&) const = default;
  template <class Self = CombinedMarginGradAttributes>
  static constexpr auto fields() {
    return std::tuple(field("options", &Self::options), field("dtype", &Self::dtype));
  }
};

namespace vjp {
/// The gradient of combined_margin with respect to cosines of `dtype`, from `dlogits` and the op's two
/// outputs: its logits, in which filtered elements are -0 and no others, and the own cosine of each row, (N),
/// in the dtype of the logits; and the rows' angles, if they have any.
Tensor combined_margin(const Tensor& dlogits, const Tensor& labels, const Tensor& logits,
                       const Tensor& own_cosine, DType dtype, const CombinedMarginOptions& options = {},
                       const Tensor& angles = {});
}  // namespace vjp

}  // namespace sinter::ops
