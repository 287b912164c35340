// Products of a matrix with one or a few vectors, for matvec, matmul and linear: what they are, which kernel
// takes them, and what they need on a GPU. Host code without devices.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include <sinter/core/base/dtype.h>
#include <sinter/ops/gemv/plan/column_plan.h>
#include <sinter/ops/gemv/plan/row_plan.h>

namespace sinter::ops {

/// The most vectors that one pass over the matrix takes; of the other types, whose sums and packs need more
/// registers, and for which cuBLASLt is good.
inline constexpr int kMostGemvVectors = 8, kMostOtherVectors = 4;

/// For each of `batch` dense row-major matrices a (rows, columns), and for each vector v of its own
/// `vectors`: y_v[i] = sum over j of a[i, j] x_v[j], or with `transpose` y_v[j] = sum over i of a[i, j]
/// x_v[i]. Strides are in elements; those of a and x from one matrix to the next may be 0.
struct GemvProblem {
  DType dtype = DType::kFloat32;
  bool transpose = false;
  int64_t batch = 1, rows = 0, columns = 0;
  int vectors = 1;
  int64_t a_stride = 0, x_stride = 0;
  int64_t x_vector = 0, x_element = 1;  ///< from a vector to the next, from an element to the next
  int64_t y_vector = 0, y_element = 1;
  int64_t processors = 1;  ///< of the GPU: cuda::DeviceTraits

  /// Elements of an input vector, and of an output vector.
  int64_t in() const { return transpose ? rows : columns; }
  int64_t out() const { return transpose ? columns : rows; }
};

/// Elements of 16 bytes.
inline int unit_elements(const GemvProblem& problem) {
  return 16 / static_cast<int>(size_of(problem.dtype));
}

/// Whether sums along rows may be taken of several rows together, so that what is loaded of the vectors
/// serves all: by a matrix's rows that are whole groups. More than four vectors are taken so alone.
inline bool may_group_rows(const GemvProblem& problem) {
  return problem.dtype == DType::kFloat32 && !problem.transpose && problem.vectors > 2 &&
         (problem.batch == 1 || problem.rows % RowSumPlan::kGroupRows == 0);
}

/// The plan of sums along rows, for accesses of `pack` elements: in groups where blocks are enough for all
/// processors.
inline RowSumPlan row_plan_of(const GemvProblem& problem, int pack) {
  const int64_t rows = problem.batch * problem.rows;
  const bool wide = pack == unit_elements(problem);
  if (may_group_rows(problem)) {
    const int lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(problem.vectors)));
    const RowSumPlan plan =
        plan_row_sums(problem.processors, rows, problem.columns, pack, wide, RowSumPlan::kGroupRows, lanes);
    const int64_t blocks = detail::divide_up(rows, plan.rows_per_block()) * plan.parts;
    if (problem.vectors > kMostOtherVectors || blocks >= problem.processors) return plan;
  }
  return plan_row_sums(problem.processors, rows, problem.columns, pack, wide);
}

/// Whether threads walk down whole columns (FewRowPlan).
inline bool takes_few_rows(const GemvProblem& problem) {
  return problem.vectors == 1 && problem.transpose &&
         is_few_rows(problem.processors, problem.batch, problem.rows, problem.columns,
                     unit_elements(problem));
}

/// Whether blocks walk along few long rows (LongRowPlan).
inline bool takes_long_rows(const GemvProblem& problem) {
  return problem.vectors == 1 && !problem.transpose && problem.x_element == 1 &&
         is_long_rows(problem.batch * problem.rows, problem.columns, unit_elements(problem));
}

/// The same product where the matrix is one column: sums along a row, or a long column, which is scaled, as a
/// row.
inline GemvProblem without_single_column(GemvProblem problem) {
  if (problem.vectors != 1 || problem.columns != 1) return problem;
  if (problem.transpose && problem.x_element == 1) {
    problem.transpose = false;
    problem.columns = std::exchange(problem.rows, 1);
  } else if (!problem.transpose &&
             is_few_rows(problem.processors, problem.batch, 1, problem.rows, unit_elements(problem))) {
    problem.transpose = true;
    problem.columns = std::exchange(problem.rows, 1);
  }
  return problem;
}

/// Whether sums along rows may be read in aligned units (UnitRowPlan), and whether they are where the
/// operands allow accesses of `pack` elements: where these are narrower than units and so many that a row's
/// are not taken at once, or single 16-bit elements; of matrices of some size, where they have 4 bytes or
/// fewer.
inline bool may_take_unit_rows(const GemvProblem& problem) {
  constexpr int64_t kLeastRows = 8, kLeastUnits = 8;
  constexpr int64_t kLeast = int64_t{1} << 16;  // units
  if (problem.vectors != 1 || problem.transpose || problem.x_element != 1) return false;
  const int64_t units = problem.columns / unit_elements(problem);
  return problem.rows >= kLeastRows && units >= kLeastUnits &&
         problem.batch * problem.rows >= detail::divide_up(kLeast, units);
}
inline bool takes_unit_rows(const GemvProblem& problem, int pack) {
  constexpr int64_t kLarge = int64_t{1} << 18;  // units
  if (!may_take_unit_rows(problem) || pack >= unit_elements(problem)) return false;
  const int64_t rows = problem.batch * problem.rows, units = problem.columns / unit_elements(problem);
  if (4 * pack <= unit_elements(problem) && rows >= detail::divide_up(kLarge, units)) return true;
  return (pack == 1 && is_half(problem.dtype)) ||
         !plan_row_sums(problem.processors, rows, problem.columns, pack, false).at_once;
}

/// Rows that together are whole units.
inline int rows_of_fold(const GemvProblem& problem) {
  return unit_elements(problem) /
         static_cast<int>(std::gcd(problem.columns, int64_t{unit_elements(problem)}));
}

/// Whether sums along columns are taken of a matrix whose every rows_of_fold() rows count as one, if it
/// begins at a whole unit: those of one vector and of rows that fill no units, with rows enough that the sums
/// of a folded row are few. Each unit lies in two rows at most.
inline bool takes_folded_rows(const GemvProblem& problem) {
  const int64_t least_rows = is_half(problem.dtype) ? 64 : 32;  // folded
  constexpr int64_t kLeast = int64_t{1} << 16, kMostColumns = int64_t{1} << 27;
  if (problem.vectors != 1 || !problem.transpose || takes_few_rows(problem)) return false;
  const int64_t pack = unit_elements(problem), fold = rows_of_fold(problem);
  if (fold == 1 || problem.columns < pack - 1 || problem.columns > kMostColumns) return false;
  if (problem.rows < fold * least_rows) return false;
  if (problem.batch > 1 && problem.rows % fold != 0) return false;
  return problem.batch * problem.rows >= kLeast * pack / problem.columns;
}

/// The plan of a product that is folded: blocks of several batches of rows, whose ends are the more costly.
inline ColumnSumPlan folded_plan_of(const GemvProblem& problem) {
  const int64_t most_blocks = problem.processors * ColumnSumPlan::kBlocks * 7 / 2;
  const int fold = rows_of_fold(problem);
  const int pack = unit_elements(problem);
  const int64_t rows = problem.rows / fold, columns = problem.columns * fold;
  return plan_column_sums(
      problem.processors, problem.batch, rows, columns, pack, most_blocks,
      detail::folded_width(problem.processors, problem.batch, rows, columns / pack, problem.columns));
}

/// Whether its blocks have whole folded rows, and add what these hold of a column: a sum of each thread.
inline bool adds_whole_rows(const GemvProblem& problem, const ColumnSumPlan& plan) {
  return plan.tiles == 1 && problem.columns <= ColumnSumPlan::kThreads;
}

/// Sums of a column that it writes to a table, if more than 1: with stripes, the rows of a folded row are
/// parts of their own.
inline int64_t folded_parts(const GemvProblem& problem, const ColumnSumPlan& plan) {
  return adds_whole_rows(problem, plan) ? plan.parts : plan.parts * rows_of_fold(problem);
}

/// Whether the kernels understand how the vectors lie: sums along rows read them as dense vectors, or as the
/// rows of a dense (in, vectors) matrix.
inline bool can_gemv(const GemvProblem& problem) {
  if (problem.vectors < 1 || problem.vectors > kMostGemvVectors) return false;
  if (problem.vectors > kMostOtherVectors) {
    const bool sums_rows = !problem.transpose;
    if (sums_rows ? !may_group_rows(problem) : problem.dtype != DType::kFloat32) return false;
  }
  if (problem.transpose || problem.vectors == 1) return problem.transpose || problem.x_element == 1;
  if (problem.x_element == 1) return problem.x_vector == problem.columns;
  return problem.x_vector == 1 && problem.x_element == problem.vectors &&
         std::has_single_bit(static_cast<unsigned>(problem.vectors));
}

/// Scratch for the problem wherever its operands lie: the sums of the plan with the most parts.
inline size_t gemv_workspace(const GemvProblem& given) {
  const GemvProblem problem = without_single_column(given);
  if (takes_few_rows(problem)) return 0;
  const int widest = unit_elements(problem);
  int64_t most = 1;
  if (takes_long_rows(problem)) {
    most = plan_long_rows(problem.processors, problem.batch, problem.rows, problem.columns, widest).parts;
  } else if (may_take_unit_rows(problem)) {
    most = plan_unit_rows(problem.processors, problem.batch, problem.rows, problem.columns, widest).parts;
  } else if (takes_folded_rows(problem)) {
    most = folded_parts(problem, folded_plan_of(problem));
  }
  for (int pack = 1; pack <= widest && problem.columns % pack == 0; pack *= 2) {
    const int64_t parts =
        problem.transpose
            ? plan_column_sums(problem.processors, problem.batch, problem.rows, problem.columns, pack).parts
            : row_plan_of(problem, pack).parts;
    most = std::max(most, parts);
  }
  const auto sums = static_cast<size_t>(problem.batch * problem.out() * problem.vectors);
  return most == 1 ? 0 : static_cast<size_t>(most) * sums * size_of(accumulate_dtype(problem.dtype));
}

}  // namespace sinter::ops
