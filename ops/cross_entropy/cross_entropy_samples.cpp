#include <algorithm>
#include <cmath>

#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>

namespace sinter::ops {
namespace {

OpSample make_cross_entropy(SampleMaker& maker) {
  CrossEntropyOptions options;
  options.reduction = maker.pick({Reduction::kMean, Reduction::kSum, Reduction::kNone});
  options.label_smoothing = maker.pick({0.0, 0.1, 1.0});
  const int64_t rows = options.reduction == Reduction::kMean ? maker.integer(1, 9) : maker.integer(0, 9);
  const int64_t classes = maker.chance(0.15) ? maker.integer(250, 600) : maker.integer(1, 12);
  const Tensor logits = maker.tensor({rows, classes}, -4.0, 4.0);
  if (maker.chance(0.4))
    return {{logits, maker.tensor({rows, classes}, 0.0, 2.0 / static_cast<double>(classes))}, options};
  options.ignore_index = maker.pick<int64_t>({-100, 0, -1});
  const Tensor target = maker.indices({rows}, 0, classes - 1);
  for (int64_t row = 0; row < rows; ++row) {
    if (maker.chance(0.2)) target.data<int64_t>()[row] = options.ignore_index;
  }
  // A mean over no row would be NaN: tested apart.
  const int64_t other = options.ignore_index == 0 ? classes - 1 : 0;
  if (other == options.ignore_index) {
    options.ignore_index = -100;
  } else if (rows > 0) {
    target.data<int64_t>()[rows - 1] = other;
  }
  return {{logits, target}, options};
}

/// q of every row and class; rows that are ignored have q = 0. `counted` is the number of the others.
std::vector<double> target_distribution(const OpSample& sample, double smoothing, int64_t ignore_index,
                                        double& counted) {
  const Shape& shape = sample.inputs[0].shape();
  const int64_t rows = shape[0], classes = shape[1];
  const ReferenceTensor target = reference_of(sample.inputs[1]);
  std::vector<double> q;
  counted = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const bool indices = target.shape.rank() == 1;
    const bool ignored = indices && static_cast<int64_t>(target[row]) == ignore_index;
    counted += ignored ? 0 : 1;
    for (int64_t c = 0; c < classes; ++c) {
      const double p =
          indices ? (static_cast<int64_t>(target[row]) == c ? 1.0 : 0.0) : target[row * classes + c];
      q.push_back(ignored ? 0.0 : (1 - smoothing) * p + smoothing / static_cast<double>(classes));
    }
  }
  return q;
}

std::vector<double> log_sums(const ReferenceTensor& x) {
  std::vector<double> sums;
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    double sum = 0;
    for (int64_t c = 0; c < x.shape[1]; ++c) sum += std::exp(x[row * x.shape[1] + c]);
    sums.push_back(std::log(sum));
  }
  return sums;
}

std::vector<ReferenceTensor> cross_entropy_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<CrossEntropyOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const int64_t rows = x.shape[0], classes = x.shape[1];
  double counted = 0;
  const auto q = target_distribution(sample, options.label_smoothing, options.ignore_index, counted);
  ReferenceTensor log_sum(Shape{rows}), losses(Shape{rows}), total(Shape{});
  log_sum.values = log_sums(x);
  for (int64_t i = 0; i < rows * classes; ++i) {
    losses[i / classes] += q[static_cast<size_t>(i)] * (log_sum[i / classes] - x[i]);
  }
  if (options.reduction == Reduction::kNone) return {losses, log_sum};
  for (double loss : losses.values) total[0] += loss;
  if (options.reduction == Reduction::kMean) total[0] /= counted;
  return {total, log_sum};
}

OpSample make_cross_entropy_grad(SampleMaker& maker) {
  OpSample sample = make_cross_entropy(maker);
  const auto options = sample.attributes.as<CrossEntropyOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  SampleMaker rows(maker.generator().below(1u << 30), accumulate_dtype(maker.dtype()));
  const Tensor log_sum = rows.tensor({x.shape[0]});
  const std::vector<double> sums = log_sums(x);
  dispatch_float(log_sum.dtype(), "samples", [&]<class T> {
    for (size_t i = 0; i < sums.size(); ++i) log_sum.data<T>()[i] = static_cast<T>(sums[i]);
  });
  const Shape loss = options.reduction == Reduction::kNone ? Shape{x.shape[0]} : Shape{};
  sample.inputs.push_back(log_sum);
  sample.inputs.push_back(rows.tensor(loss));
  const bool target_gradient = sample.inputs[1].rank() == 2 && maker.chance(0.5);
  sample.attributes = CrossEntropyGradAttributes{options.label_smoothing, options.ignore_index,
                                                 options.reduction, target_gradient};
  return sample;
}

std::vector<ReferenceTensor> cross_entropy_grad_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<CrossEntropyGradAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const ReferenceTensor log_sum = reference_of(sample.inputs[2]);
  const ReferenceTensor dloss = reference_of(sample.inputs[3]);
  const int64_t classes = x.shape[1];
  double counted = 0;
  const auto q = target_distribution(sample, attributes.label_smoothing, attributes.ignore_index, counted);
  ReferenceTensor dlogits(x.shape), dtarget(x.shape);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t row = i / classes;
    double mass = 0;
    for (int64_t c = 0; c < classes; ++c) mass += q[static_cast<size_t>(row * classes + c)];
    double scale = dloss[attributes.reduction == Reduction::kNone ? row : 0];
    if (attributes.reduction == Reduction::kMean) scale /= counted;
    dlogits[i] = scale * (mass * std::exp(x[i] - log_sum[row]) - q[static_cast<size_t>(i)]);
    dtarget[i] = scale * (1 - attributes.label_smoothing) * (log_sum[row] - x[i]);
  }
  if (!attributes.target_gradient) return {dlogits};
  return {dlogits, dtarget};
}

/// The largest of what the gradients are differences of: of the logits' the target's share, and what the
/// softmax takes of it; of the target's a logit and the logarithm of the sum.
double cross_entropy_grad_terms(const OpSample& sample, size_t output) {
  const auto& attributes = sample.attributes.as<CrossEntropyGradAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]), dloss = reference_of(sample.inputs[3]);
  const ReferenceTensor log_sum = reference_of(sample.inputs[2]);
  const int64_t classes = x.shape[1];
  double counted = 0, largest = 0;
  const auto q = target_distribution(sample, attributes.label_smoothing, attributes.ignore_index, counted);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    double scale = dloss[attributes.reduction == Reduction::kNone ? i / classes : 0];
    if (attributes.reduction == Reduction::kMean) scale /= counted;
    const double term =
        output == 0 ? q[static_cast<size_t>(i)] : std::abs(x[i]) + std::abs(log_sum[i / classes]);
    largest = std::max(largest, std::abs(scale * term));
  }
  return largest;
}

// ---- of classes that are divided among ranks, of a process alone

OpSample make_shard_sums(SampleMaker& maker) {
  const int64_t rows = maker.integer(0, 9);
  const int64_t classes = maker.chance(0.15) ? maker.integer(250, 600) : maker.integer(1, 12);
  const Tensor indices = maker.indices({rows}, 0, classes - 1);
  for (int64_t row = 0; row < rows; ++row) {
    if (maker.chance(0.4)) indices.data<int64_t>()[row] = kElsewhere;
  }
  return {{maker.tensor({rows, classes}, -4.0, 4.0), indices}, {}};
}

/// A number for each row, in the dtype in which losses are.
Tensor row_numbers(SampleMaker& maker, int64_t rows) {
  std::vector<double> values(static_cast<size_t>(rows));
  for (double& value : values) value = maker.uniform(0.5, 2.0);
  if (maker.dtype() == DType::kFloat64) return Tensor::from_values(values, Shape{rows});
  return Tensor::from_values(std::vector<float>(values.begin(), values.end()), Shape{rows});
}

OpSample make_shard_loss(SampleMaker& maker) {
  OpSample sample = make_shard_sums(maker);
  const int64_t rows = sample.inputs[1].numel();
  sample.inputs.push_back(row_numbers(maker, rows));
  sample.inputs.push_back(row_numbers(maker, rows));
  sample.attributes = AllGatherAttributes{};
  return sample;
}

OpSample make_shard_grad(SampleMaker& maker) {
  OpSample sample = make_shard_loss(maker);
  sample.attributes = {};
  return sample;
}

std::vector<ReferenceTensor> shard_sums_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]), rows = reference_of(sample.inputs[1]);
  ReferenceTensor log_sum(Shape{x.shape[0]}), logits(Shape{x.shape[0]});
  log_sum.values = log_sums(x);
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    const auto own = static_cast<int64_t>(rows[row]);
    logits[row] = own == kElsewhere ? 0.0 : x[row * x.shape[1] + own];
  }
  return {logits, log_sum};
}

std::vector<ReferenceTensor> shard_loss_reference(const OpSample& sample) {
  return {reference_of(sample.inputs[3])};
}

std::vector<ReferenceTensor> shard_grad_reference(const OpSample& sample) {
  ReferenceTensor x = reference_of(sample.inputs[0]);
  const ReferenceTensor rows = reference_of(sample.inputs[1]), log_sum = reference_of(sample.inputs[2]);
  const ReferenceTensor dloss = reference_of(sample.inputs[3]);
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t row = i / x.shape[1], c = i % x.shape[1];
    x[i] = dloss[row] * (std::exp(x[i] - log_sum[row]) - (static_cast<int64_t>(rows[row]) == c ? 1.0 : 0.0));
  }
  return {x};
}

/// exp(x - log_sum) of x and log_sum that are rounded.
double shard_grad_terms(const OpSample&, size_t) {
  return 2.0 * std::exp(4.0) * 8.0;
}

}  // namespace

void register_cross_entropy_samples(SampleRegistry& registry);
void register_cross_entropy_samples(SampleRegistry& registry) {
  // The loss of a likely class is what is left of two numbers of a few units.
  registry.add({.op = "cross_entropy",
                .make = make_cross_entropy,
                .reference = cross_entropy_reference,
                .term_size = unit_terms});
  registry.add({.op = "cross_entropy_grad",
                .make = make_cross_entropy_grad,
                .reference = cross_entropy_grad_reference,
                .term_size = cross_entropy_grad_terms,
                .check_gradient = false});
  registry.add({.op = "shard_log_sums",
                .make = make_shard_sums,
                .reference = shard_sums_reference,
                .term_size = unit_terms,
                .check_gradient = false});
  // Its value is what the ranks have agreed on, its gradient that of the logits: tests/processes.
  registry.add({.op = "shard_cross_entropy",
                .make = make_shard_loss,
                .reference = shard_loss_reference,
                .check_gradient = false});
  registry.add({.op = "shard_cross_entropy_grad",
                .make = make_shard_grad,
                .reference = shard_grad_reference,
                .term_size = shard_grad_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
