// Products with one vector that are read in units of 16 bytes: how they are cut, and a run of the kernels'
// loops on the CPU, element by element.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/gemv/gemv_problem.h>
#include <sinter/ops/gemv/plan/row_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

constexpr int kCases = 100000;
constexpr int64_t kProcessors = 132;  // of an H100

std::string text(int64_t batch, int64_t rows, int64_t columns, int pack) {
  return std::to_string(batch) + " of " + std::to_string(rows) + " x " + std::to_string(columns) + " pack " +
         std::to_string(pack);
}

TEST(UnitRowPlan, FitsTheKernelAndTheGpu) {
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t batch = generator.uniform() < 0.5 ? 1 : extent(generator, 12),
                  rows = std::min(extent(generator, 30), (int64_t{1} << 30) / batch),
                  columns = extent(generator, 34) + 8 * pack;
    SCOPED_TRACE(text(batch, rows, columns, pack));
    const UnitRowPlan plan = plan_unit_rows(kProcessors, batch, rows, columns, pack);
    ASSERT_TRUE(plan.lanes == 8    ? plan.units >= 2 && plan.units <= 4
                : plan.lanes == 16 ? plan.units == 3 || plan.units == 4
                                   : plan.lanes == 32 && (plan.units == 1 || plan.units == 2));
    ASSERT_TRUE(plan.lanes == 32 || plan.spans == 1) << "a row that a part of a warp does not hold";
    ASSERT_TRUE(plan.lanes >= 2 * pack || 2 * pack % plan.lanes == 0) << "a row's ends";
    ASSERT_LT(plan.group_rows, int64_t{1} << 31);
    ASSERT_EQ(plan.slots() % pack, 0) << "rows of a group begin at different places of a unit";
    ASSERT_EQ(plan.group_rows % plan.slots(), 0);
    ASSERT_GE(plan.groups * plan.group_rows, rows);
    ASSERT_LT((plan.groups - 1) * plan.group_rows, rows) << "a block without rows";
    ASSERT_GE(plan.spans * plan.span(), columns / pack);
    ASSERT_GE(plan.parts * plan.part_spans, plan.spans);
    ASSERT_LT((plan.parts - 1) * plan.part_spans, plan.spans) << "an empty part";
    ASSERT_LT(batch * plan.groups * plan.parts, int64_t{1} << 31);
    if (plan.parts > 1) {
      ASSERT_LE(batch * plan.groups * plan.parts, 2 * (kProcessors * detail::kBlocksOfProcessor))
          << "a table that is not small";
    }
  }
}

/// How often the kernel's threads take each element of a matrix that begins `base` elements behind a unit.
std::vector<int> visits_of_unit_rows(const UnitRowPlan& plan, int64_t rows, int64_t columns, int pack,
                                     int64_t base) {
  std::vector<int> visits(static_cast<size_t>(rows * columns));
  const int64_t part_units = plan.part_spans * plan.span();
  const auto visit = [&](int64_t row, int64_t column) {
    ASSERT_TRUE(row < rows && column >= 0 && column < columns) << row << ", " << column;
    ++visits[static_cast<size_t>(row * columns + column)];
  };
  for (int64_t block = 0; block < plan.groups * plan.parts; ++block) {
    const int64_t part = block % plan.parts, begin = block / plan.parts * plan.group_rows,
                  end = std::min(begin + plan.group_rows, rows);
    for (int thread = 0; thread < UnitRowPlan::kThreads; ++thread) {
      const int lane = thread % plan.lanes, slot = thread / plan.lanes;
      const int64_t rest = (base + (begin + slot) * columns) % pack, front = (pack - rest) % pack,
                    units = (columns - front) / pack;
      const int64_t last = std::min((part + 1) * part_units, units);
      for (int64_t row = begin + slot; row < end; row += plan.slots()) {
        EXPECT_EQ((base + row * columns) % pack, rest) << "not shifted alike";
        for (int64_t place = lane; place < std::max(2 * pack, plan.lanes); place += plan.lanes) {
          const int64_t end_element = place < pack ? place : front + units * pack + place - pack;
          const bool has_end =
              place < pack ? part == 0 && place < front : part == plan.parts - 1 && end_element < columns;
          if (has_end) visit(row, end_element);
        }
        for (int64_t unit = part * part_units + lane; unit < last; unit += plan.span()) {
          for (int k = 0; k < plan.units; ++k) {
            if (unit + k * plan.lanes >= last) continue;
            for (int j = 0; j < pack; ++j) visit(row, front + (unit + k * plan.lanes) * pack + j);
          }
        }
      }
    }
  }
  return visits;
}

TEST(UnitRowPlan, ThreadsTakeEveryElementOnce) {
  Generator generator(2);
  for (int i = 0; i < 2000; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t rows = extent(generator, 9), columns = 8 * pack + extent(generator, 12);
    const int64_t base = integer(generator, 0, pack - 1);
    SCOPED_TRACE(text(1, rows, columns, pack) + " base " + std::to_string(base));
    const std::vector<int> visits =
        visits_of_unit_rows(plan_unit_rows(kProcessors, 1, rows, columns, pack), rows, columns, pack, base);
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(UnitRowPlan, LargeMatricesKeepTheGpuBusy) {
  Generator generator(3);
  for (int i = 0; i < kCases; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t elements = int64_t{pack} << 20, rows = 8 + extent(generator, 16), columns = elements / rows;
    if (columns < 8 * pack) continue;
    SCOPED_TRACE(text(1, rows, columns, pack));
    const UnitRowPlan plan = plan_unit_rows(kProcessors, 1, rows, columns, pack);
    ASSERT_GE(plan.groups * plan.parts, 132);
  }
}

/// How often the blocks of a matrix take each of its elements; it begins `base` elements behind a unit, the
/// vector `x_base`.
std::vector<int> visits_of_long_rows(const LongRowPlan& plan, int64_t rows, int64_t columns, int pack,
                                     int64_t base, int64_t x_base) {
  std::vector<int> visits(static_cast<size_t>(rows * columns));
  const int64_t front = (pack - x_base) % pack;
  for (int64_t group = 0; group < plan.groups; ++group) {
    const int64_t full = plan.full_groups(rows),
                  first_row = LongRowPlan::first_row(group, plan.group_rows, full);
    const int64_t end_row = first_row + plan.group_rows - (group < full ? 0 : 1);
    std::vector<int64_t> shifts;
    for (int64_t row = first_row; row < end_row; ++row) {
      shifts.push_back((2 * pack - (base + row * columns + front) % pack) % pack);
    }
    const bool is_shifted =
        std::any_of(shifts.begin(), shifts.end(), [](int64_t shift) { return shift != 0; });
    const int64_t units = (columns - front) / pack - (is_shifted ? 1 : 0);
    EXPECT_LE(front + (units + (is_shifted ? 1 : 0)) * pack, columns) << "read behind the vector";
    for (int64_t row = first_row; row < end_row; ++row) {
      EXPECT_LT(row, rows);
      int* const taken = visits.data() + row * columns;
      const int64_t begin = front + shifts[static_cast<size_t>(row - first_row)],
                    behind = begin + units * pack;
      EXPECT_EQ((base + row * columns + begin) % pack, 0) << "inside of a unit";
      EXPECT_LE(begin, 16) << "a front with more elements than threads";
      EXPECT_LE(columns - behind, 16) << "an end with more elements than threads";
      for (int64_t part = 0; part < plan.parts; ++part) {
        constexpr int64_t at_once = LongRowPlan::kThreads;
        for (int64_t first = part * at_once; first < units; first += plan.parts * at_once) {
          const int64_t end = std::min(first + at_once, units);
          for (int64_t j = first * pack; j < end * pack; ++j) ++taken[begin + j];
        }
        for (int64_t lane = 0; lane < 32; ++lane) {
          const int64_t element = lane < 16 ? lane : behind + lane - 16;
          const bool has =
              lane < 16 ? part == 0 && element < begin : part + 1 == plan.parts && element < columns;
          if (has) ++taken[element];
        }
      }
    }
  }
  return visits;
}

TEST(LongRowPlan, BlocksTakeEveryElementOnce) {
  Generator generator(8);
  for (int i = 0; i < kCases; ++i) {
    const int pack = 2 << integer(generator, 0, 2);
    const int64_t batch = generator.uniform() < 0.7 ? 1 : integer(generator, 1, 8),
                  rows = integer(generator, 1, generator.uniform() < 0.5 ? 64 : 11) / batch + 1,
                  columns = pack * int64_t{2048} + extent(generator, 36);
    SCOPED_TRACE(text(batch, rows, columns, pack));
    if (!is_long_rows(batch * rows, columns, pack)) continue;
    const LongRowPlan plan = plan_long_rows(kProcessors, batch, rows, columns, pack);
    const int64_t units = columns / pack, blocks = batch * plan.groups * plan.parts;
    ASSERT_TRUE(plan.group_rows >= 1 && plan.group_rows <= LongRowPlan::kMostGroupRows);
    ASSERT_TRUE(plan.full_groups(rows) >= 1 && plan.full_groups(rows) <= plan.groups) << "groups that differ";
    ASSERT_LT((plan.parts - 1) * LongRowPlan::kThreads, units) << "an empty part";
    ASSERT_LE(plan.parts, 65535);
    ASSERT_LE(blocks, 4 * 396) << "a table that is not small";
    ASSERT_GE(detail::divide_up(units, plan.parts) * plan.group_rows, LongRowPlan::kThreads * 2)
        << "threads with little to do";
    if (units >= int64_t{1} << 19) {
      ASSERT_GE(blocks, 330) << "idle processors";
    }
    if (i % 100 != 0 || rows * columns > 1 << 22) continue;
    const std::vector<int> visits = visits_of_long_rows(
        plan, rows, columns, pack, integer(generator, 0, pack - 1), integer(generator, 0, pack - 1));
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
    if (HasFailure()) return;
  }
}

TEST(LongRowPlan, GroupsHaveAsManyRowsAsPay) {
  const auto group_rows = [](int64_t rows, int64_t columns) {
    return plan_long_rows(kProcessors, 1, rows, columns, 8).group_rows;
  };
  EXPECT_EQ(group_rows(1, 16 << 20), 1);
  EXPECT_EQ(group_rows(2, 16 << 20), 2);
  EXPECT_EQ(group_rows(5, 16 << 20), 3);
  EXPECT_EQ(group_rows(7, 8 << 20), 4);
  EXPECT_EQ(group_rows(9, 8 << 20), 3);
  EXPECT_EQ(group_rows(32, 2 << 20), 4);
}

GemvProblem vector_problem(DType dtype, bool transpose, int64_t rows, int64_t columns, int64_t batch = 1) {
  return {.dtype = dtype,
          .transpose = transpose,
          .batch = batch,
          .rows = rows,
          .columns = columns,
          .processors = kProcessors};
}

TEST(UnitProduct, TakesLongRowsThatFillNoPacks) {
  const auto takes = [](DType dtype, int64_t rows, int64_t columns, int pack) {
    return takes_unit_rows(vector_problem(dtype, false, rows, columns), pack);
  };
  EXPECT_TRUE(takes(DType::kFloat16, 1142520, 171, 1));
  EXPECT_TRUE(takes(DType::kBFloat16, 59, 226169, 1));
  EXPECT_TRUE(takes(DType::kFloat32, 9547, 2999, 1));
  EXPECT_TRUE(takes(DType::kFloat64, 816, 673, 1));
  EXPECT_TRUE(takes(DType::kFloat32, 9547, 2998, 2));
  EXPECT_FALSE(takes(DType::kFloat32, 9547, 3000, 4)) << "rows of whole units";
  EXPECT_FALSE(takes(DType::kBFloat16, 5033, 32768, 8)) << "however long";
  EXPECT_TRUE(takes(DType::kFloat32, 95470, 131, 1)) << "loads of 4 bytes, of a large matrix";
  EXPECT_TRUE(takes(DType::kBFloat16, 95470, 130, 2));
  EXPECT_FALSE(takes(DType::kFloat32, 4770, 131, 1)) << "rows that are taken at once";
  EXPECT_FALSE(takes(DType::kFloat32, 95470, 130, 2)) << "the same, by loads of 8 bytes";
  EXPECT_FALSE(takes(DType::kFloat64, 95470, 131, 1));
  EXPECT_FALSE(takes(DType::kFloat16, 1142520, 63, 1)) << "short rows";
  EXPECT_FALSE(takes(DType::kFloat16, 7, 1000001, 1)) << "fewer rows than a block has groups";
  EXPECT_FALSE(takes(DType::kFloat32, 100, 999, 1)) << "a small matrix";
}

TEST(UnitProduct, HasScratchForItsParts) {
  Generator generator(5);
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};
  for (int i = 0; i < kCases; ++i) {
    const DType dtype = kDTypes[i % 4];
    const GemvProblem problem = vector_problem(dtype, false, extent(generator, 20), extent(generator, 20),
                                               generator.uniform() < 0.7 ? 1 : extent(generator, 6));
    const bool is_long = takes_long_rows(problem);
    if (!is_long && !may_take_unit_rows(problem)) continue;
    const int pack = unit_elements(problem);
    const int64_t parts =
        is_long ? plan_long_rows(kProcessors, problem.batch, problem.rows, problem.columns, pack).parts
                : plan_unit_rows(kProcessors, problem.batch, problem.rows, problem.columns, pack).parts;
    if (parts == 1) continue;
    const int64_t sums = problem.batch * problem.rows * parts;
    ASSERT_GE(gemv_workspace(problem), static_cast<size_t>(sums) * size_of(accumulate_dtype(dtype)));
  }
}

}  // namespace
}  // namespace sinter::ops
