// Elementwise kernels at every count and alignment: against the CPU. Needs a GPU.
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/unary/unary.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

class ElementwiseOnCuda : public GpuTest {
 protected:
  /// Whole numbers in [-16, 16), which all dtypes but bool hold, and whose sums and products do not round.
  Tensor draw(const Shape& shape, DType dtype) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    for (float& value : values) value = static_cast<float>(generator_.below(32)) - 16.0F;
    return cast(Tensor::from_values(values, shape), dtype);
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(generator_.below(static_cast<uint64_t>(bound)));
  }
  static void expect_same(const Tensor& got, const Tensor& wanted, const char* what) {
    ASSERT_EQ(as_double(got).to_vector<double>(), as_double(wanted).to_vector<double>())
        << what << " of " << to_string(wanted.spec());
  }

  /// Ops of one, two and three inputs, whose elements are as wide as the output's, wider and narrower; inputs
  /// `offsets` elements behind aligned addresses.
  void check(int64_t count, DType dtype, const std::array<int64_t, 3>& offsets) {
    const Tensor a = draw({count}, dtype), b = draw({count}, dtype), c = draw({count}, dtype);
    const Tensor a_there = on_gpu(a, offsets[0]), b_there = on_gpu(b, offsets[1]),
                 c_there = on_gpu(c, offsets[2]);
    expect_same(square(a_there), square(a), "square");
    expect_same(add(a_there, b_there), add(a, b), "add");
    expect_same(less(a_there, b_there), less(a, b), "less");
    expect_same(cast(a_there, DType::kFloat32), cast(a, DType::kFloat32), "cast to float32");
    expect_same(cast(a_there, DType::kUInt8), cast(a, DType::kUInt8), "cast to uint8");
    if (is_float(dtype)) {
      expect_same(vjp::maximum(c_there, a_there, b_there), vjp::maximum(c, a, b), "maximum_grad");
      expect_same(vjp::relu(b_there, a_there), vjp::relu(b, a), "relu_grad");
    }
  }

 private:
  Generator generator_{23};
};

constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                              DType::kFloat64, DType::kInt32,   DType::kInt64};

TEST_F(ElementwiseOnCuda, EveryCountAndAlignmentAgreesWithTheCpu) {
  const NoGrad no_grad;
  for (const DType dtype : kNumbers) {
    for (int64_t count = 1; count <= 40; ++count) check(count, dtype, {0, 0, 0});
    for (const int64_t packs : {127, 128, 129, 255, 256, 257}) {
      const int64_t count = packs * 16 / static_cast<int64_t>(size_of(dtype));
      for (const int64_t rest : {-1, 0, 1}) check(count + rest, dtype, {0, 0, 0});
    }
    for (int round = 0; round < 60; ++round) {
      const int64_t count = 1 + below(round % 2 == 0 ? 64 : 9000);
      check(count, dtype, {below(9), below(9), below(9)});
      const int64_t alike = below(9);
      check(count, dtype, {alike, alike, alike});
    }
  }
}

TEST_F(ElementwiseOnCuda, TensorsOnBothSidesOfTheBoundsForPacksOfAThreadAgreeWithTheCpu) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const int64_t few = int64_t{264} * 2 * 128 * 16 / static_cast<int64_t>(size_of(dtype));
    for (const int64_t count : {few - 1, few, few + 3}) check(count, dtype, {0, 0, 0});
  }
  constexpr int64_t kLarge = (int64_t{32} << 20) / 4;
  for (const int64_t count : {kLarge, kLarge + 1}) check(count, DType::kFloat32, {0, 0, 0});
}

TEST_F(ElementwiseOnCuda, BroadcastsOfTwoAxesAgreeWithTheCpu) {
  const NoGrad no_grad;
  for (const DType dtype : kNumbers) {
    for (int round = 0; round < 60; ++round) {
      const int64_t rows = 1 + below(40), columns = 1 + below(round % 2 == 0 ? 40 : 3000);
      const Shape shapes[] = {{rows, columns}, {1, columns}, {rows, 1}, {columns}, {1, 1}, {}};
      const Tensor a = draw(shapes[below(3)], dtype), b = draw(shapes[below(6)], dtype);
      const Tensor a_there = on_gpu(a, below(9)), b_there = on_gpu(b, below(9));
      SCOPED_TRACE(to_string(a.spec()) + to_string(b.spec()));
      expect_same(add(a_there, b_there), add(a, b), "add");
      expect_same(less(b_there, a_there), less(b, a), "less");
      if (!is_float(dtype)) continue;
      const Tensor dy = draw({rows, columns}, dtype), full = add(a, b);
      if (full.shape() != dy.shape()) continue;
      expect_same(vjp::minimum(on_gpu(dy, below(9)), a_there, b_there), vjp::minimum(dy, a, b),
                  "minimum_grad");
    }
  }
}

TEST_F(ElementwiseOnCuda, BroadcastsOfMoreAxesAgreeWithTheCpu) {
  const NoGrad no_grad;
  for (const DType dtype : kNumbers) {
    for (int round = 0; round < 60; ++round) {
      std::vector<int64_t> whole(static_cast<size_t>(3 + below(3)));
      for (int64_t& extent : whole) extent = 1 + below(9);
      if (round % 3 == 0) whole.back() = 1 + below(400);
      const auto draw_part = [&] {
        std::vector<int64_t> part = whole;
        for (int64_t& extent : part) extent = below(3) == 0 ? 1 : extent;
        return draw(Shape(part), dtype);
      };
      const Tensor a = draw_part(), b = draw_part();
      const Tensor a_there = on_gpu(a, below(9)), b_there = on_gpu(b, below(9));
      SCOPED_TRACE(to_string(a.spec()) + to_string(b.spec()));
      expect_same(add(a_there, b_there), add(a, b), "add");
      expect_same(greater_equal(b_there, a_there), greater_equal(b, a), "greater_equal");
      if (!is_float(dtype)) continue;
      const Shape full = add(a, b).shape();
      const Tensor dy = draw(full, dtype), wide = add(a, draw(full, dtype));
      expect_same(vjp::minimum(on_gpu(dy, below(9)), on_gpu(wide, below(9)), b_there),
                  vjp::minimum(dy, wide, b), "minimum_grad");
    }
  }
}

TEST_F(ElementwiseOnCuda, ComparisonsAgreeWithTheCpuForNumbersOfEveryOrder) {
  const NoGrad no_grad;
  using Compare = Tensor (*)(const Tensor&, const Tensor&);
  constexpr std::pair<const char*, Compare> kCompares[] = {{"equal", equal},
                                                           {"not_equal", not_equal},
                                                           {"less", less},
                                                           {"less_equal", less_equal},
                                                           {"greater", greater},
                                                           {"greater_equal", greater_equal},
                                                           {"logical_and", logical_and},
                                                           {"logical_or", logical_or},
                                                           {"logical_xor", logical_xor}};
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  const Tensor values = Tensor::from_values(std::vector<float>{-kInf, -2, -0.0F, 0, 1, 2, kInf, kNaN}, {8});
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                            DType::kInt64, DType::kInt32, DType::kUInt8, DType::kBool}) {
    const Tensor x = cast(values, dtype), row = reshape(x, {1, 8}), column = reshape(x, {8, 1});
    const Tensor rows = broadcast_to(row, {8, 8}), columns = broadcast_to(column, {8, 8});
    for (const auto& [name, compare] : kCompares) {
      expect_same(compare(on_gpu(row, 0), on_gpu(column, 0)), compare(row, column), name);
      expect_same(compare(on_gpu(rows, 0), on_gpu(columns, 0)), compare(rows, columns), name);
    }
  }
}

/// Only the elements of an output that begins anywhere are written, in place too.
TEST_F(ElementwiseOnCuda, OutputsThatBeginAnywhereLeaveTheirNeighbours) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (int64_t offset = 0; offset < 20; ++offset) {
      for (const int64_t count : {1, 7, 16, 33, 2049}) {
        const Tensor room = full({count + 40}, 3.0, dtype, Device::cuda());
        const auto skipped = static_cast<size_t>(offset) * size_of(dtype);
        const Tensor view = Tensor::over(room.storage(), room.offset_bytes() + skipped,
                                         {Shape{count}, dtype, Device::cuda()});
        fill_(view, 7.0);
        const auto values = as_double(room).to_vector<double>();
        for (int64_t i = 0; i < count + 40; ++i) {
          const bool inside = i >= offset && i < offset + count;
          ASSERT_EQ(values[static_cast<size_t>(i)], inside ? 7.0 : 3.0) << i << " at " << offset;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
