#include <algorithm>
#include <cmath>
#include <numbers>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/margin/margin.h>

namespace sinter::ops {
namespace {

constexpr double kFilter = 0.2;

struct Margins {
  double m1, m2, m3;
};

/// Options of a call whose gradient may be compared with finite differences if `exact`.
CombinedMarginOptions make_options(SampleMaker& maker, bool exact) {
  const auto margins =
      maker.pick<Margins>({{1.0, 0.5, 0.0}, {1.0, 0.0, 0.4}, {1.35, 0.0, 0.0}, {0.9, 0.4, 0.15}});
  return {.scale = maker.pick({1.0, 30.0, 64.0}),
          .m1 = margins.m1,
          .m2 = margins.m2,
          .m3 = margins.m3,
          .interclass_filter = maker.pick({0.0, kFilter}),
          .gradient = exact || maker.chance(0.5) ? MarginGradient::kExact : MarginGradient::kStraightThrough,
          .epsilon = maker.pick({0.0, 1e-3})};
}

/// Margins of each row, now and then; m1 becomes 1 beside angles, which go up to AdaFace's.
Tensor make_margins(SampleMaker& maker, int64_t rows, double most) {
  if (maker.chance(0.5)) return {};
  SampleMaker wide(maker.generator().below(1u << 30), accumulate_dtype(maker.dtype()));
  return wide.tensor({rows}, -most, most);
}

double element_or(const Tensor& margins, int64_t row, double common) {
  return margins.defined() ? reference_of(margins)[row] : common;
}

bool is_beyond(double angle, double epsilon) {
  return epsilon > 0 && (angle < epsilon || angle > std::numbers::pi - epsilon);
}

Shape make_shape(SampleMaker& maker) {
  const int64_t rows = maker.integer(0, 9);
  return {rows, maker.chance(0.15) ? maker.integer(250, 600) : maker.integer(1, 12)};
}

OpSample make_combined_margin(SampleMaker& maker) {
  const Shape shape = make_shape(maker);
  const Tensor cosine = maker.tensor_off(shape, {kFilter}, 0.01, -0.95, 0.95);
  const Tensor labels = maker.indices({shape[0]}, -1, shape[1] - 1);
  CombinedMarginOptions options = make_options(maker, maker.dtype() == DType::kFloat64);
  const Tensor angles = make_margins(maker, shape[0], 0.5), shifts = make_margins(maker, shape[0], 0.8);
  if (angles.defined()) options.m1 = 1.0;
  return {{cosine, labels, angles, shifts}, options};
}

std::vector<ReferenceTensor> combined_margin_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<CombinedMarginOptions>();
  ReferenceTensor logits = reference_of(sample.inputs[0]);
  const ReferenceTensor labels = reference_of(sample.inputs[1]);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  ReferenceTensor own(Shape{rows});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < classes; ++c) {
      double& value = logits[row * classes + c];
      if (c == static_cast<int64_t>(labels[row])) {
        own[row] = value;
        double angle = options.m1 * std::acos(value) + element_or(sample.inputs[2], row, options.m2);
        if (is_beyond(angle, options.epsilon))
          angle = std::cos(angle) > 0 ? options.epsilon : std::numbers::pi - options.epsilon;
        value = std::cos(angle) - element_or(sample.inputs[3], row, options.m3);
      } else if (options.interclass_filter > 0 && value > options.interclass_filter) {
        value = 0.0;
      }
      value *= options.scale;
    }
  }
  return {logits, own};
}

double combined_margin_terms(const OpSample& sample, size_t output) {
  const auto& options = sample.attributes.as<CombinedMarginOptions>();
  const bool shifted = sample.inputs[3].defined();
  return output == 0 ? options.scale * (1.0 + (shifted ? 0.8 : options.m3)) : 1.0;
}

OpSample make_combined_margin_grad(SampleMaker& maker) {
  const Shape shape = make_shape(maker);
  SampleMaker wide(maker.generator().below(1u << 30), accumulate_dtype(maker.dtype()));
  // Small enough that the steepest slopes keep them in float16.
  const Tensor dlogits = wide.tensor(shape, -0.2, 0.2), logits = wide.tensor(shape);
  Tensor own_cosine = wide.tensor({shape[0]}, -1.0, 1.0);
  dispatch_float(logits.dtype(), "samples", [&]<class C> {
    for (int64_t i = 0; i < shape.numel(); ++i) {
      if (maker.chance(0.3)) logits.data<C>()[i] = static_cast<C>(maker.chance(0.5) ? -0.0 : 0.0);
    }
    for (int64_t row = 0; row < shape[0]; ++row) {
      if (maker.chance(0.2))
        own_cosine.data<C>()[row] = static_cast<C>(maker.pick({-1.0, 1.0, 1.0 + 0x1p-20}));
    }
  });
  const Tensor labels = maker.indices({shape[0]}, -1, shape[1] - 1);
  CombinedMarginOptions options = make_options(maker, false);
  const Tensor angles = make_margins(maker, shape[0], 0.5);
  if (angles.defined()) options.m1 = 1.0;
  return {{dlogits, labels, logits, own_cosine, angles},
          CombinedMarginGradAttributes{options, maker.dtype()}};
}

std::vector<ReferenceTensor> combined_margin_grad_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<CombinedMarginGradAttributes>().options;
  ReferenceTensor dcosine = reference_of(sample.inputs[0]);
  const ReferenceTensor labels = reference_of(sample.inputs[1]), logits = reference_of(sample.inputs[2]),
                        own = reference_of(sample.inputs[3]);
  const int64_t rows = dcosine.shape[0], classes = dcosine.shape[1];
  const double least_angle = std::acos(1.0 - std::ldexp(1.0, -21));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = row * classes + c;
      double slope = options.scale;
      if (c == static_cast<int64_t>(labels[row])) {
        if (options.gradient == MarginGradient::kExact) {
          const double angle = std::clamp(std::acos(std::clamp(own[row], -1.0, 1.0)), least_angle,
                                          std::numbers::pi - least_angle);
          const double moved = options.m1 * angle + element_or(sample.inputs[4], row, options.m2);
          slope *= options.m1 * std::sin(moved) / std::sin(angle);
          if (is_beyond(moved, options.epsilon) ||
              (options.epsilon > 0 && std::abs(own[row]) > 1.0 - options.epsilon))
            slope = 0.0;
        }
      } else if (options.interclass_filter > 0 && logits[i] == 0.0 && std::signbit(logits[i])) {
        slope = 0.0;
      }
      dcosine[i] *= slope;
    }
  }
  return {dcosine};
}

}  // namespace

void register_margin_samples(SampleRegistry& registry);
void register_margin_samples(SampleRegistry& registry) {
  // The logit of the own class is what is left of a cosine and a margin.
  registry.add({.op = "combined_margin",
                .make = make_combined_margin,
                .reference = combined_margin_reference,
                .term_size = combined_margin_terms});
  registry.add({.op = "combined_margin_grad",
                .make = make_combined_margin_grad,
                .reference = combined_margin_grad_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
