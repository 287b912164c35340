// PReLU's kernels beyond the small samples: sizes around those of packs, blocks and parts, views that are not
// aligned, hard values, and the same bits from run to run. Compared with loops in double precision; needs a
// GPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/prelu/prelu.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class PReluCuda : public GpuTest {};

std::vector<double> doubles(const Tensor& tensor) {
  return cast(tensor.to(Device::cpu()), DType::kFloat64).to_vector<double>();
}

/// A call with its expected results, by plain loops.
struct Case {
  Tensor x, alpha, dy;
  Layout layout = Layout::kNCHW;
  std::vector<double> y, dx, dalpha, magnitudes;  ///< the last: of dalpha's terms

  /// Slopes are of the maker's dtype or, if `wide`, of float32 beside 16 bits.
  Case(SampleMaker& maker, const Shape& shape, Layout order, bool one_slope, bool wide = false)
      : layout(order) {
    const bool last = shape.rank() <= 2 || layout == Layout::kNHWC;
    const int64_t channels = shape[last ? -1 : 1];
    x = maker.tensor(shape);
    dy = maker.tensor(shape);
    alpha = maker.tensor({one_slope ? 1 : channels}, -0.5, 0.5);
    if (wide) {
      SampleMaker single(maker.generator().word(), DType::kFloat32);
      alpha = single.tensor(alpha.shape(), -0.5, 0.5);
    }
    const int64_t inner = last ? 1 : shape.count(2, shape.rank());
    expect(one_slope ? 1 : channels, inner);
  }

  void expect(int64_t channels, int64_t inner) {
    const std::vector<double> xs = doubles(x), slopes = doubles(alpha), dys = doubles(dy);
    y = xs, dx = dys;
    dalpha.assign(slopes.size(), 0.0);
    magnitudes = dalpha;
    for (size_t i = 0; i < xs.size(); ++i) {
      if (xs[i] > 0) continue;
      const size_t channel = i / static_cast<size_t>(inner) % static_cast<size_t>(channels);
      y[i] *= slopes[channel];
      dx[i] *= slopes[channel];
      dalpha[channel] += xs[i] * dys[i];
      magnitudes[channel] += std::abs(xs[i] * dys[i]);
    }
  }
};

void expect_elements(const Tensor& got, const std::vector<double>& want, const char* what) {
  const std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), want.size());
  const double tolerance = default_tolerance(got.dtype());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_LE(std::abs(values[i] - want[i]), tolerance * (1.0 + std::abs(want[i])))
        << what << " element " << i;
  }
}

bool same_bytes(const Tensor& first, const Tensor& second) {
  const Tensor a = first.to(Device::cpu()), b = second.to(Device::cpu());
  const auto *left = static_cast<const std::byte*>(a.raw_data()),
             *right = static_cast<const std::byte*>(b.raw_data());
  return std::equal(left, left + a.spec().bytes(), right);
}

void check(const Case& one, int64_t offset) {
  const Tensor x = on_gpu(one.x, offset), alpha = on_gpu(one.alpha, offset), dy = on_gpu(one.dy, offset);
  const Tensor y = prelu(x, alpha, one.layout), only_dx = prelu_grad_x(x, alpha, dy, one.layout);
  const PReluGrads grads = prelu_grad(x, alpha, dy, one.layout);
  expect_elements(y, one.y, "y");
  expect_elements(only_dx, one.dx, "dx alone");
  expect_elements(grads.dx, one.dx, "dx");
  const std::vector<double> dalpha = doubles(grads.dalpha);
  ASSERT_EQ(dalpha.size(), one.dalpha.size());
  for (size_t c = 0; c < dalpha.size(); ++c) {
    // Sums in float32 and one rounding of the result: relative to the terms and to the sum.
    const double tolerance =
        default_tolerance(grads.dalpha.dtype()) * std::abs(one.dalpha[c]) + 1e-5 * one.magnitudes[c] + 1e-12;
    ASSERT_LE(std::abs(dalpha[c] - one.dalpha[c]), tolerance) << "dalpha of channel " << c;
  }
  const PReluGrads again = prelu_grad(x, alpha, dy, one.layout);
  ASSERT_TRUE(same_bytes(again.dalpha, grads.dalpha)) << "dalpha differs from run to run";
  ASSERT_TRUE(same_bytes(again.dx, grads.dx));
}

TEST_F(PReluCuda, AgreesWithLoopsForEdgeSizes) {
  const Shape shapes[] = {{1},
                          {7},
                          {33, 1},
                          {5, 8},
                          {300, 64},
                          {4097, 24},
                          {3, 5, 1, 1},
                          {2, 512, 7, 7},
                          {96, 3, 5, 5},
                          {13, 7, 3, 3},
                          {4, 64, 14, 14},
                          {2, 3, 112, 112},
                          {1, 2, 257, 129},
                          {64, 1, 31, 17},
                          {2, 1000, 2, 1},
                          {700, 6, 1, 3}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(21, dtype);
    for (const Shape& shape : shapes) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
        for (const bool one_slope : {false, true}) {
          for (const bool wide : {false, true}) {
            if (wide && !is_half(dtype)) continue;
            const Case one(maker, shape, layout, one_slope, wide);
            for (const int64_t offset : {0, 1}) {
              SCOPED_TRACE(fmt::format("{} {} {} one slope {} wide {} offset {}", shape, dtype,
                                       to_string(layout), one_slope, wide, offset));
              check(one, offset);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_F(PReluCuda, AgreesWithLoopsForRandomShapes) {
  for (int i = 0; i < 300; ++i) {
    SampleMaker maker(static_cast<uint64_t>(1000 + i), kDTypes[i % 4]);
    const int rank = static_cast<int>(maker.integer(1, 4));
    Shape shape;
    for (int axis = 0; axis < rank; ++axis) {
      shape = shape.inserted(axis, maker.chance(0.02) ? 0 : maker.integer(1, maker.chance(0.3) ? 70 : 12));
    }
    const Layout layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
    SCOPED_TRACE(fmt::format("case {} {} {} {}", i, shape, maker.dtype(), to_string(layout)));
    const bool one_slope = maker.chance(0.2), wide = is_half(maker.dtype()) && maker.chance(0.5);
    check(Case(maker, shape, layout, one_slope, wide), maker.integer(0, 1));
    if (HasFatalFailure()) return;
  }
}

TEST_F(PReluCuda, BlocksOfAClusterAddUpBetweenThemselves) {
  // Few channels of many elements: several blocks to each, with one channel to a cluster and with several.
  for (const Shape& shape : {Shape{16, 8, 64, 64}, Shape{64, 256, 7, 7}, Shape{33, 20, 30, 29}}) {
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(fmt::format("{} {}", shape, dtype));
      SampleMaker maker(22, dtype);
      check(Case(maker, shape, Layout::kNCHW, false), 0);
      if (HasFatalFailure()) return;
      check(Case(maker, shape, Layout::kNCHW, false, is_half(dtype)), 0);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(PReluCuda, PlanesAndRowsOfAnyLengthAgreeWithLoops) {
  // Odd planes, few and many, to parts of channels and to whole ones; few rows; channels without much work;
  // tiles that do not fill whole rows.
  const Shape shapes[] = {{1, 97, 197, 197}, {33, 67, 13, 11}, {1, 13, 97, 101}, {3, 5, 64, 33},
                          {1, 700, 9, 9},    {2, 40001, 3, 3}, {3, 10007},       {1, 1000, 16, 17},
                          {8332, 67},        {20, 4, 41, 128}, {5000, 3},        {1, 8000, 7, 7}};
  for (const DType dtype : kDTypes) {
    SampleMaker maker(24, dtype);
    for (const Shape& shape : shapes) {
      for (const bool wide : {false, true}) {
        if (wide && !is_half(dtype)) continue;
        const Case one(maker, shape, Layout::kNCHW, false, wide);
        for (const int64_t offset : {0, 1}) {
          SCOPED_TRACE(fmt::format("{} {} wide {} offset {}", shape, dtype, wide, offset));
          check(one, offset);
          if (HasFatalFailure()) return;
        }
      }
    }
    check(Case(maker, {7, 11, 93, 91}, Layout::kNCHW, true), 0);
    if (HasFatalFailure()) return;
  }
}

TEST_F(PReluCuda, APlanesNeighboursDoNotSpoilIt) {
  // Odd planes share packs: what is not a number in one does not reach the other's sum.
  const Tensor host = Tensor::full({1, 6, 31, 33}, -1.0);
  host.data<float>()[2 * 1023] = std::numeric_limits<float>::infinity();
  host.data<float>()[3 * 1023 - 1] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = on_gpu(host), alpha = on_gpu(Tensor::full({6}, 0.25)),
               dy = on_gpu(Tensor::full({1, 6, 31, 33}, 1.0));
  const std::vector<float> sums = prelu_grad(x, alpha, dy).dalpha.to(Device::cpu()).to_vector<float>();
  for (size_t c = 0; c < sums.size(); ++c) {
    if (c == 2) {
      EXPECT_TRUE(std::isnan(sums[c]));
    } else {
      EXPECT_EQ(sums[c], -1023.0F) << "channel " << c;
    }
  }
}

TEST_F(PReluCuda, KeepsHardValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x =
      on_gpu(Tensor::from_values<float>({nan, inf, -inf, -0.0F, 0.0F, 1e-45F, -1e-45F, 3e38F}, Shape{8, 1}));
  const Tensor alpha = on_gpu(Tensor::from_values<float>({0.5F}, Shape{1}));
  const Tensor dy = on_gpu(Tensor::full({8, 1}, 2.0));
  const std::vector<float> y = prelu(x, alpha).to(Device::cpu()).to_vector<float>();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], inf);
  EXPECT_EQ(y[2], -inf);
  EXPECT_TRUE(std::signbit(y[3]));
  EXPECT_EQ(y[4], 0.0F);
  EXPECT_EQ(y[5], 1e-45F);
  EXPECT_EQ(y[7], 3e38F);
  const PReluGrads grads = prelu_grad(x, alpha, dy);
  EXPECT_EQ(grads.dx.to(Device::cpu()).to_vector<float>(), (std::vector<float>{1, 2, 1, 1, 1, 2, 1, 2}));
  EXPECT_TRUE(std::isnan(grads.dalpha.to(Device::cpu()).to_vector<float>()[0]));
}

TEST_F(PReluCuda, OneBadChannelDoesNotSpoilOthers) {
  // Planes of 49: packs hold elements of two channels.
  const Tensor host = Tensor::full({4, 6, 7, 7}, -1.0);
  host.data<float>()[2 * 49 + 48] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = on_gpu(host), alpha = on_gpu(Tensor::full({6}, 0.25)),
               dy = on_gpu(Tensor::full({4, 6, 7, 7}, 1.0));
  const std::vector<float> sums = prelu_grad(x, alpha, dy).dalpha.to(Device::cpu()).to_vector<float>();
  for (size_t c = 0; c < sums.size(); ++c) {
    if (c == 2) {
      EXPECT_TRUE(std::isnan(sums[c]));
    } else {
      EXPECT_EQ(sums[c], -196.0F) << "channel " << c;
    }
  }
}

TEST_F(PReluCuda, AgreesWithTheCpuBitForBitWithFloat32SlopesBesideHalves) {
  // Products are rounded once, from slopes that are not; in planes, channels last and behind whole packs.
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Shape& shape : {Shape{5, 16, 9, 7}, Shape{3, 9, 4, 16}, Shape{37, 24}, Shape{513}}) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
        SCOPED_TRACE(fmt::format("{} {} {}", shape, dtype, to_string(layout)));
        SampleMaker maker(23, dtype);
        const Case one(maker, shape, layout, false, true);
        const Tensor x = on_gpu(one.x), alpha = on_gpu(one.alpha), dy = on_gpu(one.dy);
        EXPECT_TRUE(same_bytes(prelu(x, alpha, layout), prelu(one.x, one.alpha, layout)));
        EXPECT_TRUE(
            same_bytes(prelu_grad_x(x, alpha, dy, layout), prelu_grad_x(one.x, one.alpha, one.dy, layout)));
        EXPECT_TRUE(
            same_bytes(prelu_grad(x, alpha, dy, layout).dx, prelu_grad_x(one.x, one.alpha, one.dy, layout)));
      }
    }
  }
}

TEST_F(PReluCuda, SumsBeyondFloat16GoIntoFloat32Slopes) {
  // With clusters of blocks, and with parts.
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Shape shape = layout == Layout::kNCHW ? Shape{16, 8, 64, 64} : Shape{16, 64, 64, 8};
    const Tensor x = Tensor::full(shape, -1.0, DType::kFloat16, Device::cuda());
    const Tensor alpha = Tensor::full({8}, 0.25, DType::kFloat32, Device::cuda());
    const Tensor dalpha = prelu_grad(x, alpha, x, layout).dalpha;
    EXPECT_EQ(dalpha.dtype(), DType::kFloat32);
    for (const double sum : doubles(dalpha)) EXPECT_EQ(sum, 65536.0) << to_string(layout);
  }
}

TEST_F(PReluCuda, SumsManyHalvesInFloat32) {
  // A sum of float16 terms in float16 would stop at 2048.
  const Tensor x = on_gpu(cast(Tensor::full({40000, 8}, -1.0), DType::kFloat16));
  const Tensor alpha = on_gpu(cast(Tensor::full({8}, 0.25), DType::kFloat16));
  const Tensor dalpha = prelu_grad(x, alpha, x).dalpha;
  for (const double sum : doubles(dalpha)) EXPECT_EQ(sum, 40000.0);
}

}  // namespace
}  // namespace sinter::ops
