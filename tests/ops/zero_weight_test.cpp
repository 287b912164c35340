// What weighs nothing has no part: a weight, a mask or a probability of 0 beside infinity or NaN, in values
// and gradients, on every device and in every dtype. Where PyTorch 2.15 gives a finite number, it is this
// one.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/grad.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/optimizer/optimizer.h>

#include "ops/float_places.h"

namespace sinter::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Doubles = std::vector<double>;

class ZeroWeight : public FloatPlaceTest {
 protected:
  Tensor tensor(const Doubles& values, const Shape& shape) const {
    return cast(Tensor::from_values(values, shape), GetParam().dtype).to(GetParam().device);
  }
  Tensor vector(const Doubles& values) const { return tensor(values, {static_cast<int64_t>(values.size())}); }
  Tensor indices(const std::vector<int64_t>& values) const {
    return Tensor::from_values(values, {static_cast<int64_t>(values.size())}).to(GetParam().device);
  }
  /// In the dtype of losses.
  Tensor wide(const Doubles& values, const Shape& shape) const {
    return cast(Tensor::from_values(values, shape), accumulate_dtype(GetParam().dtype)).to(GetParam().device);
  }
  double tolerance() const {
    switch (GetParam().dtype) {
      case DType::kFloat64:
        return 1e-14;
      case DType::kFloat32:
        return 1e-6;
      default:
        return GetParam().dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
    }
  }
  void expect(const Tensor& got, const Doubles& expected) const {
    const auto values = cast(got.to(Device::cpu()), DType::kFloat64).to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(values[i])) << "element " << i << ": " << values[i];
      } else if (expected[i] == 0 || std::isinf(expected[i])) {
        EXPECT_EQ(values[i], expected[i]) << "element " << i;
      } else {
        EXPECT_NEAR(values[i], expected[i], tolerance() * std::max(1.0, std::abs(expected[i])))
            << "element " << i;
      }
    }
  }
};

Doubles repeated(const Doubles& values, size_t times) {
  Doubles all;
  for (size_t i = 0; i < times; ++i) all.insert(all.end(), values.begin(), values.end());
  return all;
}

TEST_P(ZeroWeight, ProductsLeaveOut) {
  const Doubles a{0, 0, 0, -0.0, 2, kInfinity, kInfinity, kNan, kNan, 3};
  const Doubles b{kInfinity, -kInfinity, kNan, 5, kInfinity, 0, 2, 0, 2, 4};
  const Doubles dy{1, 1, 1, 1, 1, 1, 1, 1, 1, 0};
  const Doubles da{0, 0, 0, 5, kInfinity, 0, 2, 0, 2, 0};
  const Doubles db{0, 0, 0, 0, 2, 0, kInfinity, 0, kNan, 0};
  for (const size_t times : {size_t{1}, size_t{7}}) {
    const Tensor x = vector(repeated(a, times)), y = vector(repeated(b, times));
    const Tensor slope = vector(repeated(dy, times));
    expect(mul_no_nan(x, y), repeated({0, 0, 0, 0, kInfinity, 0, kInfinity, 0, kNan, 12}, times));
    expect(vjp::mul_no_nan(slope, x, y), repeated(da, times));
    expect(vjp::mul_no_nan(slope, y, x), repeated(db, times));
  }
  expect(mul_no_nan(vector({kInfinity, 1, kNan}), tensor({0}, {})), {0, 0, 0});
  // A slope that is not finite goes nowhere through a factor of 0.
  expect(vjp::mul_no_nan(vector({kInfinity, kNan}), vector({7, 7}), vector({0, 0})), {0, 0});
}

/// Cross-entropy of one row of three classes.
struct LossCase {
  const char* name;
  Doubles logits;
  int64_t index;  ///< of the class, unless there are probabilities
  Doubles probabilities;
  CrossEntropyOptions options;
  double dloss;
  double loss;
  Doubles dlogits, dtarget;
};

constexpr double kSmall = 0.31326168751822286, kLarge = 1.3132616875182228;  // -log of the two below
constexpr double kLikely = 0.7310585786300049, kRare = 0.2689414213699951;

std::vector<LossCase> loss_cases() {
  const Doubles gap{1, -kInfinity, 2};
  return {
      {"another class is impossible", gap, 2, {}, {}, 1, kSmall, {kRare, 0, -kRare}, {}},
      {"its class is impossible", gap, 1, {}, {}, 1, kInfinity, {kRare, -1, kLikely}, {}},
      {"ignored", gap, 1, {}, {.ignore_index = 1}, 1, 0, {0, 0, 0}, {}},
      {"ignored, smoothed", gap, 1, {}, {.label_smoothing = 0.1, .ignore_index = 1}, 1, 0, {0, 0, 0}, {}},
      {"ignored, NaN", {1, kNan, 2}, 1, {}, {.ignore_index = 1}, 1, 0, {0, 0, 0}, {}},
      {"its loss weighs nothing", gap, 1, {}, {}, 0, kInfinity, {0, 0, 0}, {}},
      {"its loss of NaN weighs nothing", {1, kNan, 2}, 0, {}, {}, 0, kNan, {0, 0, 0}, {}},
      {"all smoothing",
       gap,
       2,
       {},
       {.label_smoothing = 1},
       1,
       kInfinity,
       {kRare - 1. / 3, -1. / 3, kLikely - 1. / 3},
       {}},
      {"probability 0", gap, 0, {1, 0, 0}, {}, 1, kLarge, {kRare - 1, 0, kLikely}, {kLarge, 0, kSmall}},
      {"probabilities",
       gap,
       0,
       {.5, 0, .5},
       {},
       2,
       (kLarge + kSmall) / 2,
       {2 * (kRare - .5), 0, 2 * (kLikely - .5)},
       {2 * kLarge, 0, 2 * kSmall}},
      {"no probability at all", gap, 0, {0, 0, 0}, {}, 1, 0, {0, 0, 0}, {kLarge, 0, kSmall}},
      {"probability on it",
       gap,
       0,
       {0, 1, 0},
       {},
       1,
       kInfinity,
       {kRare, -1, kLikely},
       {kLarge, kInfinity, kSmall}},
      {"probabilities weigh nothing", gap, 0, {0, 1, 0}, {}, 0, kInfinity, {0, 0, 0}, {0, 0, 0}},
      {"probabilities do not count",
       gap,
       0,
       {1, 0, 0},
       {.label_smoothing = 1},
       1,
       kInfinity,
       {kRare - 1. / 3, -1. / 3, kLikely - 1. / 3},
       {0, 0, 0}},
  };
}

TEST_P(ZeroWeight, CrossEntropyLeavesOut) {
  for (LossCase loss_case : loss_cases()) {
    // Smoothing counts classes; otherwise impossible ones change nothing, and rows of every length can be
    // had, and so every kernel.
    const bool is_smooth = loss_case.options.label_smoothing > 0;
    for (const int64_t classes :
         is_smooth ? std::vector<int64_t>{3} : std::vector<int64_t>{3, 64, 301, 5000}) {
      for (const int64_t rows : {1, 3, 70}) {
        SCOPED_TRACE(testing::Message() << loss_case.name << ", " << rows << " x " << classes);
        const auto padded = [&](const Doubles& values, double fill) {
          Doubles row = values;
          row.resize(static_cast<size_t>(classes), fill);
          return repeated(row, static_cast<size_t>(rows));
        };
        const auto count = static_cast<size_t>(rows);
        const bool has_indices = loss_case.probabilities.empty();
        const Tensor logits = tensor(padded(loss_case.logits, -kInfinity), {rows, classes});
        const Tensor target = has_indices ? indices(std::vector<int64_t>(count, loss_case.index))
                                          : tensor(padded(loss_case.probabilities, 0), {rows, classes});
        CrossEntropyOptions options = loss_case.options;
        options.reduction = Reduction::kNone;
        const OpRegistry& registry = OpRegistry::instance();
        const std::vector<Tensor> forward = call(*registry.find("cross_entropy"), {logits, target}, options);
        expect(forward[0], Doubles(count, loss_case.loss));
        const Tensor dloss = wide(Doubles(count, loss_case.dloss), {rows});
        const CrossEntropyGrad grad =
            vjp::cross_entropy(dloss, logits, target, forward[1], options, !has_indices);
        expect(grad.logits, padded(loss_case.dlogits, 0));
        if (!has_indices) expect(grad.target, padded(loss_case.dtarget, 0));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(ZeroWeight, CrossEntropyLeavesOutWhereItsGradientHasOne) {
  const Tensor logits = tensor({1, 2, 3, kInfinity, 5, kNan}, {2, 3}).set_requires_grad(true);
  const Tensor loss = cross_entropy(logits, indices({0, -100}));
  const Tensor fused = grad(loss, logits, {.retain_graph = true}),
               composed = grad(loss, logits, {.create_graph = true});
  const auto values = cast(fused.to(Device::cpu()), DType::kFloat64).to_vector<double>();
  EXPECT_EQ(Doubles(values.begin() + 3, values.end()), Doubles(3, 0.0));
  expect(composed.detach(), values);
}

TEST_P(ZeroWeight, AShardOfImpossibleClassesAddsNothing) {
  for (const int64_t classes : {3, 64, 301, 5000}) {
    for (const int64_t rows : {3, 70}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << classes);
      const auto count = static_cast<size_t>(rows);
      const Tensor none = tensor(Doubles(static_cast<size_t>(rows * classes), -kInfinity), {rows, classes});
      const Op& sums = *OpRegistry::instance().find("shard_log_sums");
      std::vector<Tensor> own = call(sums, {none, indices(std::vector<int64_t>(count, -1))}, {});
      expect(own[0], Doubles(count, 0));
      expect(own[1], Doubles(count, -kInfinity));
      own = call(sums, {none, indices(std::vector<int64_t>(count, 2))}, {});
      expect(own[0], Doubles(count, -kInfinity));
    }
  }
}

TEST_P(ZeroWeight, DropoutLeavesOut) {
  constexpr int64_t kCount = 1001;
  const Tensor key = Tensor::from_values<int64_t>({5, 0}, {2}).to(GetParam().device);
  const Tensor ones = tensor(Doubles(kCount, 1), {kCount});
  Doubles expected =
      cast(update::dropout_with_key(ones, key, 0.5).to(Device::cpu()), DType::kFloat64).to_vector<double>();
  for (double& value : expected) value = value == 0 ? 0 : kInfinity;
  EXPECT_GT(std::count(expected.begin(), expected.end(), 0.0), 400);
  expect(update::dropout_with_key(tensor(Doubles(kCount, kInfinity), {kCount}), key, 0.5), expected);
}

TEST_P(ZeroWeight, RunningStatisticsLeaveOut) {
  const auto moved = [&](const Doubles& x, double momentum) {
    const Tensor mean = wide({kInfinity, 7}, {2}), variance = wide({kInfinity, 9}, {2});
    (void)batch_norm(tensor(x, {2, 2}), {}, {}, mean, variance, {.momentum = momentum});
    expect(mean, momentum == 0 ? Doubles{kInfinity, 7} : Doubles{4, 7});
    expect(variance, momentum == 0 ? Doubles{kInfinity, 9} : Doubles{2, 8});
  };
  moved({3, 5, 5, 9}, 1);
  moved({3, kInfinity, 5, kNan}, 0);
}

TEST_P(ZeroWeight, NoWeightDecayNoProductWithTheParameter) {
  if (is_half(GetParam().dtype)) GTEST_SKIP() << "parameters are float32";
  const Tensor parameter = vector({kInfinity, 1}), gradient = vector({1, 1});
  const Tensor rate = Tensor::scalar(0.5, GetParam().device);
  update::sgd_step(std::vector<UpdateSlot>{{.parameter = parameter, .gradient = gradient}}, rate, {});
  expect(parameter, {kInfinity, 0.5});
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ZeroWeight, testing::ValuesIn(float_places()), float_place_name);

}  // namespace
}  // namespace sinter::ops
