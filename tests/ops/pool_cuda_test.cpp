// Pooling's kernels for the usual windows: planes around the sizes of packs and strips, views that are not
// aligned, hard values, indices that name nothing. Compared with plain loops; needs a GPU.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/pool/pool.h>

#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

struct Problem {
  Layout layout = Layout::kNCHW;
  int64_t batch = 1, channels = 1, height = 1, width = 1, out_height = 0, out_width = 0;
  PoolAttributes options;

  Shape shape(int64_t rows, int64_t columns) const {
    return layout == Layout::kNCHW ? Shape{batch, channels, rows, columns}
                                   : Shape{batch, rows, columns, channels};
  }
  size_t at(int64_t n, int64_t c, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    const int64_t pixel = row * columns + column;
    return static_cast<size_t>(layout == Layout::kNCHW ? (n * channels + c) * rows * columns + pixel
                                                       : (n * rows * columns + pixel) * channels + c);
  }
  /// visit(element of the pooled images, the first element's row and column of its window, n, c)
  template <class Visit>
  void each_window(Visit visit) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t oy = 0; oy < out_height; ++oy) {
          for (int64_t ox = 0; ox < out_width; ++ox) {
            visit(at(n, c, oy, ox, out_height, out_width), oy * options.stride[0] - options.padding[0],
                  ox * options.stride[1] - options.padding[1], n, c);
          }
        }
      }
    }
  }
  bool is_pixel(int64_t row, int64_t column) const {
    return row >= 0 && row < height && column >= 0 && column < width;
  }
};

struct Maxima {
  std::vector<double> values;
  std::vector<uint8_t> places;
};

Maxima expected_maxima(const Problem& problem, const std::vector<double>& x) {
  const auto count = static_cast<size_t>(problem.shape(problem.out_height, problem.out_width).numel());
  Maxima maxima{std::vector<double>(count), std::vector<uint8_t>(count)};
  const int64_t kernel = problem.options.kernel[0];
  problem.each_window([&](size_t out, int64_t top, int64_t left, int64_t n, int64_t c) {
    bool first = true;
    for (int64_t place = 0; place < kernel * kernel; ++place) {
      const int64_t row = top + place / kernel, column = left + place % kernel;
      if (!problem.is_pixel(row, column)) continue;
      const double value = x[problem.at(n, c, row, column, problem.height, problem.width)];
      if (!first && !(value > maxima.values[out]) && !std::isnan(value)) continue;
      first = false;
      maxima.values[out] = value;
      maxima.places[out] = static_cast<uint8_t>(place);
    }
  });
  return maxima;
}

std::vector<double> expected_gradient(const Problem& problem, const std::vector<double>& dy,
                                      const std::vector<uint8_t>& places) {
  std::vector<double> dx(static_cast<size_t>(problem.shape(problem.height, problem.width).numel()));
  const int64_t kernel = problem.options.kernel[0];
  problem.each_window([&](size_t out, int64_t top, int64_t left, int64_t n, int64_t c) {
    const int64_t row = top + places[out] / kernel, column = left + places[out] % kernel;
    if (places[out] >= kernel * kernel || !problem.is_pixel(row, column)) return;
    dx[problem.at(n, c, row, column, problem.height, problem.width)] += dy[out];
  });
  return dx;
}

class MaxPoolCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    seed_ = test::random_seed(std::random_device{}());
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }

  int64_t draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  Problem draw_problem(int64_t kernel, int64_t stride, int64_t padding) {
    Problem problem;
    problem.layout = draw(0, 1) == 0 ? Layout::kNCHW : Layout::kNHWC;
    problem.options = {.kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .padding = {padding, padding},
                       .layout = problem.layout,
                       .ceil_mode = draw(0, 2) == 0};
    problem.batch = draw(1, 3);
    problem.channels = draw(0, 1) == 0 ? draw(1, 20) : 8 * draw(1, 5);
    problem.height = draw(kernel, 70);
    problem.width = draw(0, 1) == 0 ? draw(kernel, 70) : 4 * draw(1, 20);
    return problem;
  }

  /// Few different values, so that many are equal, and what is hard to compare.
  std::vector<double> draw_images(size_t count) {
    std::vector<double> values(count);
    for (double& value : values) {
      const int64_t kind = draw(0, 40);
      value = static_cast<double>(draw(-4, 4)) / 2;
      if (kind == 0) value = std::numeric_limits<double>::quiet_NaN();
      if (kind == 1) value = std::numeric_limits<double>::infinity();
      if (kind < 12 && kind > 1) value = -std::numeric_limits<double>::infinity();
    }
    return values;
  }

  void check(Problem problem, DType dtype) {
    SCOPED_TRACE(fmt::format("{} {} {} k{} s{} p{} ceil {} seed {}",
                             problem.shape(problem.height, problem.width), to_string(problem.layout), dtype,
                             problem.options.kernel[0], problem.options.stride[0], problem.options.padding[0],
                             problem.options.ceil_mode, seed_));
    const Shape shape = problem.shape(problem.height, problem.width);
    const std::vector<double> values = draw_images(static_cast<size_t>(shape.numel()));
    const Tensor x = cast(Tensor::from_values(values, shape), dtype);
    const std::vector<Tensor> got =
        call(builtin("max_pool2d"), {on_gpu(x, draw(0, 1) * draw(0, 3))}, problem.options);
    const int axis = problem.layout == Layout::kNCHW ? 2 : 1;
    problem.out_height = got[0].shape()[axis];
    problem.out_width = got[0].shape()[axis + 1];
    const Maxima want = expected_maxima(problem, values);
    ASSERT_EQ(got[1].to_vector<uint8_t>(), want.places);
    const std::vector<double> maxima = as_double(got[0]).to_vector<double>();
    for (size_t i = 0; i < maxima.size(); ++i) {
      if (std::isnan(want.values[i]) && std::isnan(maxima[i])) continue;
      ASSERT_EQ(maxima[i], want.values[i]) << "element " << i;
    }

    // Small integers, whose sums are exact in every dtype; some indices name nothing.
    std::vector<double> slopes(maxima.size());
    for (double& slope : slopes) slope = static_cast<double>(draw(-8, 8));
    std::vector<uint8_t> places = want.places;
    for (uint8_t& place : places) {
      if (draw(0, 30) == 0) place = static_cast<uint8_t>(draw(0, 255));
    }
    const Tensor dy = cast(Tensor::from_values(slopes, got[0].shape()), dtype);
    const Tensor indices = Tensor::from_values(places, got[0].shape());
    const Tensor dx =
        vjp::max_pool2d(on_gpu(dy, draw(0, 1) * draw(0, 3)), on_gpu(indices, draw(0, 1) * draw(0, 3)),
                        {problem.options, problem.height, problem.width});
    ASSERT_EQ(as_double(dx).to_vector<double>(), expected_gradient(problem, slopes, places));
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

TEST_F(MaxPoolCuda, UsualWindowsOnPlanesOfAnySize) {
  struct Windows {
    int64_t kernel, stride, padding;
  };
  for (const Windows& w :
       {Windows{3, 2, 1}, {3, 2, 0}, {2, 2, 0}, {2, 2, 1}, {3, 1, 1}, {3, 1, 0}, {3, 3, 1}, {5, 2, 2}}) {
    for (const DType dtype : kDTypes) {
      for (int i = 0; i < 12; ++i) {
        check(draw_problem(w.kernel, w.stride, w.padding), dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MaxPoolCuda, LongStripsOfManyPlanes) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    Problem problem;
    problem.layout = layout;
    problem.options = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = layout};
    problem.batch = 16, problem.channels = 64, problem.height = 113, problem.width = 112;
    check(problem, DType::kFloat16);
  }
}

class GlobalAvgPoolCuda : public GpuTest {};

TEST_F(GlobalAvgPoolCuda, ImagesOfAnySize) {
  uint64_t state = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", state));
  std::mt19937_64 random(state);
  const Shape shapes[] = {{3, 7, 7, 512}, {2, 1, 1, 8},   {5, 4, 9, 13},    {1, 33, 65, 24}, {300, 3, 3, 40},
                          {2, 7, 7, 264}, {64, 14, 5, 7}, {40, 57, 31, 72}, {1, 2, 3, 1}};
  for (int variant = 0; variant < 2 * static_cast<int>(std::size(kDTypes)); ++variant) {
    const DType dtype = kDTypes[variant / 2];
    const Layout layout = variant % 2 == 0 ? Layout::kNHWC : Layout::kNCHW;
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(fmt::format("{} {} {}", shape, dtype, to_string(layout)));
      // Quarters below 4: exact in every dtype, and so are their sums.
      std::vector<double> values(static_cast<size_t>(shape.numel()));
      for (double& value : values) value = static_cast<double>(random() % 16) / 4;
      const bool last = layout == Layout::kNHWC;
      const int64_t pixels = last ? shape[1] * shape[2] : shape[2] * shape[3];
      const int64_t channels = last ? shape[3] : 1;
      std::vector<double> means(values.size() / static_cast<size_t>(pixels));
      for (size_t i = 0; i < values.size(); ++i) {
        const auto element = static_cast<int64_t>(i);
        means[static_cast<size_t>(element / (pixels * channels) * channels + element % channels)] +=
            values[i];
      }
      for (double& mean : means) mean /= static_cast<double>(pixels);
      // One rounding of the quotient, or two by way of float32.
      const double rounding = dtype == DType::kFloat64    ? 0x1p-52
                              : dtype == DType::kFloat32  ? 0x1p-23
                              : dtype == DType::kBFloat16 ? 0x1p-8
                                                          : 0x1p-11;
      for (const int64_t offset : {0, 1}) {
        const Tensor x = on_gpu(cast(Tensor::from_values(values, shape), dtype), offset);
        const std::vector<double> got =
            as_double(global_avg_pool2d(x, {.layout = layout})).to_vector<double>();
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], means[i], 1.01 * rounding * means[i]) << "element " << i;
        }
      }
      // One product and one rounding, as on the CPU.
      const Shape outs{shape[0], shape[last ? 3 : 1]};
      const GlobalPoolOptions options{layout, shape[last ? 1 : 2], shape[last ? 2 : 3]};
      const Tensor dy =
          cast(Tensor::from_values(std::vector<double>(values.begin(), values.begin() + outs.numel()), outs),
               dtype);
      for (const int64_t offset : {0, 1}) {
        ASSERT_EQ(as_double(vjp::global_avg_pool2d(on_gpu(dy, offset), options)).to_vector<double>(),
                  as_double(vjp::global_avg_pool2d(dy, options)).to_vector<double>());
      }
    }
  }
}

class WidePoolCuda : public GpuTest {};

TEST_F(WidePoolCuda, WindowsThatTake64BitsAgreeWithTheCpu) {
  constexpr int64_t kWide = int64_t{1} << 30;
  SampleMaker maker(31, DType::kFloat32);
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const Shape shape{2, 5, 6, 7};
    const Tensor x = maker.tensor(shape);
    const PoolAttributes options{
        .kernel = {kWide, 1}, .stride = {kWide, 1}, .padding = {kWide / 2, 0}, .layout = layout};
    const PoolGradOptions grad{options, shape[layout == Layout::kNCHW ? 2 : 1],
                               shape[layout == Layout::kNCHW ? 3 : 2]};
    const std::vector<Tensor> host = call(builtin("max_pool2d"), {x}, options),
                              device = call(builtin("max_pool2d"), {on_gpu(x)}, options);
    EXPECT_EQ(device[0].to_vector<float>(), host[0].to_vector<float>());
    EXPECT_EQ(device[1].to_vector<int32_t>(), host[1].to_vector<int32_t>());
    EXPECT_EQ(vjp::max_pool2d(device[0], device[1], grad).to_vector<float>(),
              vjp::max_pool2d(host[0], host[1], grad).to_vector<float>());
    const std::vector<float> mean = call_single(builtin("avg_pool2d"), {x}, options).to_vector<float>(),
                             on_device =
                                 call_single(builtin("avg_pool2d"), {on_gpu(x)}, options).to_vector<float>();
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(on_device[i], mean[i], 1e-6 * std::abs(mean[i]));
    EXPECT_EQ(vjp::avg_pool2d(device[0], grad).to_vector<float>(),
              vjp::avg_pool2d(host[0], grad).to_vector<float>());
  }
}

}  // namespace
}  // namespace sinter::ops
