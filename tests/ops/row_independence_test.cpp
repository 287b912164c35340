// A row gives the same bits whatever stands beside it: in tensors of one row, of some, of many, at every
// place, for rows short and long. Zeros, infinities and NaN are among them.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/topk/topk.h>

#include "ops/float_places.h"

namespace sinter::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Doubles = std::vector<double>;

struct RowOp {
  const char* name;
  /// Of x and another tensor (rows, columns); the results have a first axis of rows.
  std::function<std::vector<Tensor>(const Tensor&, const Tensor&)> call;
};

std::vector<RowOp> row_ops() {
  const auto targets = [](const Tensor& x) {
    return Tensor::from_values(std::vector<int64_t>(static_cast<size_t>(x.size(0)), x.size(1) - 1),
                               {x.size(0)})
        .to(x.device());
  };
  const auto wide = [](const Tensor& x) {
    return Tensor::full({x.size(0)}, 0.75, accumulate_dtype(x.dtype()), x.device());
  };
  const CrossEntropyOptions each{.reduction = Reduction::kNone};
  const CrossEntropyOptions smooth{.label_smoothing = 0.1, .reduction = Reduction::kNone};
  const auto all = [](const CrossEntropyGrad& grad) {
    return grad.target.defined() ? std::vector<Tensor>{grad.logits, grad.target}
                                 : std::vector<Tensor>{grad.logits};
  };
  return {
      {"softmax", [](const auto& x, const auto&) { return std::vector{softmax(x, 1)}; }},
      {"log_softmax", [](const auto& x, const auto&) { return std::vector{log_softmax(x, 1)}; }},
      {"softmax_grad", [](const auto& x, const auto& y) { return std::vector{vjp::softmax(x, y, 1)}; }},
      {"log_softmax_grad",
       [](const auto& x, const auto& y) { return std::vector{vjp::log_softmax(y, x, 1)}; }},
      {"cross_entropy",
       [=](const auto& x, const auto&) { return std::vector{cross_entropy(x, targets(x), each)}; }},
      {"cross_entropy, smooth",
       [=](const auto& x, const auto&) { return std::vector{cross_entropy(x, targets(x), smooth)}; }},
      {"cross_entropy of probabilities",
       [=](const auto& x, const auto& y) { return std::vector{cross_entropy(x, y, each)}; }},
      {"cross_entropy_grad",
       [=](const auto& x, const auto&) {
         return all(vjp::cross_entropy(wide(x), x, targets(x), wide(x), smooth));
       }},
      {"cross_entropy_grad of probabilities",
       [=](const auto& x, const auto& y) {
         return all(vjp::cross_entropy(wide(x), x, y, wide(x), each, true));
       }},
      {"l2_normalize", [](const auto& x, const auto&) { return std::vector{l2_normalize(x, 1)}; }},
      {"sum", [](const auto& x, const auto&) { return std::vector{sum(x, {1})}; }},
      {"mean", [](const auto& x, const auto&) { return std::vector{mean(x, {1})}; }},
      {"max", [](const auto& x, const auto&) { return std::vector{max(x, {1})}; }},
      {"min", [](const auto& x, const auto&) { return std::vector{min(x, {1})}; }},
      {"argmax", [](const auto& x, const auto&) { return std::vector{argmax(x, 1)}; }},
      {"topk",
       [](const auto& x, const auto&) {
         const TopK found = topk(x, std::min<int64_t>(3, x.size(1)), 1);
         return std::vector{found.values, found.indices};
       }},
  };
}

class RowIndependence : public FloatPlaceTest {
 protected:
  Tensor tensor(const Doubles& values, int64_t rows) const {
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    return cast(Tensor::from_values(values, {rows, columns}), GetParam().dtype).to(GetParam().device);
  }
};

Doubles drawn(int64_t count, double low, std::mt19937& random) {
  Doubles values(static_cast<size_t>(count));
  for (double& value : values) value = std::uniform_real_distribution<double>(low, 4)(random);
  return values;
}

/// Zero, infinite and NaN elements count by their kind; all others by their bits, on a CPU.
bool is_same(double got, double want, bool by_bits) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (want == 0 || got == 0 || std::isinf(want) || std::isinf(got)) return got == want;
  return by_bits ? got == want : std::abs(got - want) <= 1e-2 * std::abs(want) + 1e-3;
}

TEST_P(RowIndependence, OfWhatStandsBesideIt) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  // On a GPU the order of sums depends on where rows begin within 16 bytes.
  const bool by_bits = GetParam().device.is_cpu();
  for (const int64_t columns : {1, 3, 8, 17, 64, 65, 200, 1030}) {
    std::vector<Doubles> specials{drawn(columns, -4, random)};
    for (const double special : {-kInfinity, kInfinity, kNan}) {
      specials.push_back(drawn(columns, -4, random));
      for (int64_t i = 0; i < columns; i += 3) specials.back()[static_cast<size_t>(i)] = special;
    }
    specials.push_back(Doubles(static_cast<size_t>(columns), -kInfinity));
    const Doubles other = drawn(columns, 0, random);
    for (const Doubles& special : specials) {
      for (const RowOp& op : row_ops()) {
        std::vector<Doubles> alone;
        for (const Tensor& y : op.call(tensor(special, 1), tensor(other, 1)))
          alone.push_back(cast(y.to(Device::cpu()), DType::kFloat64).to_vector<double>());
        for (const int64_t rows : {2, 3, 8, 31, 64, 65, 130}) {
          if (rows * columns > 40000) continue;
          const auto place = static_cast<int64_t>(random() % static_cast<uint32_t>(rows));
          Doubles x = drawn(rows * columns, -4, random), y = drawn(rows * columns, 0, random);
          std::copy(special.begin(), special.end(), x.begin() + place * columns);
          std::copy(other.begin(), other.end(), y.begin() + place * columns);
          const std::vector<Tensor> results = op.call(tensor(x, rows), tensor(y, rows));
          for (size_t k = 0; k < results.size(); ++k) {
            const Doubles all = cast(results[k].to(Device::cpu()), DType::kFloat64).to_vector<double>();
            const size_t size = alone[k].size();
            for (size_t i = 0; i < size; ++i) {
              const double got = all[static_cast<size_t>(place) * size + i];
              ASSERT_TRUE(is_same(got, alone[k][i], by_bits))
                  << op.name << " of " << columns << " columns, row " << place << " of " << rows
                  << ", element " << i << " of result " << k << ": " << got << ", alone " << alone[k][i];
            }
          }
        }
      }
    }
  }
}

TEST_P(RowIndependence, SoftmaxOfMinusInfinityIsZero) {
  for (const int64_t columns : {3, 8, 64, 65, 300}) {
    for (const int64_t rows : {1, 2, 7, 8, 64, 100}) {
      Doubles x(static_cast<size_t>(rows * columns), -kInfinity), expected(x.size(), 0.0);
      for (int64_t row = 0; row < rows; ++row) {
        x[static_cast<size_t>(row * columns + row % columns)] = 2;
        expected[static_cast<size_t>(row * columns + row % columns)] = 1;
      }
      const Tensor y = softmax(tensor(x, rows), 1);
      ASSERT_EQ(cast(y.to(Device::cpu()), DType::kFloat64).to_vector<double>(), expected)
          << rows << " x " << columns;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, RowIndependence, testing::ValuesIn(float_places()), float_place_name);

}  // namespace
}  // namespace sinter::ops
