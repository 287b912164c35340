// Margins that are not the same for all rows: they go by the quality of an image, by chance, or by how far
// the training is. Each is an option of MarginHead (margin.h), which keeps what they remember.
//
// With theta the angle between an embedding z and the centre of its own class, the logits are
//
//   scale * (cos(theta + a) - b)   for the row's own class, a and b being the row's,
//   scale * cosine                 for the others, unless said otherwise,
//
// and gradients are exact.
#pragma once

namespace sinter::nn {

/// Large margins by angle for images of low quality, which the length of z tells, and by cosine for others:
/// with k = clip(h (|z| - mean) / (deviation + 0.001), -1, 1), a = -margin * k and b = margin + margin * k.
/// |z|, within [0.001, 100], gets no gradient. Its mean and deviation over the batches of all ranks are
/// moving averages that start at 20 and 100, and take in a batch (of more than one row) before it uses them.
/// Own cosines are kept within +-0.999, and theta + a within [0.001, pi - 0.001]. Source: M. Kim, A. K. Jain,
/// X. Liu, "AdaFace: Quality adaptive margin for face recognition", CVPR 2022.
struct AdaFace {
  double scale = 64.0;
  double margin = 0.4;     ///< in [0, pi/4)
  double h = 0.333;        ///< > 0: the share of a deviation's worth
  double momentum = 0.01;  ///< in (0, 1]: the weight of a batch in the averages
};

/// Margins from a normal distribution, drawn anew for each row and step: by angle (ElasticFace-Arc), or by
/// cosine (Cos: {.of_cosine = true, .mean = 0.35}). `sorted` ("plus"): the lower a row's own cosine is in the
/// batch of all ranks, the larger the draw that it gets; the paper's deviations there are 0.0175 and 0.02.
/// In evaluation mode all margins are the mean. Source: F. Boutros et al., "ElasticFace: Elastic margin loss
/// for deep face recognition", CVPR workshops 2022.
struct ElasticFace {
  double scale = 64.0;
  bool of_cosine = false;
  double mean = 0.5;        ///< >= 0
  double deviation = 0.05;  ///< >= 0
  bool sorted = false;
};

/// Margins that grow with the length of z, which the gradient pulls up for faces that are easy: with n = |z|
/// within [least_norm, most_norm], a goes from least_margin to most_margin, where the own cosine is positive,
/// and is 0 elsewhere; and weight * (n / most_norm^2 + 1 / n) is added to the row's loss. `weight` is at
/// least scale * slope * (least_norm * most_norm)^2 / (most_norm^2 - least_norm^2), slope being that of a by
/// n: so that the best length of a row lies between the two. Source: Q. Meng et al., "MagFace: A universal
/// representation for face recognition and quality assessment", CVPR 2021.
struct MagFace {
  double scale = 64.0;
  double least_norm = 10.0, most_norm = 110.0;    ///< 0 < least < most
  double least_margin = 0.45, most_margin = 0.8;  ///< radians, 0 <= least <= most < pi/2
  double weight = 35.0;
};

/// Hard classes count more as training goes on: an own cosine becomes cos(theta + margin), but cosine -
/// margin
/// * sin(margin) where theta + margin would exceed pi; another's cosine c above cos(theta + margin) becomes
/// c * (t + c). t, from 0 on, is the moving average of the own cosines of all ranks, which takes in a batch
/// before it uses it and gets no gradient. Source: Y. Huang et al., "CurricularFace: Adaptive curriculum
/// learning loss for deep face recognition", CVPR 2020.
struct CurricularFace {
  double scale = 64.0;
  double margin = 0.5;     ///< radians, in [0, pi/2)
  double momentum = 0.01;  ///< in (0, 1]: the weight of a batch in t
};

}  // namespace sinter::nn
