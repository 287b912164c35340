#include <cmath>
#include <numbers>
#include <optional>

#include <sinter/core/base/dtype.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/loss/margin_logits_internal.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/random_normal/random_normal.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/topk/topk.h>
#include <sinter/ops/unary/unary.h>
#include <sinter/ops/where/where.h>

namespace sinter::nn {
namespace {

using ops::affine;
using ops::where;

constexpr double kLeastNorm = 1e-3, kMostNorm = 100.0, kEpsilon = 1e-3;  // AdaFace's

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

double slope_of(const MagFace& margin) {
  return (margin.most_margin - margin.least_margin) / (margin.most_norm - margin.least_norm);
}

double least_weight(const MagFace& margin) {
  const double least = margin.least_norm * margin.least_norm, most = margin.most_norm * margin.most_norm;
  return margin.scale * slope_of(margin) * least * most / (most - least);
}

void check_scale(double scale) {
  SINTER_CHECK(scale > 0 && std::isfinite(scale), "[margin_head] expected scale > 0 but got {}", scale);
}

void check_momentum(double momentum) {
  SINTER_CHECK(momentum > 0 && momentum <= 1, "[margin_head] expected momentum in (0, 1] but got {}",
               momentum);
}

void check_within(const char* name, double value, double end) {
  SINTER_CHECK(value >= 0 && value < end, "[margin_head] expected {} in [0, {:.4g}) but got {}", name, end,
               value);
}

/// The own cosines of rows in the dtype of logits, without a gradient; 0 for rows of other ranks.
Tensor own_cosines(const MarginCall& call) {
  const Tensor own = ops::own_elements(call.cosine.detach(), call.labels);
  return ops::cast(own, accumulate_dtype(own.dtype()));
}

Tensor has_class(const MarginCall& call) {
  return ops::greater_equal(call.labels, ops::zeros_like(call.labels));
}

/// Moves an average towards `value`, in place; gives it in the dtype of `value`.
Tensor moved_average(const Buffer& average, const Tensor& value, double momentum) {
  const Tensor& before = average.tensor();
  const Tensor after =
      affine(before, 1.0 - momentum, 0.0) + affine(ops::cast(value, before.dtype()), momentum, 0.0);
  ops::copy_(before, after);
  return ops::cast(after, value.dtype());
}

Tensor with_margins(const MarginCall& call, double scale, const Tensor& angles, const Tensor& shifts,
                    double epsilon = 0.0) {
  return ops::combined_margin(
      call.cosine, call.labels,
      {.scale = scale, .m2 = 0.0, .m3 = 0.0, .gradient = MarginGradient::kExact, .epsilon = epsilon}, angles,
      shifts);
}

Tensor logits_of(const AdaFace& margin, const MarginCall& call) {
  Tensor k;
  {
    const NoGrad no_grad;
    const Tensor norms = ops::clip(call.norms.detach(), kLeastNorm, kMostNorm);
    Tensor mean, deviation;
    if (call.training && norms.numel() > 1) {
      mean = moved_average(call.state[0], ops::mean(norms), margin.momentum);
      deviation = moved_average(call.state[1], ops::std(norms), margin.momentum);
    } else {
      mean = ops::cast(call.state[0], norms.dtype());
      deviation = ops::cast(call.state[1], norms.dtype());
    }
    k = ops::clip(affine((norms - mean) / affine(deviation, 1.0, 1e-3), margin.h, 0.0), -1.0, 1.0);
  }
  return with_margins(call, margin.scale, affine(k, -margin.margin, 0.0),
                      affine(k, margin.margin, margin.margin), kEpsilon);
}

/// The draws, of which the largest goes to the row with the lowest own cosine, and so on.
Tensor sorted_by_cosine(const Tensor& draws, const MarginCall& call) {
  Tensor own = own_cosines(call);
  if (call.ranks != nullptr) own = ops::all_reduce(own, *call.ranks);
  const int64_t rows = own.numel();
  const auto rising = [rows](const Tensor& x) { return ops::topk(affine(x, -1.0, 0.0), rows).indices; };
  // The i-th lowest is row order[i]; the places of 0, 1, ... in it say the how-manieth each row is.
  const Tensor order = rising(own), place = rising(order);
  return ops::gather(ops::topk(draws, rows).values, 0, place);
}

Tensor logits_of(const ElasticFace& margin, const MarginCall& call) {
  Tensor margins;
  {
    const NoGrad no_grad;
    const DType dtype = accumulate_dtype(call.cosine.dtype());
    const Shape rows = call.labels.shape();
    std::optional<RandomPartScope> whole;
    if (call.ranks != nullptr) whole.emplace(0, 1);  // each has the rows of all
    Tensor draws = call.training ? ops::random_normal(rows, dtype, call.cosine.device())
                                 : ops::zeros(rows, dtype, call.cosine.device());
    if (margin.sorted) draws = sorted_by_cosine(draws, call);
    margins = affine(draws, margin.deviation, margin.mean);
  }
  return margin.of_cosine ? with_margins(call, margin.scale, {}, margins)
                          : with_margins(call, margin.scale, margins, {});
}

Tensor logits_of(const MagFace& margin, const MarginCall& call) {
  const Tensor norms = ops::clip(call.norms, margin.least_norm, margin.most_norm);
  const double slope = slope_of(margin);
  const Tensor angles = affine(norms, slope, margin.least_margin - slope * margin.least_norm);
  const Tensor own = own_cosines(call);
  return with_margins(call, margin.scale, where(ops::greater(own, ops::zeros_like(own)), angles, 0.0), {});
}

Tensor logits_of(const CurricularFace& margin, const MarginCall& call) {
  const double cosine = std::cos(margin.margin), sine = std::sin(margin.margin);
  const Tensor own = own_cosines(call);
  const Tensor easy = ops::greater(own, ops::full_like(own, -cosine));  // theta + margin < pi
  const Tensor logits = with_margins(call, 1.0, where(easy, ops::full_like(own, margin.margin), 0.0),
                                     where(easy, 0.0, ops::full_like(own, margin.margin * sine)));
  Tensor least, t;
  {
    const NoGrad no_grad;
    // Those of the logits to the last bit, so that no row's own class is above its own threshold.
    const Tensor limited = ops::clip(own, -1.0, 1.0);
    const Tensor sines = ops::sqrt(affine(limited, -1.0, 1.0) * affine(limited, 1.0, 1.0));
    least = where(easy, ops::own_elements(logits.detach(), call.labels),
                  affine(limited, cosine, 0.0) - affine(sines, sine, 0.0));
    const Tensor here = has_class(call), none = ops::zeros_like(own);
    least = where(here, least, none);
    Tensor rows = ops::stack({least, own, where(here, ops::ones_like(own), none)});
    if (call.ranks != nullptr) rows = ops::all_reduce(rows, *call.ranks);
    least = ops::slice(rows, 0, 0, 1);
    const Tensor sums = ops::sum(rows, {1});
    const Tensor mean = ops::slice(sums, 0, 1, 2) / ops::clip(ops::slice(sums, 0, 2, 3), 1.0, HUGE_VAL);
    t = call.training ? moved_average(call.state[0], ops::reshape(mean, {}), margin.momentum)
                      : ops::cast(call.state[0], own.dtype());
  }
  const Tensor hard = ops::greater(logits, ops::reshape(least, {own.numel(), 1}));
  return affine(where(hard, logits * (logits + t), logits), margin.scale, 0.0);
}

}  // namespace

void check_margin(const Margin& margin) {
  constexpr double pi = std::numbers::pi;
  std::visit(Overloaded{[](const CombinedMargin&) {},
                        [](const AdaFace& m) {
                          check_scale(m.scale);
                          check_momentum(m.momentum);
                          check_within("margin", m.margin, pi / 4);
                          SINTER_CHECK(m.h > 0 && std::isfinite(m.h),
                                       "[margin_head] expected h > 0 but got {}", m.h);
                        },
                        [](const ElasticFace& m) {
                          check_scale(m.scale);
                          check_within("mean", m.mean, m.of_cosine ? HUGE_VAL : pi);
                          check_within("deviation", m.deviation, HUGE_VAL);
                        },
                        [](const MagFace& m) {
                          check_scale(m.scale);
                          check_within("least_norm", m.least_norm, m.most_norm);
                          SINTER_CHECK(m.least_norm > 0 && std::isfinite(m.most_norm),
                                       "[margin_head] expected norms in (0, infinity) but got {} and {}",
                                       m.least_norm, m.most_norm);
                          check_within("most_margin", m.most_margin, pi / 2);
                          SINTER_CHECK(m.least_margin >= 0 && m.least_margin <= m.most_margin,
                                       "[margin_head] expected least_margin in [0, {}] but got {}",
                                       m.most_margin, m.least_margin);
                          SINTER_CHECK(
                              m.weight >= least_weight(m) && std::isfinite(m.weight),
                              "[margin_head] expected weight >= {:.2f}, or lengths have no best value, "
                              "but got {}",
                              least_weight(m), m.weight);
                        },
                        [](const CurricularFace& m) {
                          check_scale(m.scale);
                          check_momentum(m.momentum);
                          check_within("margin", m.margin, pi / 2);
                        }},
             margin);
}

std::string describe_margin(const Margin& margin) {
  return std::visit(
      Overloaded{
          [](const CombinedMargin& m) {
            return fmt::format("scale {}, margins ({}, {}, {})", m.scale, m.m1, m.m2, m.m3);
          },
          [](const AdaFace& m) { return fmt::format("adaface, scale {}, margin {}", m.scale, m.margin); },
          [](const ElasticFace& m) {
            return fmt::format("elasticface{}, scale {}, {} {} +- {}", m.sorted ? "+" : "", m.scale,
                               m.of_cosine ? "cosines" : "angles", m.mean, m.deviation);
          },
          [](const MagFace& m) {
            return fmt::format("magface, scale {}, margins {} to {}", m.scale, m.least_margin, m.most_margin);
          },
          [](const CurricularFace& m) {
            return fmt::format("curricularface, scale {}, margin {}", m.scale, m.margin);
          }},
      margin);
}

std::vector<std::pair<std::string, double>> margin_state(const Margin& margin) {
  if (std::holds_alternative<AdaFace>(margin)) return {{"norm_mean", 20.0}, {"norm_deviation", 100.0}};
  if (std::holds_alternative<CurricularFace>(margin)) return {{"t", 0.0}};
  return {};
}

bool uses_norms(const Margin& margin) {
  return std::holds_alternative<AdaFace>(margin) || std::holds_alternative<MagFace>(margin);
}

Tensor margin_logits(const Margin& margin, const MarginCall& call) {
  return std::visit(Overloaded{[&](const CombinedMargin& m) { return m(call.cosine, call.labels); },
                               [&](const auto& m) { return logits_of(m, call); }},
                    margin);
}

Tensor margin_penalty(const Margin& margin, const Tensor& norms) {
  const auto* const m = std::get_if<MagFace>(&margin);
  if (m == nullptr) return {};
  const Tensor limited = ops::clip(norms, m->least_norm, m->most_norm);
  return affine(limited, m->weight / (m->most_norm * m->most_norm), 0.0) +
         affine(ops::reciprocal(limited), m->weight, 0.0);
}

}  // namespace sinter::nn
