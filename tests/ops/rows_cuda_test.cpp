// Ops over rows that begin anywhere, broadcasts whose packs straddle rows, and what moves odd rows: against
// the CPU, for every number of threads that holds a row, on views that are not aligned. Needs a GPU.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/metrics/metrics.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/softmax/softmax.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class RowsOnCuda : public GpuTest {
 protected:
  /// Multiples of 1/4 in [-4, 4), with many equal ones: exact in every dtype.
  Tensor draw(const Shape& shape, DType dtype) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& value : values) value = static_cast<float>(generator_.below(32)) / 4.0f - 4.0f;
    return cast(Tensor::from_values(values, shape), dtype);
  }
  Tensor draw_labels(int64_t count, int64_t classes) {
    std::vector<int64_t> labels(static_cast<size_t>(count));
    for (int64_t& label : labels)
      label = static_cast<int64_t>(generator_.below(static_cast<uint64_t>(classes)));
    return Tensor::from_values(labels, Shape{count});
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(generator_.below(static_cast<uint64_t>(bound)));
  }

  /// `slack`: of the largest expected value, or of `terms`, what it is a difference of; 0 for what is only
  /// moved or chosen.
  static void expect_near(const Tensor& got, const Tensor& expected, double slack, const char* what,
                          double terms = 0.0) {
    ASSERT_EQ(got.shape(), expected.shape()) << what;
    const auto values = as_double(got).to_vector<double>(), wanted = as_double(expected).to_vector<double>();
    double most = terms;
    for (const double value : wanted) most = std::max(most, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], wanted[i], slack * most)
          << what << " at " << i << " of " << to_string(got.spec());
    }
  }
  static double slack_of(DType dtype) {
    if (dtype == DType::kFloat16) return 4e-3;
    if (dtype == DType::kBFloat16) return 3e-2;
    return dtype == DType::kFloat32 ? 2e-5 : 1e-12;
  }

  void check_maps(const Shape& shape, DType dtype, int64_t offset) {
    const Tensor x = draw(shape, dtype), dy = draw(shape, dtype);
    const Tensor x_there = on_gpu(x, offset), dy_there = on_gpu(dy, offset);
    const double slack = slack_of(dtype);
    expect_near(softmax(x_there), softmax(x), slack, "softmax");
    expect_near(log_softmax(x_there), log_softmax(x), slack, "log_softmax");
    const Tensor y = softmax(x);
    expect_near(vjp::softmax(dy_there, on_gpu(y, offset)), vjp::softmax(dy, y), slack, "softmax_grad");
    const Tensor log_y = log_softmax(x);
    expect_near(vjp::log_softmax(dy_there, on_gpu(log_y, offset)), vjp::log_softmax(dy, log_y), slack,
                "log_softmax_grad");
    expect_near(l2_normalize(x_there), l2_normalize(x), slack, "l2_normalize");
  }

  void check_loss(const Shape& shape, DType dtype, int64_t offset) {
    const double slack = slack_of(dtype);
    const Tensor x = draw(shape, dtype), labels = draw_labels(shape[0], shape[1]),
                 shares = softmax(draw(shape, dtype));
    for (const double smoothing : {0.0, 0.1}) {
      for (const Reduction reduction : {Reduction::kNone, Reduction::kMean}) {
        const CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
        for (const bool indices : {true, false}) {
          const auto loss_and_gradient = [&](Tensor logits, const Tensor& target) {
            logits.set_requires_grad(true);
            const Tensor loss = cross_entropy(logits, target, options);
            backward(sum(loss));
            return std::pair(loss, logits.grad());
          };
          const auto [loss, gradient] = loss_and_gradient(x.clone(), indices ? labels : shares);
          const auto there = indices ? labels.to(Device::cuda()) : on_gpu(shares, offset);
          const auto [loss_there, gradient_there] = loss_and_gradient(on_gpu(x, offset), there);
          expect_near(loss_there, loss, slack, "cross_entropy");
          // Of one class it is 1 - 1.
          const double terms = reduction == Reduction::kMean ? 1.0 / static_cast<double>(x.shape()[0]) : 1.0;
          expect_near(gradient_there, gradient, slack, "cross_entropy_grad", terms);
        }
      }
    }
  }

 private:
  Generator generator_{17};
};

constexpr int64_t kColumns[] = {1,    3,    8,    31,   100,  257,  1000, 1001, 1017,  1018,  1024, 1025,
                                2041, 2049, 4089, 4096, 4097, 4999, 8191, 8185, 16377, 16384, 16385};

TEST_F(RowsOnCuda, MapsOfRowsAgreeWithTheCpu) {
  const NoGrad no_grad;
  for (const int64_t columns : kColumns) {
    for (const DType dtype : kDTypes) {
      check_maps({columns <= 1025 ? 37 : 5, columns}, dtype, 0);
      check_maps({3, columns}, dtype, 1 + below(7));
    }
  }
}

TEST_F(RowsOnCuda, TensorsThatBeginDifferentlyAgreeWithTheCpu) {
  const NoGrad no_grad;
  const Tensor y = draw({21, 333}, DType::kFloat32), dy = draw({21, 333}, DType::kFloat32);
  expect_near(vjp::softmax(on_gpu(dy, 2), on_gpu(y, 1)), vjp::softmax(dy, y), 2e-5, "softmax_grad");
}

TEST_F(RowsOnCuda, LossesAgreeWithTheCpu) {
  for (const int64_t columns : {1, 10, 1001, 1024, 1025, 4097, 16385}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
      check_loss({columns <= 1025 ? 19 : 3, columns}, dtype, columns % 3);
    }
  }
}

TEST_F(RowsOnCuda, InfiniteAndMissingValuesStayTheirRowsOwn) {
  const NoGrad no_grad;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t columns : {33, 1001, 4999}) {
    Tensor x = draw({7, columns}, DType::kFloat32);
    auto* values = static_cast<float*>(x.raw_data());
    for (int64_t i = 0; i < columns; ++i) values[columns + i] = -infinity;
    values[2 * columns + 5] = infinity;
    values[3 * columns + columns - 1] = std::numeric_limits<float>::quiet_NaN();
    values[4 * columns] = -infinity;
    const auto got = softmax(on_gpu(x)).to(Device::cpu()).to_vector<float>(),
               wanted = softmax(x).to_vector<float>();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::isnan(wanted[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_NEAR(got[i], wanted[i], 1e-5) << i;
      }
    }
  }
}

TEST_F(RowsOnCuda, ReductionsAndPlacesAgreeWithTheCpu) {
  const NoGrad no_grad;
  for (const int64_t columns : {60, 129, 1001, 1024, 4999, 16384, 16389}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
      for (const int64_t offset : {0, 1}) {
        const Tensor x = draw({515, columns}, dtype), there = on_gpu(x, offset);
        SCOPED_TRACE(to_string(x.spec()));
        expect_near(sum(there, {1}), sum(x, {1}), slack_of(dtype), "sum");
        expect_near(max(there, {-1}), max(x, {-1}), 0, "max");
        expect_near(min(there, {-1}), min(x, {-1}), 0, "min");
        EXPECT_EQ(argmax(there, 1).to(Device::cpu()).to_vector<int64_t>(), argmax(x, 1).to_vector<int64_t>());
        const Tensor dy = draw({515}, dtype);
        expect_near(vjp::max(dy.to(Device::cuda()), there, {.axes = {1}}), vjp::max(dy, x, {.axes = {1}}), 0,
                    "max_grad");
      }
    }
  }
}

TEST_F(RowsOnCuda, ThePlaceIsThatOfTheFirstExtremeOrOfTheFirstNan) {
  const NoGrad no_grad;
  constexpr int64_t rows = 600, columns = 1001;
  std::vector<float> values(static_cast<size_t>(rows * columns), -std::numeric_limits<float>::infinity());
  std::vector<int64_t> expected(static_cast<size_t>(rows), 0);  // the first of equals
  for (int64_t row = 1; row < rows; ++row) {
    const int64_t first = below(columns);
    const float value = row % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(row);
    values[static_cast<size_t>(row * columns + first)] = value;
    values[static_cast<size_t>(row * columns + first + below(columns - first))] = value;
    expected[static_cast<size_t>(row)] = first;
  }
  const Tensor x = Tensor::from_values(values, Shape{rows, columns});
  EXPECT_EQ(argmax(on_gpu(x, 3), 1).to(Device::cpu()).to_vector<int64_t>(), expected);
}

TEST_F(RowsOnCuda, RanksAreCountedAsOnTheCpu) {
  const NoGrad no_grad;
  for (const int64_t columns : {5, 1001, 4999, 16389}) {
    const Tensor x = draw({64, columns}, DType::kFloat16), labels = draw_labels(64, columns);
    const Tensor counts = Tensor::from_values(std::vector<int64_t>(6, 0), Shape{6});
    const Tensor there = counts.to(Device::cuda());
    update::count_ranks_(counts, x, labels);
    update::count_ranks_(there, on_gpu(x, 3), labels.to(Device::cuda()));
    EXPECT_EQ(there.to(Device::cpu()).to_vector<int64_t>(), counts.to_vector<int64_t>());
  }
}

TEST_F(RowsOnCuda, RanksAmongInfinitiesAndNansAreThoseOfTheCpu) {
  const NoGrad no_grad;
  constexpr int64_t rows = 96;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> hard = {-infinity, infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  for (const int64_t columns : {3, 77, 1001, 4999}) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = hard[static_cast<size_t>(below(4))];
    const Tensor x = Tensor::from_values(values, Shape{rows, columns}), labels = draw_labels(rows, columns);
    // As many counters as places, so that none is folded into the last one.
    const Tensor counts =
        Tensor::from_values(std::vector<int64_t>(static_cast<size_t>(columns), 0), Shape{columns});
    for (const int64_t offset : {0, 1, 3}) {
      const Tensor wanted = counts.clone(), there = counts.to(Device::cuda());
      update::count_ranks_(wanted, x, labels);
      update::count_ranks_(there, on_gpu(x, offset), labels.to(Device::cuda()));
      EXPECT_EQ(there.to(Device::cpu()).to_vector<int64_t>(), wanted.to_vector<int64_t>()) << columns;
    }
  }
}

TEST_F(RowsOnCuda, BroadcastsOfOddShapesAgreeWithTheCpu) {
  const NoGrad no_grad;
  const std::vector<std::pair<Shape, Shape>> cases = {{{4001}, {4001}},
                                                      {{37, 101}, {37, 101}},
                                                      {{37, 101}, {101}},
                                                      {{37, 1}, {1, 101}},
                                                      {{5, 1, 7}, {3, 1}},
                                                      {{1}, {333}},
                                                      {{2, 3, 5, 7}, {5, 1}},
                                                      {{129, 3}, {3}},
                                                      {{129, 1}, {129, 3}},
                                                      {{}, {17}},
                                                      {{64, 128}, {128}},
                                                      {{3, 1, 16}, {1, 9, 1}},
                                                      {{1000, 16}, {16}},
                                                      {{2, 2}, {2, 2}},
                                                      {{1}, {1}}};
  for (const auto& [a_shape, b_shape] : cases) {
    for (const DType dtype : kDTypes) {
      for (const int64_t offset : {0, 1}) {
        const Tensor a = draw(a_shape, dtype), b = draw(b_shape, dtype);
        const Tensor a_there = on_gpu(a, offset), b_there = on_gpu(b, offset * below(5));
        expect_near(add(a_there, b_there), add(a, b), 0, "add");
        expect_near(less(a_there, b_there), less(a, b), 0, "less");
        const Tensor dy = draw(broadcast_shapes(a_shape, b_shape, "test"), dtype);
        if (a_shape == b_shape) {
          expect_near(vjp::maximum(on_gpu(dy, offset), a_there, b_there), vjp::maximum(dy, a, b), 0,
                      "maximum_grad");
        }
        expect_near(broadcast_to(a_there, dy.shape()), broadcast_to(a, dy.shape()), 0, "broadcast_to");
      }
    }
  }
  for (const DType dtype : kDTypes) {
    for (const int64_t columns : {1, 3, 16, 101, 4999}) {
      const Tensor u = draw({3, 13}, dtype), v = draw({columns}, dtype);
      expect_near(outer(on_gpu(u, 1), on_gpu(v, 1)), outer(u, v), slack_of(dtype), "outer");
    }
  }
}

TEST_F(RowsOnCuda, OddRowsMoveAsOnTheCpu) {
  const NoGrad no_grad;
  for (const DType dtype : kDTypes) {
    for (int round = 0; round < 60; ++round) {
      const int64_t rows = 1 + below(20), offset = below(3);
      std::vector<Tensor> parts, there;
      for (int64_t i = 0; i < 1 + below(5); ++i) {
        parts.push_back(draw({rows, below(round % 4 == 0 ? 300 : 40), 1 + round % 3}, dtype));
        there.push_back(on_gpu(parts.back(), offset));
      }
      expect_near(concat(there, 1), concat(parts, 1), 0, "concat");
      const Tensor x = draw({2 + below(4), 5 + below(90), 1 + below(5)}, dtype), x_there = on_gpu(x, offset);
      std::vector<std::array<int64_t, 2>> padding(3, {0, 0});
      padding[static_cast<size_t>(below(2))] = {below(2), below(2)};
      padding[1] = {below(5), below(5)};
      if (round % 2 == 0) padding[2] = {0, 0};
      if (round % 5 == 0) padding[2] = {x.shape()[2] - 1, 0};
      for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate}) {
        expect_near(pad(x_there, padding, {.mode = mode, .value = 1.5}),
                    pad(x, padding, {.mode = mode, .value = 1.5}), 0, "pad");
      }
      const Tensor dy = draw(pad(x, padding).shape(), dtype);
      expect_near(vjp::pad(on_gpu(dy, offset), padding), vjp::pad(dy, padding), 0, "pad_grad");
    }
  }
}

TEST_F(RowsOnCuda, OneHotRowsOfAnyLength) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kUInt8, DType::kInt64}) {
    for (const int64_t classes : {1, 2, 5, 16, 33, 1001}) {
      const Tensor labels = draw_labels(101, classes);
      expect_near(one_hot(labels.to(Device::cuda()), classes, dtype), one_hot(labels, classes, dtype), 0,
                  "one_hot");
    }
  }
}

}  // namespace
}  // namespace sinter::ops
