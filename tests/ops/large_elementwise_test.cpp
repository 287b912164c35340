// Ops that go through their elements one by one, and those that move them, on more than 2^31 elements.
// The small instances show on the CPU that the checks are right.
#include <numeric>

#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/optimizer/optimizer.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

#include "ops/large_tensor_support.h"

namespace sinter::ops {
namespace {

using testing::kLarge;
using testing::kSmall;
using testing::LargeTensor;
using testing::Pattern;
using testing::piece_of;

class LargeElementwise : public LargeTensor {};
INSTANTIATE_TEST_SUITE_P(GpuLong, LargeElementwise, ::testing::Values(kLarge));
INSTANTIATE_TEST_SUITE_P(Small, LargeElementwise, ::testing::Values(kSmall));

TEST_P(LargeElementwise, Unary) {
  const Pattern p = matrix(DType::kFloat16);
  const Tensor x = p.whole();
  EXPECT_EQ(wrong(x, [&](auto begin, auto end) { return p.piece(begin, end); }), 0);
  EXPECT_EQ(wrong(neg(x), [&](auto begin, auto end) { return neg(p.piece(begin, end)); }), 0);
  EXPECT_EQ(wrong(sigmoid(x), [&](auto begin, auto end) { return sigmoid(p.piece(begin, end)); }), 0);
  EXPECT_EQ(
      wrong(affine(x, 2.0, 1.0), [&](auto begin, auto end) { return affine(p.piece(begin, end), 2.0, 1.0); }),
      0);
  // As one axis: the widest accesses, and an odd tail.
  const Tensor flat = square(reshape(x, {-1}));
  EXPECT_EQ(wrong(reshape(flat, {scale.rows, scale.columns}),
                  [&](auto begin, auto end) { return square(p.piece(begin, end)); }),
            0);
}

TEST_P(LargeElementwise, Binary) {
  const Pattern p = matrix(DType::kFloat16), q = matrix(DType::kFloat16, true, 2);
  const Tensor x = p.whole(), y = q.whole();
  EXPECT_EQ(
      wrong(mul(x, y), [&](auto begin, auto end) { return mul(p.piece(begin, end), q.piece(begin, end)); }),
      0);
  EXPECT_EQ(
      wrong(less(x, y), [&](auto begin, auto end) { return less(p.piece(begin, end), q.piece(begin, end)); }),
      0);
  EXPECT_EQ(wrong(vjp::maximum(y, x, y),
                  [&](auto begin, auto end) {
                    const Tensor b = q.piece(begin, end);
                    return vjp::maximum(b, p.piece(begin, end), b);
                  }),
            0);
}

TEST_P(LargeElementwise, Broadcast) {
  const Pattern p = matrix(DType::kFloat16);
  const Pattern row_pattern({1, scale.columns}, scale, DType::kFloat16, true, 3);
  const Pattern column_pattern({scale.rows, 1}, scale, DType::kFloat16, true, 4);
  const Tensor x = p.whole(), row = row_pattern.whole(), column = column_pattern.whole();
  const Tensor three = full({}, 3.0, DType::kFloat16, scale.device);
  EXPECT_EQ(wrong(sub(x, three), [&](auto begin, auto end) { return sub(p.piece(begin, end), three); }), 0);
  EXPECT_EQ(wrong(add(x, row), [&](auto begin, auto end) { return add(p.piece(begin, end), row); }), 0);
  EXPECT_EQ(
      wrong(mul(column, x),
            [&](auto begin, auto end) { return mul(column_pattern.piece(begin, end), p.piece(begin, end)); }),
      0);
  EXPECT_EQ(wrong(broadcast_to(row, {scale.rows, scale.columns}),
                  [&](auto begin, auto end) {
                    return broadcast_to(row, {end - begin, scale.columns});
                  }),
            0);
  EXPECT_EQ(wrong(add(row, column),
                  [&](auto begin, auto end) { return add(row, column_pattern.piece(begin, end)); }),
            0);
}

TEST_P(LargeElementwise, CastsCopiesAndFills) {
  const Pattern bytes = matrix(DType::kUInt8, false);
  const Tensor x = bytes.whole();
  const auto expected = [&](auto begin, auto end) { return bytes.piece(begin, end); };
  EXPECT_EQ(wrong(copy(x), expected), 0);
  const Tensor y = Tensor::empty(x.spec());
  copy_(y, x);
  EXPECT_EQ(wrong(y, expected), 0);
  EXPECT_EQ(wrong(cast(x, DType::kFloat16),
                  [&](auto begin, auto end) { return cast(bytes.piece(begin, end), DType::kFloat16); }),
            0);
  EXPECT_EQ(wrong(cast(cast(x, DType::kFloat32), DType::kUInt8), expected), 0);
  fill_(y, 7.0);
  EXPECT_EQ(wrong(y,
                  [&](auto begin, auto end) {
                    return full({end - begin, scale.columns}, 7.0, DType::kUInt8, scale.device);
                  }),
            0);
}

TEST_P(LargeElementwise, Relu) {
  const Pattern p = matrix(DType::kFloat16), q = matrix(DType::kFloat16, true, 2);
  const Tensor x = p.whole(), dy = q.whole(), y = relu(x);
  EXPECT_EQ(wrong(y, [&](auto begin, auto end) { return relu(p.piece(begin, end)); }), 0);
  EXPECT_EQ(
      wrong(vjp::relu(dy, y),
            [&](auto begin, auto end) { return vjp::relu(q.piece(begin, end), relu(p.piece(begin, end))); }),
      0);
}

TEST_P(LargeElementwise, PRelu) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    SCOPED_TRACE(to_string(layout));
    const Pattern p(images(layout), scale, DType::kFloat16),
        q(images(layout), scale, DType::kFloat16, true, 2);
    const Tensor x = p.whole(), dy = q.whole();
    std::vector<float> slopes;
    for (int c = 0; c < testing::Scale::kChannels; ++c) slopes.push_back(0.25f * static_cast<float>(c + 1));
    const Tensor alpha =
        cast(Tensor::from_values(slopes, {testing::Scale::kChannels}, scale.device), DType::kFloat16);
    EXPECT_EQ(
        wrong(prelu(x, alpha, {.layout = layout}),
              [&](auto begin, auto end) { return prelu(p.piece(begin, end), alpha, {.layout = layout}); }),
        0);
    const PReluGrads grads = vjp::prelu(dy, x, alpha, layout);
    std::vector<double> dalpha(slopes.size());
    EXPECT_EQ(wrong(grads.dx,
                    [&](auto begin, auto end) {
                      const PReluGrads part = vjp::prelu(cast(q.piece(begin, end), DType::kFloat32),
                                                         cast(p.piece(begin, end), DType::kFloat32),
                                                         cast(alpha, DType::kFloat32), layout);
                      const std::vector<float> sums = part.dalpha.template to_vector<float>();
                      for (size_t c = 0; c < sums.size(); ++c) dalpha[c] += static_cast<double>(sums[c]);
                      return cast(part.dx, DType::kFloat16);
                    }),
              0);
    const PReluGrads wide = vjp::prelu(affine(dy, 0x1p-22, 0.0), x, alpha, layout);  // within float16's range
    const std::vector<float> sums = cast(wide.dalpha, DType::kFloat32).to_vector<float>();
    for (size_t c = 0; c < sums.size(); ++c) {
      const double expected = dalpha[c] * 0x1p-22;
      EXPECT_NEAR(static_cast<double>(sums[c]), expected, 2e-3 * (1 + std::abs(expected))) << c;
    }
    // An element behind an aligned address: all packs are single elements, one slope for all.
    const auto shifted = [](const Tensor& t) {
      return Tensor::over(t.storage(), t.offset_bytes() + size_of(t.dtype()),
                          {{t.numel() - 1, 1}, t.dtype(), t.device()});
    };
    const Tensor scaled = affine(dy, 0x1p-22, 0.0), x_behind = shifted(x), dy_behind = shifted(scaled);
    const Tensor slope = full({1}, 0.5, DType::kFloat16, scale.device);
    const PReluGrads one = vjp::prelu(dy_behind, x_behind, slope);
    EXPECT_EQ(wrong(one.dx,
                    [&](auto begin, auto end) {
                      return vjp::prelu_x(piece_of(dy_behind, begin, end), piece_of(x_behind, begin, end),
                                          slope);
                    }),
              0);
    const double all = std::accumulate(dalpha.begin(), dalpha.end(), 0.0) * 0x1p-22;
    EXPECT_NEAR(one.dalpha.item(), all, 2e-3 * (1 + std::abs(all)));
  }
}

TEST_P(LargeElementwise, Dropout) {
  const Pattern p = matrix(DType::kFloat16);
  const auto key_at = [&](int64_t offset) {
    return Tensor::from_values<int64_t>({42, offset}, {2}, scale.device);
  };
  const Tensor y = update::dropout_with_key(p.whole(), key_at(1000), 0.25);
  // Pieces begin at multiples of four rows, and a block of random numbers serves four elements.
  EXPECT_EQ(wrong(y,
                  [&](auto begin, auto end) {
                    return update::dropout_with_key(p.piece(begin, end),
                                                    key_at(1000 + begin / 4 * scale.columns), 0.25);
                  }),
            0);
}

TEST_P(LargeElementwise, SgdStep) {
  const Pattern p = matrix(DType::kFloat32), q = matrix(DType::kFloat32, true, 2);
  const Tensor parameter = p.whole(), gradient = q.whole(), momentum = q.whole();
  const Tensor rate = Tensor::from_values<double>({0.5}, {}, scale.device);
  const update::SGDStep options{.momentum = 0.5, .weight_decay = 0.25};
  const UpdateSlot slot{parameter, gradient, {momentum}};
  update::sgd_step({&slot, 1}, rate, options);
  EXPECT_EQ(wrong(parameter,
                  [&](auto begin, auto end) {
                    const Tensor part = p.piece(begin, end);
                    const UpdateSlot part_slot{part, q.piece(begin, end), {q.piece(begin, end)}};
                    update::sgd_step({&part_slot, 1}, rate, options);
                    return part;
                  }),
            0);
}

// ---- ops that move elements

class LargeMoving : public LargeTensor {};
INSTANTIATE_TEST_SUITE_P(GpuLong, LargeMoving, ::testing::Values(kLarge));
INSTANTIATE_TEST_SUITE_P(Small, LargeMoving, ::testing::Values(kSmall));

TEST_P(LargeMoving, Transpose) {
  for (const DType dtype : {DType::kUInt8, DType::kFloat16}) {
    SCOPED_TRACE(to_string(dtype));
    const Pattern p = matrix(dtype, false);
    const Tensor y = transpose(p.whole(), 0, 1);
    ASSERT_EQ(y.shape(), (Shape{scale.columns, scale.rows}));
    EXPECT_EQ(
        wrong(y,
              [&](auto begin, auto end) {
                // The sums of the same numbers, along exchanged axes.
                const auto& columns = p.table(1);
                const std::vector<double> some(columns.begin() + begin, columns.begin() + end);
                const Tensor down = cast(Tensor::from_values(some, {end - begin, 1}, scale.device), dtype);
                const Tensor across =
                    cast(Tensor::from_values(p.table(0), {1, scale.rows}, scale.device), dtype);
                return add(down, across);
              }),
        0);
  }
}

TEST_P(LargeMoving, PermuteOfImages) {
  const Pattern p(images(Layout::kNCHW), scale, DType::kFloat16);
  const Tensor x = p.whole();
  const auto expected = [&](std::vector<int64_t> axes) {
    return [&p, axes](int64_t begin, int64_t end) { return permute(p.piece(begin, end), axes); };
  };
  EXPECT_EQ(wrong(permute(x, {0, 2, 3, 1}), expected({0, 2, 3, 1})), 0);
  EXPECT_EQ(wrong(permute(x, {0, 2, 1, 3}), expected({0, 2, 1, 3})), 0);
  // The leading axis moves: seen from the result, pieces of images are pieces of its last axis.
  const Tensor y = permute(x, {1, 2, 3, 0});
  EXPECT_EQ(wrong(permute(y, {3, 0, 1, 2}), expected({0, 1, 2, 3})), 0);
}

TEST_P(LargeMoving, SliceAndConcat) {
  const Pattern p = matrix(DType::kFloat16);
  const Tensor x = p.whole();
  const Tensor left = slice(x, 1, 0, 7), right = slice(x, 1, 7, scale.columns);
  EXPECT_EQ(
      wrong(right, [&](auto begin, auto end) { return slice(p.piece(begin, end), 1, 7, scale.columns); }), 0);
  const auto whole = [&](auto begin, auto end) { return p.piece(begin, end); };
  EXPECT_EQ(wrong(concat({left, right}, 1), whole), 0);
  const int64_t some = scale.rows - 3;
  EXPECT_EQ(wrong(concat({slice(x, 0, 0, some), slice(x, 0, some, scale.rows)}, 0), whole), 0);
  EXPECT_EQ(
      wrong(slice(x, 0, 1, scale.rows), [&](auto begin, auto end) { return p.piece(begin + 1, end + 1); }),
      0);
}

TEST_P(LargeMoving, Pad) {
  const Pattern p = matrix(DType::kFloat16);
  const Tensor x = p.whole();
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect}) {
    const Tensor y = pad(x, {{0, 0}, {2, 3}}, {.mode = mode, .value = 5.0});
    EXPECT_EQ(wrong(y,
                    [&](auto begin, auto end) {
                      return pad(p.piece(begin, end), {{0, 0}, {2, 3}}, {.mode = mode, .value = 5.0});
                    }),
              0);
  }
  const Tensor y = pad(x, {{4, 0}, {0, 1}});
  EXPECT_EQ(wrong(piece_of(y, 4, scale.rows + 4),
                  [&](auto begin, auto end) {
                    return pad(p.piece(begin, end), {{0, 0}, {0, 1}});
                  }),
            0);
  const Tensor dx = vjp::pad(x, {{0, 0}, {2, 3}});
  EXPECT_EQ(
      wrong(dx, [&](auto begin, auto end) { return slice(p.piece(begin, end), 1, 2, scale.columns - 3); }),
      0);
}

TEST_P(LargeMoving, Gather) {
  const Pattern p = matrix(DType::kFloat16);
  const Tensor x = p.whole();
  const int64_t last = scale.rows - 1;
  const std::vector<int64_t> picked = {last, 0, last - 1, scale.rows / 2, last};
  std::vector<int64_t> indices;
  for (const int64_t row : picked) indices.insert(indices.end(), static_cast<size_t>(scale.columns), row);
  const auto count = static_cast<int64_t>(picked.size());
  const Tensor where = Tensor::from_values(indices, {count, scale.columns}, scale.device);
  const Tensor y = gather(x, 0, where);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = picked[static_cast<size_t>(i)];
    EXPECT_EQ(sum(equal(piece_of(y, i, i + 1), p.piece(row, row + 1))).item(),
              static_cast<double>(scale.columns));
  }
  const Tensor dx = vjp::gather(y, 0, where, x.shape());
  EXPECT_EQ(wrong(dx,
                  [&](auto begin, auto end) {
                    std::vector<float> times(static_cast<size_t>(end - begin), 0.0f);
                    for (const int64_t row : picked) {
                      if (row >= begin && row < end) times[static_cast<size_t>(row - begin)] += 1.0f;
                    }
                    const Tensor weights =
                        cast(Tensor::from_values(times, {end - begin, 1}, scale.device), DType::kFloat16);
                    return mul(weights, p.piece(begin, end));
                  }),
            0);
}

}  // namespace
}  // namespace sinter::ops
