// Reductions, normalisations, pooling, products and convolutions on more than 2^31 elements. The small
// instances show on the CPU that the checks are right.
#include <cmath>
#include <numeric>

#include <sinter/core/base/error.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>

#include "ops/large_tensor_support.h"

namespace sinter::ops {
namespace {

using testing::for_each_piece;
using testing::kLarge;
using testing::kSmall;
using testing::LargeTensor;
using testing::Pattern;
using testing::piece_of;
using testing::Scale;

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}
double total_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class LargeReduction : public LargeTensor {};
INSTANTIATE_TEST_SUITE_P(GpuLong, LargeReduction, ::testing::Values(kLarge));
INSTANTIATE_TEST_SUITE_P(Small, LargeReduction, ::testing::Values(kSmall));

TEST_P(LargeReduction, SumsOfBytesAreExact) {
  const Pattern p = matrix(DType::kUInt8, false);
  const Tensor x = p.whole();
  const double rows = total(p.table(0)), columns = total(p.table(1));
  const auto m = static_cast<double>(scale.rows), n = static_cast<double>(scale.columns);
  EXPECT_EQ(sum(x).item(), rows * n + columns * m);
  EXPECT_EQ(sum(reshape(x, {-1}), {0}).item(), rows * n + columns * m);
  const std::vector<int64_t> by_row = sum(x, {1}).to_vector<int64_t>();
  for (size_t i = 0; i < by_row.size(); ++i) {
    ASSERT_EQ(static_cast<double>(by_row[i]), p.table(0)[i] * n + columns) << i;
  }
  const std::vector<int64_t> by_column = sum(x, {0}).to_vector<int64_t>();
  for (size_t j = 0; j < by_column.size(); ++j) {
    ASSERT_EQ(static_cast<double>(by_column[j]), p.table(1)[j] * m + rows) << j;
  }
}

TEST_P(LargeReduction, Means) {
  const Pattern p = matrix(DType::kFloat32);
  const Tensor x = p.whole();
  const double rows = total(p.table(0)) / static_cast<double>(scale.rows);
  const double columns = total(p.table(1)) / static_cast<double>(scale.columns);
  EXPECT_NEAR(mean(x).item(), rows + columns, 1e-5);
  const std::vector<float> by_row = mean(x, {1}).to_vector<float>();
  for (size_t i = 0; i < by_row.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(by_row[i]), p.table(0)[i] + columns, 1e-4) << i;
  }
  const std::vector<float> by_column = mean(x, {0}).to_vector<float>();
  for (size_t j = 0; j < by_column.size(); ++j) {
    ASSERT_NEAR(static_cast<double>(by_column[j]), p.table(1)[j] + rows, 1e-4) << j;
  }
}

TEST_P(LargeReduction, MaximumAndItsPlace) {
  const Pattern p = matrix(DType::kFloat16);
  const Tensor x = p.whole();
  const int64_t row = scale.rows - 2, column = scale.columns - 5;  // behind element 2^31 if x is large
  const Tensor element =
      Tensor::over(x.storage(), static_cast<size_t>(row * scale.columns + column) * size_of(x.dtype()),
                   {Shape{1}, x.dtype(), x.device()});
  fill_(element, 100.0);
  EXPECT_EQ(max(x).item(), 100.0);
  EXPECT_EQ(min(neg(x)).item(), -100.0);
  EXPECT_EQ(argmax(reshape(x, {-1}), 0).item(), static_cast<double>(row * scale.columns + column));

  const auto first_of = [](const std::vector<double>& values) {
    return std::max_element(values.begin(), values.end()) - values.begin();
  };
  const int64_t first_column = first_of(p.table(1)), first_row = first_of(p.table(0));
  const std::vector<int64_t> in_rows = argmax(x, 1).to_vector<int64_t>();
  for (int64_t i = 0; i < scale.rows; ++i) {
    ASSERT_EQ(in_rows[static_cast<size_t>(i)], i == row ? column : first_column) << i;
  }
  const std::vector<int64_t> in_columns = argmax(x, 0).to_vector<int64_t>();
  for (int64_t j = 0; j < scale.columns; ++j) {
    ASSERT_EQ(in_columns[static_cast<size_t>(j)], j == column ? row : first_row) << j;
  }

  const Tensor one = full({}, 1.0, DType::kFloat16, scale.device);
  const Tensor dx = vjp::max(one, x, {});
  const Tensor where = Tensor::over(dx.storage(), element.offset_bytes(), element.spec());
  EXPECT_EQ(where.item(), 1.0);
  EXPECT_EQ(sum(dx).item(), 1.0);
}

TEST_P(LargeReduction, Softmax) {
  const Pattern p = matrix(DType::kFloat16, true, 0, 1.0 / 16);
  const Tensor y = softmax(p.whole());
  const auto in_float32 = [](const Tensor& x) { return cast(x, DType::kFloat32); };
  EXPECT_EQ(wrong(
                y,
                [&](auto begin, auto end) {
                  return cast(softmax(in_float32(p.piece(begin, end))), DType::kFloat16);
                },
                1e-3 * 4 / static_cast<double>(scale.columns)),
            0);
  // Down the columns.
  const Tensor columns = log_softmax(reshape(p.whole(), {1, scale.rows, scale.columns}), 1);
  const auto& table = p.table(0);
  double sum_of_exponentials = 0;
  for (const double value : table) sum_of_exponentials += std::exp(value);
  EXPECT_EQ(wrong(
                reshape(columns, {scale.rows, scale.columns}),
                [&](auto begin, auto end) {
                  const std::vector<double> some(table.begin() + begin, table.begin() + end);
                  const Tensor logits = Tensor::from_values(some, {end - begin, 1}, scale.device);
                  const Tensor logs = affine(logits, 1.0, -std::log(sum_of_exponentials));
                  return broadcast_to(cast(logs, DType::kFloat16), {end - begin, scale.columns});
                },
                0.01),
            0);
}

TEST_P(LargeReduction, CrossEntropy) {
  const Pattern p = matrix(DType::kFloat16, true, 0, 1.0 / 16);
  std::vector<int64_t> targets(static_cast<size_t>(scale.rows));
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int64_t>(i * 31) % scale.columns;
  const Tensor target = Tensor::from_values(targets, {scale.rows}, scale.device);
  const CrossEntropyOptions options{.reduction = Reduction::kNone};
  static const Op& op = builtin("cross_entropy");
  const std::vector<Tensor> results = call(op, {p.whole(), target}, Attributes(options));
  double sum_of_exponentials = 0;
  for (const double value : p.table(1)) sum_of_exponentials += std::exp(value);
  const std::vector<float> losses = results[0].to_vector<float>();
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_NEAR(losses[i], std::log(sum_of_exponentials) - p.table(1)[static_cast<size_t>(targets[i])], 1e-3)
        << i;
  }
  const Tensor dloss = full({scale.rows}, 1.0, DType::kFloat32, scale.device);
  const Tensor dx = vjp::cross_entropy(dloss, p.whole(), target, results[1], options).logits;
  EXPECT_EQ(wrong(dx,
                  [&](auto begin, auto end) {
                    return vjp::cross_entropy(piece_of(dloss, begin, end), p.piece(begin, end),
                                              piece_of(target, begin, end), piece_of(results[1], begin, end),
                                              options)
                        .logits;
                  }),
            0);
}

// ---- batch norm

/// The sum over all but `channel` of a * b, for two patterns of one shape and channel c of the axis.
double channel_product(const Pattern& a, const Pattern& b, int channel, size_t c) {
  const Shape& shape = a.shape();
  const double count = static_cast<double>(shape.numel() / shape[channel]);
  double a_sum = a.table(channel)[c], b_sum = b.table(channel)[c];  // means of a and b
  double covariance = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis == channel) continue;
    const auto n = static_cast<double>(shape[axis]);
    const double a_mean = total(a.table(axis)) / n, b_mean = total(b.table(axis)) / n;
    a_sum += a_mean;
    b_sum += b_mean;
    covariance += total_of_products(a.table(axis), b.table(axis)) / n - a_mean * b_mean;
  }
  return count * (covariance + a_sum * b_sum);
}

TEST_P(LargeReduction, BatchNorm) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    SCOPED_TRACE(to_string(layout));
    const int channel = layout == Layout::kNCHW ? 1 : 3;
    const Pattern p(images(layout), scale, DType::kFloat16),
        q(images(layout), scale, DType::kFloat16, true, 2);
    const Pattern ones(images(layout), scale, DType::kFloat16, true, 0, 0.0);
    const auto count = static_cast<double>(p.shape().numel() / Scale::kChannels);
    constexpr double kEpsilon = 1e-5;
    std::vector<float> mean, inv_std, weight, bias, dmean, dslope, expected_dweight;
    for (size_t c = 0; c < Scale::kChannels; ++c) {
      double a = p.table(channel)[c], b = q.table(channel)[c];
      for (int axis = 0; axis < 4; ++axis) {
        if (axis == channel) continue;
        a += total(p.table(axis)) / static_cast<double>(p.shape()[axis]);
        b += total(q.table(axis)) / static_cast<double>(p.shape()[axis]);
      }
      const double variance = channel_product(p, p, channel, c) / count - a * a;
      const double scale_of_x = 1.0 / std::sqrt(variance + kEpsilon);
      const double slope =
          (channel_product(p, q, channel, c) / count - a * b) * scale_of_x;  // mean of dy * xhat
      mean.push_back(static_cast<float>(a));
      inv_std.push_back(static_cast<float>(scale_of_x));
      weight.push_back(1.0f + static_cast<float>(c));
      bias.push_back(static_cast<float>(c) - 3.0f);
      dmean.push_back(static_cast<float>(b));
      dslope.push_back(static_cast<float>(slope));
      expected_dweight.push_back(static_cast<float>(slope * count));
    }
    const Shape along =
        layout == Layout::kNCHW ? Shape{1, Scale::kChannels, 1, 1} : Shape{1, 1, 1, Scale::kChannels};
    const auto vector = [&](const std::vector<float>& values) {
      return Tensor::from_values(values, {Scale::kChannels}, scale.device);
    };
    const auto channels = [&](const std::vector<float>& values) {
      return Tensor::from_values(values, along, scale.device);
    };
    const auto in_float32 = [](const Tensor& x) { return cast(x, DType::kFloat32); };
    const auto normalised = [&](int64_t begin, int64_t end) {
      return mul(sub(in_float32(p.piece(begin, end)), channels(mean)), channels(inv_std));
    };
    const Tensor x = p.whole(), dy = q.whole();
    static const Op& op = builtin("batch_norm");
    const std::vector<Tensor> results = call(op, {x, vector(weight), vector(bias), Tensor(), Tensor()},
                                             Attributes(BatchNormOptions{.layout = layout}));
    const std::vector<float> got_mean = results[1].to_vector<float>(),
                             got_inv_std = results[2].to_vector<float>();
    for (size_t c = 0; c < mean.size(); ++c) {
      EXPECT_NEAR(got_mean[c], mean[c], 1e-4) << c;
      EXPECT_NEAR(got_inv_std[c], inv_std[c], 1e-5) << c;
    }
    EXPECT_EQ(wrong(
                  results[0],
                  [&](auto begin, auto end) {
                    return cast(add(mul(normalised(begin, end), channels(weight)), channels(bias)),
                                DType::kFloat16);
                  },
                  0.02),
              0);
    const BatchNormGrads grads =
        vjp::batch_norm(dy, x, vector(weight), results[1], results[2], {.layout = layout});
    EXPECT_EQ(wrong(
                  grads.dx,
                  [&](auto begin, auto end) {
                    const Tensor centred = sub(in_float32(q.piece(begin, end)), channels(dmean));
                    const Tensor rest = sub(centred, mul(normalised(begin, end), channels(dslope)));
                    return cast(mul(mul(rest, channels(weight)), channels(inv_std)), DType::kFloat16);
                  },
                  0.05),
              0);
    const std::vector<float> dweight = grads.dweight.to_vector<float>(),
                             dbias = grads.dbias.to_vector<float>();
    for (size_t c = 0; c < mean.size(); ++c) {
      EXPECT_NEAR(dweight[c], expected_dweight[c], 1e-4 * count) << c;
      EXPECT_NEAR(dbias[c], static_cast<double>(dmean[c]) * count, 1e-4 * count) << c;
    }
  }
}

// ---- pooling

TEST_P(LargeReduction, Pool) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    SCOPED_TRACE(to_string(layout));
    const Pattern p(images(layout), scale, DType::kFloat16);
    const PoolAttributes options{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .layout = layout};
    const PoolGradOptions grad_options{.pool = options, .height = Scale::kHeight, .width = Scale::kWidth};
    const Tensor x = p.whole();
    static const Op& op = builtin("max_pool2d");
    const auto pooled = [&](const Tensor& part) { return call(op, {part}, Attributes(options)); };
    const std::vector<Tensor> results = pooled(x);
    EXPECT_EQ(wrong(results[0], [&](auto begin, auto end) { return pooled(p.piece(begin, end))[0]; }), 0);
    EXPECT_EQ(wrong(results[1], [&](auto begin, auto end) { return pooled(p.piece(begin, end))[1]; }), 0);
    EXPECT_EQ(wrong(vjp::max_pool2d(x, results[1], grad_options),
                    [&](auto begin, auto end) {
                      const Tensor part = p.piece(begin, end);
                      return vjp::max_pool2d(part, pooled(part)[1], grad_options);
                    }),
              0);
    EXPECT_EQ(wrong(call_single(builtin("avg_pool2d"), {x}, options),
                    [&](auto begin, auto end) {
                      return call_single(builtin("avg_pool2d"), {p.piece(begin, end)}, options);
                    }),
              0);
    EXPECT_EQ(wrong(vjp::avg_pool2d(x, grad_options),
                    [&](auto begin, auto end) { return vjp::avg_pool2d(p.piece(begin, end), grad_options); }),
              0);
    const Tensor means = global_avg_pool2d(x, {.layout = layout});
    EXPECT_EQ(
        wrong(
            means,
            [&](auto begin, auto end) { return global_avg_pool2d(p.piece(begin, end), {.layout = layout}); },
            1e-2),
        0);
    const GlobalPoolOptions global{layout, Scale::kHeight, Scale::kWidth};
    EXPECT_EQ(wrong(vjp::global_avg_pool2d(means, global),
                    [&](auto begin, auto end) {
                      return vjp::global_avg_pool2d(piece_of(means, begin, end), global);
                    }),
              0);
  }
}

// ---- products and convolutions

/// Runs `action`; if it throws, the error must say why, and the device must still work.
template <class F>
void right_or_clear_error(const Scale& scale, F action) {
  try {
    action();
  } catch (const Error& error) {
    ::testing::Test::RecordProperty("error", error.what());
    std::printf("  refused: %s\n", error.what());
    EXPECT_EQ(sum(full({3}, 2.0, DType::kFloat32, scale.device)).item(), 6.0);
  }
}

class LargeProduct : public LargeTensor {
 protected:
  void SetUp() override {
    LargeTensor::SetUp();
    settings::set_autotune(false);  // on tensors of this size it takes half a minute
  }
  void TearDown() override {
    settings::set_autotune(autotune_);
    LargeTensor::TearDown();
  }

 private:
  const bool autotune_ = settings::autotune();
};
INSTANTIATE_TEST_SUITE_P(GpuLong, LargeProduct, ::testing::Values(kLarge));
INSTANTIATE_TEST_SUITE_P(Small, LargeProduct, ::testing::Values(kSmall));

TEST_P(LargeProduct, MatmulWithALargeResult) {
  const Pattern a({scale.rows, 16}, scale, DType::kFloat16, true, 0, 0.125);
  const Pattern b({16, scale.columns}, scale, DType::kFloat16, true, 1, 0.125);
  const Tensor right = b.whole();
  right_or_clear_error(scale, [&] {
    EXPECT_EQ(wrong(
                  matmul(a.whole(), right),
                  [&](auto begin, auto end) { return matmul(a.piece(begin, end), right); }, 0.1),
              0);
  });
}

TEST_P(LargeProduct, MatmulOfALargeMatrix) {
  const Pattern a = matrix(DType::kFloat16, true, 0, 0.125);
  const Pattern b({scale.columns, 8}, scale, DType::kFloat16, true, 1, 1.0 / 512);
  const Tensor left = a.whole(), right = b.whole();
  right_or_clear_error(scale, [&] {
    EXPECT_EQ(wrong(
                  matmul(left, right),
                  [&](auto begin, auto end) { return matmul(a.piece(begin, end), right); }, 0.1),
              0);
  });
  // (columns, rows) x (rows, 8), the left one transposed: all elements of `left` are summed up.
  const Pattern c({scale.rows, 8}, scale, DType::kFloat32, true, 1, 1.0 / 512);
  const Pattern wide = matrix(DType::kFloat32, true, 0, 0.125);
  right_or_clear_error(scale, [&] {
    const std::vector<float> sums = matmul(wide.whole(), c.whole(), {.transpose_a = true}).to_vector<float>();
    for (size_t column = 0; column < 8; ++column) {
      double with_rows = 0, of_c = 0;  // sums over the rows of (row's number) * c, and of c
      for (size_t i = 0; i < wide.table(0).size(); ++i) {
        const double value = c.table(0)[i] + c.table(1)[column];
        with_rows += wide.table(0)[i] * value;
        of_c += value;
      }
      for (size_t j = 0; j < wide.table(1).size(); j += 97) {
        const double expected = with_rows + of_c * wide.table(1)[j];
        ASSERT_NEAR(static_cast<double>(sums[j * 8 + column]), expected, 1e-3 * (10 + std::abs(expected)))
            << j << " " << column;
      }
    }
  });
}

TEST_P(LargeProduct, MatvecOfALargeMatrix) {
  const Pattern p = matrix(DType::kFloat16, true, 0, 0.125);
  const Tensor a = p.whole();
  for (const bool transpose : {false, true}) {
    SCOPED_TRACE(transpose ? "transposed" : "plain");
    const int out = transpose ? 1 : 0, in = 1 - out;
    const Pattern with({p.shape()[in]}, scale, DType::kFloat16, true, 1, 1.0 / 512);
    const std::vector<float> y =
        cast(matvec(a, with.whole(), {.transpose_a = transpose}), DType::kFloat32).to_vector<float>();
    // An element of a is the sum of its row's number and its column's.
    const double of_x = total(with.table(0)), of_in = total_of_products(p.table(in), with.table(0));
    ASSERT_EQ(y.size(), p.table(out).size());
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = p.table(out)[i] * of_x + of_in;
      ASSERT_NEAR(static_cast<double>(y[i]), expected, 1e-3 * (1 + std::abs(expected))) << i;
    }
  }
}

TEST_P(LargeProduct, MatvecOfMoreRowsThan2To30) {
  const Tensor values = matrix(DType::kFloat16, false).whole();
  const Tensor a = Tensor::over(values.storage(), values.offset_bytes(),
                                {{values.numel() / 2, 2}, values.dtype(), values.device()});
  const Tensor wide = Tensor::from_values<float>({3.0F, -1.0F}, {2}, scale.device);
  const auto product = [&](auto begin, auto end) {
    return cast(sum(mul(cast(piece_of(a, begin, end), DType::kFloat32), wide), {1}), DType::kFloat16);
  };
  EXPECT_EQ(wrong(matvec(a, cast(wide, DType::kFloat16)), product), 0);

  std::vector<double> expected(2);
  for_each_piece(a.shape(), scale, [&](int64_t begin, int64_t end) {
    const std::vector<float> part =
        sum(cast(piece_of(a, begin, end), DType::kFloat32), {0}).to_vector<float>();
    for (size_t j = 0; j < 2; ++j) expected[j] += static_cast<double>(part[j]) * 0x1p-20;
  });
  const Tensor x = full({a.shape()[0]}, 0x1p-20, DType::kFloat16, scale.device);
  const std::vector<float> y = cast(matvec(a, x, {.transpose_a = true}), DType::kFloat32).to_vector<float>();
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_NEAR(static_cast<double>(y[j]), expected[j], 2e-3 * (1 + std::abs(expected[j]))) << j;
  }
}

TEST_P(LargeProduct, LinearOfManyRows) {
  // More rows than fit 32 bits: 2^31 + 8 on a GPU.
  const bool large = scale.device.is_cuda();
  const int64_t rows = large ? (int64_t{1} << 31) + 8 : 1016;
  const Pattern x({rows / 1016, 1016}, scale, DType::kFloat16, true, 0, 0.125);
  const Tensor weight = full({1, 1}, 3.0, DType::kFloat16, scale.device);
  right_or_clear_error(scale, [&] {
    const int64_t used = rows / 1016 * 1016;
    const Tensor y =
        linear(reshape(x.whole(), {used, 1}), weight, full({1}, 2.0, DType::kFloat16, scale.device));
    EXPECT_EQ(wrong(reshape(y, {rows / 1016, 1016}),
                    [&](auto begin, auto end) { return affine(x.piece(begin, end), 3.0, 2.0); }),
              0);
  });
}

TEST_P(LargeProduct, Conv2d) {
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    SCOPED_TRACE(to_string(layout));
    const Pattern p(images(layout), scale, DType::kFloat16, true, 0, 0.125);
    const Shape filter = layout == Layout::kNCHW ? Shape{8, 8, 3, 3} : Shape{8, 3, 3, 8};
    const Tensor weight = Pattern(filter, scale, DType::kFloat16, true, 1, 1.0 / 32).whole();
    const Conv2dOptions options{.padding = {1, 1}, .layout = layout};
    const Tensor x = p.whole();
    right_or_clear_error(scale, [&] {
      EXPECT_EQ(
          wrong(
              conv2d(x, weight, {}, options),
              [&](auto begin, auto end) { return conv2d(p.piece(begin, end), weight, {}, options); }, 0.25),
          0);
    });
    const std::array<int64_t, 2> size{Scale::kHeight, Scale::kWidth};
    right_or_clear_error(scale, [&] {
      EXPECT_EQ(wrong(
                    vjp::conv2d_input(x, weight, size, options),
                    [&](auto begin, auto end) {
                      return vjp::conv2d_input(p.piece(begin, end), weight, size, options);
                    },
                    0.25),
                0);
    });
  }
}

TEST_P(LargeProduct, Conv2dGradWeight) {
  for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
    SCOPED_TRACE(to_string(layout));
    const Pattern p(images(layout), scale, DType::kFloat16, true, 0, 0.125),
        q(images(layout), scale, DType::kFloat16, true, 2, 1.0 / 1024);
    const Conv2dOptions options{.padding = {1, 1}, .layout = layout};
    right_or_clear_error(scale, [&] {
      const std::vector<float> got =
          cast(vjp::conv2d_weight(q.whole(), p.whole(), {3, 3}, options), DType::kFloat32).to_vector<float>();
      std::vector<double> expected(got.size());
      for_each_piece(p.shape(), scale, [&](int64_t begin, int64_t end) {
        const std::vector<float> part =
            cast(vjp::conv2d_weight(q.piece(begin, end), p.piece(begin, end), {3, 3}, options),
                 DType::kFloat32)
                .to_vector<float>();
        for (size_t i = 0; i < part.size(); ++i) expected[i] += static_cast<double>(part[i]);
      });
      for (size_t i = 0; i < got.size(); ++i) {
        if (std::abs(expected[i]) > 60000) continue;  // beyond float16
        EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 5e-3 * (100 + std::abs(expected[i]))) << i;
      }
    });
  }
}

}  // namespace
}  // namespace sinter::ops
