// PReLU's kernels beyond the small samples: sizes around those of packs, blocks and parts, views that are not
// aligned, hard values, and the same bits from run to run. Compared with loops in double precision; needs a
// GPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/core/op/dispatch.h>
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
  const Tensor y = prelu(x, alpha, {.layout = one.layout}), only_dx = vjp::prelu_x(dy, x, alpha, one.layout);
  const PReluGrads grads = vjp::prelu(dy, x, alpha, one.layout);
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
  const PReluGrads again = vjp::prelu(dy, x, alpha, one.layout);
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

TEST_F(PReluCuda, FewChannelsAreSharedByBlocks) {
  // Few channels of many elements: several blocks to each, with one channel to a block and with several.
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
  const std::vector<float> sums = vjp::prelu(dy, x, alpha).dalpha.to(Device::cpu()).to_vector<float>();
  for (size_t c = 0; c < sums.size(); ++c) {
    if (c == 2) {
      EXPECT_TRUE(std::isnan(sums[c]));
    } else {
      EXPECT_EQ(sums[c], -1023.0F) << "channel " << c;
    }
  }
}

/// A tensor on the GPU with canaries around it, `offset` elements behind an address that is aligned.
struct Guarded {
  Tensor room, tensor;

  Guarded(const Tensor& host, int64_t offset)
      : room(Tensor::full({host.numel() + offset + kBehind}, kCanary, host.dtype(), Device::cuda())),
        tensor(Tensor::over(room.storage(),
                            room.offset_bytes() + static_cast<size_t>(offset) * size_of(host.dtype()),
                            {host.shape(), host.dtype(), Device::cuda()})),
        offset_(offset) {
    copy_bytes(tensor.raw_data(), Device::cuda(), host.raw_data(), Device::cpu(), host.spec().bytes());
  }
  bool is_intact() const {
    const std::vector<double> values = doubles(room);
    for (int64_t i = 0; i < room.numel(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + tensor.numel();
      if (!inside && values[static_cast<size_t>(i)] != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kBehind = 16;
  static constexpr double kCanary = -97;
  int64_t offset_;
};

/// Small integers, whose sums are exact in any order.
Tensor integers(SampleMaker& maker, const Shape& shape, DType dtype) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(maker.integer(-3, 3));
  return cast(Tensor::from_values<float>(values, shape), dtype);
}

TEST_F(PReluCuda, EveryWalkIsExactForSmallIntegers) {
  int64_t runs[3] = {};
  for (int i = 0; i < 240; ++i) {
    SampleMaker maker(static_cast<uint64_t>(5000 + i), kDTypes[i % 4]);
    const DType dtype = maker.dtype();
    const bool many = maker.chance(0.2);
    const Shape shape{maker.integer(1, many ? 200 : 12), maker.integer(1, many ? 70 : 20),
                      maker.integer(1, maker.chance(0.2) ? 40 : 12), maker.integer(1, 12)};
    const Layout layout = maker.chance(0.3) ? Layout::kNHWC : Layout::kNCHW;
    const int64_t offset = maker.chance(0.3) ? maker.integer(1, 7) : 0;
    const bool wide = is_half(dtype) && maker.chance(0.5);
    const DType slopes = wide ? DType::kFloat32 : dtype;
    const Shape channels{shape[layout == Layout::kNHWC ? 3 : 1]};
    const Tensor host_x = integers(maker, shape, dtype), host_dy = integers(maker, shape, dtype),
                 host_alpha = integers(maker, channels, slopes);
    // Sums beyond float16's integers are rounded: the same on the CPU, from an exact sum.
    const PReluGrads expected = vjp::prelu(host_dy, host_x, host_alpha, layout);
    const Guarded x(host_x, offset), dy(host_dy, offset), alpha(host_alpha, offset);
    int walk = 0;
    for (const char* name : {"elements", "runs", "planes"}) {
      SCOPED_TRACE(fmt::format("case {} {} {} {} wide {} offset {} walk {}", i, shape, dtype,
                               to_string(layout), wide, offset, name));
      const ForcedKernel forced("prelu_grad", name);
      int64_t& taken = runs[walk++];
      try {
        const PReluGrads grads = vjp::prelu(dy.tensor, x.tensor, alpha.tensor, layout);
        ++taken;
        ASSERT_TRUE(same_bytes(cast(grads.dx, DType::kFloat64), cast(expected.dx, DType::kFloat64)));
        ASSERT_TRUE(same_bytes(cast(grads.dalpha, DType::kFloat64), cast(expected.dalpha, DType::kFloat64)));
      } catch (const Unsupported&) {
        // Not every walk fits every shape and alignment.
      }
    }
    ASSERT_TRUE(x.is_intact() && dy.is_intact() && alpha.is_intact()) << "inputs were written";
  }
  for (const int64_t taken : runs) EXPECT_GE(taken, 60);
}

TEST_F(PReluCuda, NoWalkTakesInWhatIsNotItsChannels) {
  // One channel is not a number everywhere, as is what lies in front of the tensors and behind them.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Shape& shape : {Shape{3, 5, 7, 7}, Shape{2, 6, 3, 1}, Shape{5, 7, 13, 11}, Shape{9, 12, 1, 1}}) {
    const Shape whole{shape[0] + 2, shape[1], shape[2], shape[3]};
    const int64_t inner = shape[2] * shape[3], image = shape[1] * inner;
    const Tensor host_x = Tensor::full(whole, nan), host_dy = Tensor::full(whole, nan);
    for (int64_t i = image; i < image * (shape[0] + 1); ++i) {
      const bool bad = i / inner % shape[1] == 2;
      host_x.data<float>()[i] = bad ? nan : -1.0F;
      host_dy.data<float>()[i] = bad ? nan : 1.0F;
    }
    const auto inside = [&](const Tensor& host) {
      const Tensor room = on_gpu(host);
      return Tensor::over(room.storage(), room.offset_bytes() + static_cast<size_t>(image) * sizeof(float),
                          {shape, DType::kFloat32, Device::cuda()});
    };
    const Tensor x = inside(host_x), dy = inside(host_dy), alpha = on_gpu(Tensor::full({shape[1]}, 0.25));
    for (const char* name : {"elements", "runs", "planes"}) {
      const ForcedKernel forced("prelu_grad", name);
      try {
        const std::vector<float> sums = vjp::prelu(dy, x, alpha).dalpha.to(Device::cpu()).to_vector<float>();
        for (int64_t c = 0; c < shape[1]; ++c) {
          if (c == 2) {
            EXPECT_TRUE(std::isnan(sums[2])) << fmt::format("{} {}", shape, name);
          } else {
            EXPECT_EQ(sums[static_cast<size_t>(c)], -static_cast<float>(shape[0] * inner))
                << fmt::format("{} {} channel {}", shape, name, c);
          }
        }
      } catch (const Unsupported&) {
      }
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
  const PReluGrads grads = vjp::prelu(dy, x, alpha);
  EXPECT_EQ(grads.dx.to(Device::cpu()).to_vector<float>(), (std::vector<float>{1, 2, 1, 1, 1, 2, 1, 2}));
  EXPECT_TRUE(std::isnan(grads.dalpha.to(Device::cpu()).to_vector<float>()[0]));
}

TEST_F(PReluCuda, OneBadChannelDoesNotSpoilOthers) {
  // Planes of 49: packs hold elements of two channels.
  const Tensor host = Tensor::full({4, 6, 7, 7}, -1.0);
  host.data<float>()[2 * 49 + 48] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = on_gpu(host), alpha = on_gpu(Tensor::full({6}, 0.25)),
               dy = on_gpu(Tensor::full({4, 6, 7, 7}, 1.0));
  const std::vector<float> sums = vjp::prelu(dy, x, alpha).dalpha.to(Device::cpu()).to_vector<float>();
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
        EXPECT_TRUE(
            same_bytes(prelu(x, alpha, {.layout = layout}), prelu(one.x, one.alpha, {.layout = layout})));
        EXPECT_TRUE(
            same_bytes(vjp::prelu_x(dy, x, alpha, layout), vjp::prelu_x(one.dy, one.x, one.alpha, layout)));
        EXPECT_TRUE(
            same_bytes(vjp::prelu(dy, x, alpha, layout).dx, vjp::prelu_x(one.dy, one.x, one.alpha, layout)));
      }
    }
  }
}

TEST_F(PReluCuda, SumsBeyondFloat16GoIntoFloat32Slopes) {
  // By planes and by elements.
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Shape shape = layout == Layout::kNCHW ? Shape{16, 8, 64, 64} : Shape{16, 64, 64, 8};
    const Tensor x = Tensor::full(shape, -1.0, DType::kFloat16, Device::cuda());
    const Tensor alpha = Tensor::full({8}, 0.25, DType::kFloat32, Device::cuda());
    const Tensor dalpha = vjp::prelu(x, x, alpha, layout).dalpha;
    EXPECT_EQ(dalpha.dtype(), DType::kFloat32);
    for (const double sum : doubles(dalpha)) EXPECT_EQ(sum, 65536.0) << to_string(layout);
  }
}

TEST_F(PReluCuda, SumsManyHalvesInFloat32) {
  // A sum of float16 terms in float16 would stop at 2048.
  const Tensor x = on_gpu(cast(Tensor::full({40000, 8}, -1.0), DType::kFloat16));
  const Tensor alpha = on_gpu(cast(Tensor::full({8}, 0.25), DType::kFloat16));
  const Tensor dalpha = vjp::prelu(x, x, alpha).dalpha;
  for (const double sum : doubles(dalpha)) EXPECT_EQ(sum, 40000.0);
}

}  // namespace
}  // namespace sinter::ops
