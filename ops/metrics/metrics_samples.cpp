#include <algorithm>
#include <cmath>
#include <numeric>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/metrics/metrics.h>

namespace sinter::ops {
namespace {

OpSample make_count_ranks(SampleMaker& maker) {
  const int64_t rows = maker.integer(0, 40), classes = maker.integer(1, 70);
  const Tensor logits = maker.tensor({rows, classes});
  dispatch_float(logits.dtype(), "count_ranks_", [&]<class T> {
    T* x = logits.data<T>();
    for (int64_t i = 0; i < logits.numel(); ++i) {
      if (maker.chance(0.3)) x[i] = x[maker.integer(0, i)];  // equal logits
      if (maker.chance(0.02)) x[i] = static_cast<T>(NAN);
    }
  });
  return {{maker.indices({maker.integer(1, 7)}, 0, 100), logits, maker.indices({rows}, -1, classes)}, {}};
}

std::vector<ReferenceTensor> count_ranks_reference(const OpSample& sample) {
  ReferenceTensor counts = reference_of(sample.inputs[0]);
  const ReferenceTensor logits = reference_of(sample.inputs[1]), targets = reference_of(sample.inputs[2]);
  const int64_t classes = logits.shape[1];
  for (int64_t row = 0; row < logits.shape[0]; ++row) {
    const auto target = static_cast<int64_t>(targets[row]);
    if (target < 0 || target >= classes) continue;
    std::vector<int64_t> order(static_cast<size_t>(classes));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto key = [&](int64_t c) {
      const double x = logits[row * classes + c];
      return std::isnan(x) ? double{INFINITY} : x;
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
    const int64_t place = std::find(order.begin(), order.end(), target) - order.begin();
    counts[std::min(place, counts.shape[0] - 1)] += 1;
  }
  return {counts};
}

OpSample make_add_to_mean(SampleMaker& maker) {
  const Tensor totals = Tensor::from_values<double>(
      {maker.uniform(-9.0, 9.0), maker.uniform(0.0, 9.0), 5.0, maker.pick({0.0, 2.0})}, {kMeanTotals});
  const Tensor value = maker.tensor({});
  if (maker.chance(0.3)) {
    const double bad = maker.pick({double{INFINITY}, double{NAN}});
    dispatch_float(value.dtype(), "add_to_mean_", [&]<class T> { *value.data<T>() = static_cast<T>(bad); });
  }
  return {{totals, value}, AddToMeanAttributes{maker.pick({0.0, 1.0, 32.0})}};
}

std::vector<ReferenceTensor> add_to_mean_reference(const OpSample& sample) {
  ReferenceTensor totals = reference_of(sample.inputs[0]);
  const double weight = sample.attributes.as<AddToMeanAttributes>().weight;
  const double value = reference_of(sample.inputs[1])[0];
  totals[2] += 1;
  if (std::isfinite(value)) {
    totals[0] += weight * value;
    totals[1] += weight;
  } else if (totals[3] == 0) {
    totals[3] = totals[2];
  }
  return {totals};
}

}  // namespace

void register_metrics_samples(SampleRegistry& registry);
void register_metrics_samples(SampleRegistry& registry) {
  registry.add({.op = "count_ranks_",
                .make = make_count_ranks,
                .reference = count_ranks_reference,
                .check_gradient = false});
  registry.add({.op = "add_to_mean_",
                .make = make_add_to_mean,
                .reference = add_to_mean_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
