// Softmax, cross-entropy and gather over lines short and long, few and many, against plain loops: short rows
// take other paths on the CPU than long ones.
#include <array>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/softmax/softmax.h>

namespace sinter::ops {
namespace {

std::vector<double> draw(int64_t count, std::mt19937& random) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = std::uniform_real_distribution<double>(-4, 4)(random);
  return values;
}

void expect_near(const Tensor& y, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = cast(y, DType::kFloat64).to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
  }
}

TEST(RowShapes, SoftmaxAndCrossEntropyAgreeWithPlainLoops) {
  std::mt19937 random(static_cast<uint32_t>(std::random_device{}()));
  for (int64_t rows : {1, 2, 17, 64, 65, 200}) {
    for (int64_t classes : {1, 2, 5, 16, 33, 64, 65, 300, 700}) {
      const DType dtype =
          std::vector{DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}[random() % 4];
      SCOPED_TRACE(testing::Message() << rows << " x " << classes << " " << to_string(dtype));
      const auto tensor = [&](const std::vector<double>& values) {
        return cast(Tensor::from_values(values, {rows, classes}), dtype);
      };
      const Tensor x = tensor(draw(rows * classes, random)), dy = tensor(draw(rows * classes, random));
      const auto logits = cast(x, DType::kFloat64).to_vector<double>();
      const auto gradient = cast(dy, DType::kFloat64).to_vector<double>();
      std::vector<double> y(logits.size()), log_y(logits.size()), dx(logits.size()), losses;
      std::vector<int64_t> labels;
      for (int64_t row = 0; row < rows; ++row) {
        const auto first = static_cast<size_t>(row * classes), end = first + static_cast<size_t>(classes);
        double sum = 0;
        for (size_t i = first; i < end; ++i) sum += std::exp(logits[i]);
        for (size_t i = first; i < end; ++i) log_y[i] = logits[i] - std::log(sum), y[i] = std::exp(log_y[i]);
        labels.push_back(static_cast<int64_t>(random()) % classes);
        losses.push_back(-log_y[first + static_cast<size_t>(labels.back())]);
      }
      const double tolerance = is_half(dtype) ? 1e-2 : 1e-5;
      expect_near(softmax(x, 1), y, tolerance);
      expect_near(log_softmax(x, 1), log_y, tolerance);
      const CrossEntropyOptions options{.reduction = Reduction::kNone};
      expect_near(cross_entropy(x, Tensor::from_values(labels, {rows}), options), losses, 1e-4);

      const Tensor rounded = tensor(y), log_rounded = tensor(log_y);
      const auto y_read = cast(rounded, DType::kFloat64).to_vector<double>();
      const auto log_read = cast(log_rounded, DType::kFloat64).to_vector<double>();
      std::vector<double> log_dx(logits.size());
      for (size_t first = 0; first < logits.size(); first += static_cast<size_t>(classes)) {
        const size_t end = first + static_cast<size_t>(classes);
        double along = 0, sum = 0;
        for (size_t i = first; i < end; ++i) along += y_read[i] * gradient[i], sum += gradient[i];
        for (size_t i = first; i < end; ++i) {
          dx[i] = y_read[i] * (gradient[i] - along);
          log_dx[i] = gradient[i] - std::exp(log_read[i]) * sum;
        }
      }
      expect_near(vjp::softmax(dy, rounded, 1), dx, tolerance);
      expect_near(vjp::log_softmax(dy, log_rounded, 1), log_dx, is_half(dtype) ? 2e-2 : 1e-4);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RowShapes, GatherAgreesWithPlainLoops) {
  std::mt19937 random(static_cast<uint32_t>(std::random_device{}()));
  for (int i = 0; i < 60; ++i) {
    const auto below = [&](int64_t limit) { return 1 + static_cast<int64_t>(random()) % limit; };
    std::array<int64_t, 3> from{below(40), below(30), below(20)}, picked = from;
    const int axis = static_cast<int>(random() % 3);
    picked[static_cast<size_t>(axis)] = below(50);
    if (random() % 2 == 0) {
      for (int other = 0; other < 3; ++other) {
        if (other != axis) picked[static_cast<size_t>(other)] = below(from[static_cast<size_t>(other)]);
      }
    }
    const Shape source(from), taken(picked);
    std::vector<int64_t> indices(static_cast<size_t>(taken.numel()));
    for (int64_t& index : indices) index = static_cast<int64_t>(random()) % source[axis];
    const std::vector<double> values = draw(source.numel(), random), dy = draw(taken.numel(), random);
    std::vector<double> y, dx(values.size(), 0.0);
    for (int64_t at = 0; at < taken.numel(); ++at) {
      std::array<int64_t, 3> place{at / taken.stride(0), at / taken.stride(1) % taken[1], at % taken[2]};
      place[static_cast<size_t>(axis)] = indices[static_cast<size_t>(at)];
      const auto offset = static_cast<size_t>((place[0] * source[1] + place[1]) * source[2] + place[2]);
      y.push_back(values[offset]);
      dx[offset] += dy[static_cast<size_t>(at)];
    }
    const Tensor index = Tensor::from_values(indices, taken);
    expect_near(gather(Tensor::from_values(values, source), axis, index), y, 0);
    expect_near(vjp::gather(Tensor::from_values(dy, taken), axis, index, source), dx, 1e-12);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace sinter::ops
