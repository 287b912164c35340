// Planning of permutations, and what the generic samples of the moving ops do not reach.
#include <algorithm>
#include <numeric>

#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/plan/permute_plan.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;
using testing::Floats;
using testing::message_of;

/// Input offsets in the order of the output.
std::vector<int64_t> walk(std::span<const int64_t> extents, std::span<const int> axes) {
  const size_t rank = axes.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  int64_t count = 1;
  for (int64_t extent : extents) count *= extent;
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  std::vector<int64_t> at(rank);
  int64_t from = 0;
  for (int64_t& offset : offsets) {
    offset = from;
    for (size_t i = rank; i-- > 0;) {
      const auto axis = static_cast<size_t>(axes[i]);
      from += strides[axis];
      if (++at[i] < extents[axis]) break;
      from -= at[i] * strides[axis];
      at[i] = 0;
    }
  }
  return offsets;
}

void expect_simplest(const PermutePlan& plan) {
  const auto rank = static_cast<size_t>(plan.rank);
  for (size_t i = 0; i < rank; ++i) {
    ASSERT_GT(plan.extents[i], 1);
    if (i == 0) continue;
    ASSERT_NE(plan.axes[i], plan.axes[i - 1] + 1) << "axes could be merged";
  }
  ASSERT_FALSE(plan.is_copy() && plan.is_transpose());
  if (plan.is_transpose()) {
    ASSERT_EQ(plan.axes[rank - 1], plan.rank - 2);
    ASSERT_EQ(plan.axes[rank - 2], plan.rank - 1);
  }
}

TEST(PermutePlanTest, KeepsTheOrderOfElementsAndIsSimplestInRandomCases) {
  Generator generator(7);
  std::array<int, 3> seen{};
  for (int i = 0; i < 120000; ++i) {
    const size_t rank = generator.below(kMaxRank + 1);
    std::vector<int64_t> extents(rank);
    for (int64_t& extent : extents)
      extent = static_cast<int64_t>(generator.below(rank > 5 ? 3 : 4)) + (i % 50 != 0);
    std::vector<int> axes(rank);
    std::iota(axes.begin(), axes.end(), 0);
    if (generator.below(4) == 0) {  // few exchanges leave more to merge
      if (rank > 1) std::swap(axes[generator.below(rank)], axes[generator.below(rank)]);
    } else {
      for (size_t j = rank; j > 1; --j) std::swap(axes[j - 1], axes[generator.below(j)]);
    }
    const Shape shape(extents);
    const PermutePlan plan = plan_permute(shape, axes);
    ++seen[plan.is_copy() ? 0 : plan.is_transpose() ? 1 : 2];
    if (shape.numel() == 0) {
      ASSERT_TRUE(plan.is_copy());
      ASSERT_EQ(plan.rank, 0);
      continue;
    }
    expect_simplest(plan);
    if (HasFatalFailure()) FAIL() << "case " << i << " of shape " << to_string(shape);
    const auto plan_rank = static_cast<size_t>(plan.rank);
    if (shape.numel() > 200 && i % 8 != 0) continue;  // the walk is the dear part
    ASSERT_EQ(walk(extents, axes), walk({plan.extents.data(), plan_rank}, {plan.axes.data(), plan_rank}))
        << "case " << i << " of shape " << to_string(shape);
  }
  for (int count : seen) EXPECT_GT(count, 3000) << "each kind is to be tested";
}

TEST(PermutePlanTest, TurnsLayoutChangesIntoBatchedTransposes) {
  const std::array<int, 4> to_nhwc = {0, 2, 3, 1};
  const PermutePlan plan = plan_permute({8, 64, 7, 5}, to_nhwc);
  EXPECT_TRUE(plan.is_transpose());
  EXPECT_EQ(plan.extent(0), 8);
  EXPECT_EQ(plan.extent(1), 64);
  EXPECT_EQ(plan.extent(2), 35);
  EXPECT_TRUE(plan_permute({8, 1, 7, 5}, to_nhwc).is_copy());
  EXPECT_TRUE(plan_permute({8, 64, 1, 1}, to_nhwc).is_copy());
  const std::array<int, 3> swapped = {1, 0, 2};
  const PermutePlan general = plan_permute({2, 3, 4}, swapped);
  EXPECT_FALSE(general.is_copy() || general.is_transpose());
  EXPECT_EQ(general.input_stride(0), 12);
  EXPECT_EQ(general.output_stride(0), 8);
}

template <class T>
void expect_transposed(int64_t rows, int64_t columns) {
  const Tensor x = Tensor::empty({2, rows, columns}, dtype_of<T>);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<T>()[i] = static_cast<T>(i * 7 % 251);
  const Tensor y = permute(x, {0, 2, 1});
  ASSERT_EQ(y.shape(), (Shape{2, columns, rows}));
  ASSERT_EQ(y.dtype(), x.dtype());
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(y.data<T>()[(b * columns + c) * rows + r], x.data<T>()[(b * rows + r) * columns + c])
            << to_string(x.spec()) << " at " << b << ", " << r << ", " << c;
      }
    }
  }
}

TEST(PermuteTest, TransposesEveryElementSizeAndEdge) {
  for (int64_t rows : {1, 2, 3, 4, 5, 16, 31, 129}) {
    for (int64_t columns : {1, 2, 3, 4, 7, 16, 33, 65}) {
      expect_transposed<uint8_t>(rows, columns);
      expect_transposed<bool>(rows, columns);
      expect_transposed<int32_t>(rows, columns);
      expect_transposed<int64_t>(rows, columns);
      expect_transposed<float16>(rows, columns);
    }
  }
}

TEST(PermuteTest, GivesTheSameOnAnyNumberOfThreads) {
  const Tensor x = counting({3, 40, 50, 20});
  const int before = num_threads();
  set_num_threads(1);
  const auto one = permute(x, {2, 0, 3, 1}).to_vector<float>();
  set_num_threads(4);
  const auto four = permute(x, {2, 0, 3, 1}).to_vector<float>();
  set_num_threads(before);
  EXPECT_EQ(one, four);
}

TEST(PermuteTest, CopiesEvenWhenNothingMoves) {
  const Tensor x = counting({2, 3});
  const Tensor y = permute(x, {0, 1});
  EXPECT_NE(y.raw_data(), x.raw_data());
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(transpose(x, 0, -1).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(permute(Tensor::scalar(2.0f), {}).item(), 2.0);
  EXPECT_EQ(permute(counting({0, 3, 2}), {2, 0, 1}).shape(), (Shape{2, 0, 3}));
}

TEST(PermuteTest, NamesWhatIsWrong) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(message_of([&] { permute(x, {0}); }), "[permute] expected 2 axes but got 1");
  EXPECT_EQ(message_of([&] { permute(x, {0, -2}); }), "[permute] axis 0 is named twice");
  EXPECT_EQ(message_of([&] {
              permute(x, {0, 2});
            }),
            "[permute] axis 2 is out of range for a tensor of rank 2");
  EXPECT_EQ(message_of([&] { transpose(x, 0, 5); }),
            "[transpose] axis 5 is out of range for a tensor of rank 2");
}

}  // namespace
}  // namespace sinter::ops
