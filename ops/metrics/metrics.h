// Running counts and sums of metrics, kept on the device so that training need not wait for it.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

namespace update {
/// For every row of `logits` (N, C), floating-point, counts the place of its class `target` (N), int64, among
/// the logits in descending order: counts[min(place, n - 1)] grows by 1, `counts` being int64 (n), n >= 1, so
/// that the first k elements add up to the rows whose target is among the k largest. Of equal logits the one
/// with the lower index comes first, and NaN counts as largest. Rows whose target is no class are left out.
/// Throws InvalidArgument for other shapes and dtypes.
void count_ranks_(const Tensor& counts, const Tensor& logits, const Tensor& target);
}  // namespace update

/// Places in the totals of add_to_mean_.
enum MeanTotal : int {
  kWeightedSum,     ///< of finite values times their weights
  kWeight,          ///< of the finite values
  kValues,          ///< how many values came, finite or not
  kFirstNotFinite,  ///< the number of the first value that was not finite, from 1; 0: there was none
  kMeanTotals
};

struct AddToMeanAttributes {
  double weight = 1.0;

  bool operator==(const AddToMeanAttributes&) const = default;
  template <class Self = AddToMeanAttributes>
  static constexpr auto fields() {
    return std::tuple(field("weight", &Self::weight));
  }
};

namespace update {
/// Adds a floating-point scalar with its weight to `totals`, float64 (kMeanTotals). Throws InvalidArgument
/// for other shapes and dtypes, or a weight that is negative or not finite.
void add_to_mean_(const Tensor& totals, const Tensor& value, double weight = 1.0);
}  // namespace update

}  // namespace sinter::ops
