// Products of a matrix with one or a few vectors, for matvec and matmul: what they are, and what they need on
// a GPU. Host code without devices.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include <sinter/core/base/dtype.h>
#include <sinter/ops/matvec/plan/few_row_plan.h>
#include <sinter/ops/matvec/plan/long_row_product_plan.h>
#include <sinter/ops/matvec/plan/narrow_column_plan.h>
#include <sinter/ops/matvec/plan/row_product_plan.h>
#include <sinter/ops/matvec/plan/staged_plan.h>
#include <sinter/ops/matvec/plan/thin_plan.h>
#include <sinter/ops/matvec/plan/unit_plan.h>

namespace sinter::ops {

/// The most vectors that one pass over the matrix takes: of small matrices, and of those that go through
/// shared memory.
inline constexpr int kMostDirectVectors = 8, kMostThinVectors = kMostStagedVectors;

/// For each of `batch` dense row-major matrices a (rows, columns), and for each vector v of its own
/// `vectors`: y_v[i] = sum over j of a[i, j] x_v[j], or with `transpose` y_v[j] = sum over i of a[i, j]
/// x_v[i]. Strides are in elements; those of a and x from one matrix to the next may be 0.
struct ThinProblem {
  DType dtype = DType::kFloat32;
  bool transpose = false;
  int64_t batch = 1, rows = 0, columns = 0;
  int vectors = 1;
  int64_t a_stride = 0, x_stride = 0;
  int64_t x_vector = 0, x_element = 1;  ///< from a vector to the next, from an element to the next
  int64_t y_vector = 0, y_element = 1;

  /// Elements of an input vector, and of an output vector.
  int64_t in() const { return transpose ? rows : columns; }
  int64_t out() const { return transpose ? columns : rows; }
};

/// Whether several vectors lie densely: one after the other, or as the rows of an (in, vectors) matrix.
inline bool has_dense_vectors(const ThinProblem& problem) {
  return problem.x_element == 1 ? problem.x_vector == problem.in()
                                : problem.x_vector == 1 && problem.x_element == problem.vectors;
}

/// Elements of 16 bytes.
inline int unit_elements(const ThinProblem& problem) {
  return 16 / static_cast<int>(size_of(problem.dtype));
}

/// Whether threads walk down whole columns (FewRowPlan).
inline bool takes_few_rows(const ThinProblem& problem) {
  return problem.vectors == 1 && problem.transpose &&
         is_few_rows(problem.batch, problem.rows, problem.columns, unit_elements(problem));
}

/// Whether blocks walk along few long rows (LongRowPlan).
inline bool takes_long_rows(const ThinProblem& problem) {
  return problem.vectors == 1 && !problem.transpose && problem.x_element == 1 &&
         is_long_rows(problem.batch * problem.rows, problem.columns, unit_elements(problem));
}

/// Whether all matrices are multiplied with the same vectors.
inline bool shares_vector(const ThinProblem& problem) {
  return problem.batch == 1 || problem.x_stride == 0;
}

/// Whether short rows go through shared memory (PackedRowPlan), if the matrices begin at a multiple of 16
/// bytes: those of matrices without gaps, which share a vector or have many rows each.
inline bool takes_packed_rows(const ThinProblem& problem) {
  constexpr int64_t kManyRows = int64_t{1} << 12, kMostRows = int64_t{1} << 31;
  const int64_t columns = problem.columns, rows = problem.batch * problem.rows;
  const bool gapless = problem.batch == 1 || problem.a_stride == problem.rows * columns;
  const bool few_vectors = shares_vector(problem) || (problem.rows >= kManyRows && rows <= kMostRows);
  return problem.vectors == 1 && !problem.transpose && problem.x_element == 1 && is_half(problem.dtype) &&
         gapless && few_vectors && columns >= 2 && columns <= PackedRowPlan::kMostColumns &&
         columns % unit_elements(problem) != 0 && rows >= PackedRowPlan::kLeastBytes / 2 / columns;
}

/// The same product where the matrix is one column: sums along a row, or a long column, which is scaled, as a
/// row.
inline ThinProblem without_single_column(ThinProblem problem) {
  if (problem.vectors != 1 || problem.columns != 1) return problem;
  if (problem.transpose && problem.x_element == 1) {
    problem.transpose = false;
    problem.columns = std::exchange(problem.rows, 1);
  } else if (!problem.transpose && is_few_rows(problem.batch, 1, problem.rows, unit_elements(problem))) {
    problem.transpose = true;
    problem.columns = std::exchange(problem.rows, 1);
  }
  return problem;
}

/// Whether sums along rows may be read in aligned units (UnitRowPlan), and whether they are where the
/// operands allow accesses of `pack` elements: where these are narrower than units and so many that a row's
/// are not taken at once, or single 16-bit elements; of matrices of some size, where they have 4 bytes or
/// fewer.
inline bool may_take_unit_rows(const ThinProblem& problem) {
  constexpr int64_t kLeastRows = 8, kLeastUnits = 8;
  constexpr int64_t kLeast = int64_t{1} << 16;  // units
  if (problem.vectors != 1 || problem.transpose || problem.x_element != 1) return false;
  const int64_t units = problem.columns / unit_elements(problem);
  return problem.rows >= kLeastRows && units >= kLeastUnits &&
         problem.batch * problem.rows >= detail::divide_up(kLeast, units);
}
inline bool takes_unit_rows(const ThinProblem& problem, int pack) {
  constexpr int64_t kLarge = int64_t{1} << 18;  // units
  if (!may_take_unit_rows(problem) || pack >= unit_elements(problem)) return false;
  const int64_t rows = problem.batch * problem.rows, units = problem.columns / unit_elements(problem);
  if (4 * pack <= unit_elements(problem) && rows >= detail::divide_up(kLarge, units)) return true;
  return (pack == 1 && is_half(problem.dtype)) || !plan_row_sums(rows, problem.columns, pack, false).at_once;
}

/// Rows that together are whole units.
inline int rows_of_fold(const ThinProblem& problem) {
  return unit_elements(problem) /
         static_cast<int>(std::gcd(problem.columns, int64_t{unit_elements(problem)}));
}

/// Whether sums along columns are taken of a matrix whose every rows_of_fold() rows count as one, if it
/// begins at a whole unit: those of one vector and of rows that fill no units, with rows enough that the sums
/// of a folded row are few. Each unit lies in two rows at most.
inline bool takes_folded_rows(const ThinProblem& problem) {
  const int64_t least_rows = is_half(problem.dtype) ? 64 : 32;  // folded
  constexpr int64_t kLeast = int64_t{1} << 16, kMostColumns = int64_t{1} << 27;
  if (problem.vectors != 1 || !problem.transpose || takes_few_rows(problem)) return false;
  const int64_t pack = unit_elements(problem), fold = rows_of_fold(problem);
  if (fold == 1 || problem.columns < pack - 1 || problem.columns > kMostColumns) return false;
  if (problem.rows < fold * least_rows) return false;
  if (problem.batch > 1 && problem.rows % fold != 0) return false;
  return problem.batch * problem.rows >= kLeast * pack / problem.columns;
}

/// Whether sums run along very few columns that fill no units (NarrowColumnPlan), if the matrices begin at
/// multiples of as many elements as rows and units have in common.
inline bool takes_narrow_columns(const ThinProblem& problem) {
  constexpr int64_t kLeast = int64_t{1} << 16, kLeastOfMatrix = int64_t{1} << 10;  // units
  const int pack = unit_elements(problem);
  return problem.vectors == 1 && problem.transpose && problem.x_element == 1 && problem.columns >= 2 &&
         problem.columns <= NarrowColumnPlan::most_columns(pack) && problem.columns % pack != 0 &&
         problem.rows >= kLeastOfMatrix * pack / problem.columns &&
         problem.batch * problem.rows >= kLeast * pack / problem.columns;
}

/// The plan of a product that is folded: blocks of several batches of rows, whose ends are the more costly.
inline ColumnSumPlan folded_plan_of(const ThinProblem& problem) {
  constexpr int64_t kMostBlocks = ColumnSumPlan::kWave * 7 / 2;
  const int fold = rows_of_fold(problem);
  const int pack = unit_elements(problem);
  const int64_t rows = problem.rows / fold, columns = problem.columns * fold;
  return plan_column_sums(problem.batch, rows, columns, pack, kMostBlocks,
                          detail::folded_width(problem.batch, rows, columns / pack, problem.columns));
}

/// Whether its blocks have whole folded rows, and add what these hold of a column: a sum of each thread.
inline bool adds_whole_rows(const ThinProblem& problem, const ColumnSumPlan& plan) {
  return plan.tiles == 1 && problem.columns <= ColumnSumPlan::kThreads;
}

/// Sums of a column that it writes to a table, if more than 1: with stripes, the rows of a folded row are
/// parts of their own.
inline int64_t folded_parts(const ThinProblem& problem, const ColumnSumPlan& plan) {
  return adds_whole_rows(problem, plan) ? plan.parts : plan.parts * rows_of_fold(problem);
}

/// Whether a product with one vector, of a matrix of some size, goes through shared memory: of 16-bit
/// elements in few long rows that fill no packs of 16 bytes, or along them none of 8, which other kernels
/// would load one by one.
inline bool is_staged_vector(const ThinProblem& problem) {
  constexpr int64_t kFewRows = 1024, kLongRow = 4096, kLarge = int64_t{1} << 20;
  if (problem.x_element != 1 || !is_half(problem.dtype) || takes_long_rows(problem)) return false;
  const int64_t pack = unit_elements(problem);
  if (!problem.transpose) {
    return !may_take_unit_rows(problem) && problem.columns % (pack / 2) != 0 && problem.columns >= kLongRow &&
           problem.rows >= (kLarge - 1) / problem.columns + 1;
  }
  if (takes_few_rows(problem) || takes_folded_rows(problem)) return false;
  return problem.columns % pack != 0 && problem.rows <= kFewRows && problem.columns >= kLongRow;
}

/// Whether a product goes through shared memory (staged_plan.h): one of several vectors with a matrix that is
/// worth the kernel's preparations, or of one vector as is_staged_vector has it.
inline bool is_staged(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 15;
  if (problem.rows <= 0 || problem.columns <= 0) return false;
  if (problem.rows < (kLeastElements - 1) / problem.columns + 1) return false;
  if (problem.vectors == 1) return is_staged_vector(problem);
  return problem.vectors > 1 && problem.vectors <= kMostStagedVectors && has_dense_vectors(problem);
}

/// The plan of a product that is staged.
inline StagedPlan staged_plan_of(const ThinProblem& problem) {
  const auto element_bytes = static_cast<int>(size_of(problem.dtype));
  return plan_staged({.element_bytes = element_bytes,
                      .tensor_cores = multiplies_on_tensor_cores(element_bytes, problem.out(), problem.in(),
                                                                 problem.vectors),
                      .transpose = problem.transpose,
                      .dense_vectors = problem.x_element == 1,
                      .batch = problem.batch,
                      .outs = problem.out(),
                      .terms = problem.in(),
                      .vectors = problem.vectors});
}

/// Whether the outs of a vector, or the vectors of an out, are neighbours in y.
inline bool writes_neighbours(const ThinProblem& problem) {
  return problem.y_vector == 1 ? problem.y_element == problem.vectors : problem.y_element == 1;
}

/// Whether a staged product without a bias multiplies short rows as they lie (PackedProductPlan), if matrices
/// begin at multiples of 16 bytes: in the 16-bit types, of rows enough that every warp has some.
inline bool takes_packed_products(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 21, kManyRows = int64_t{1} << 17;
  const int64_t rows = problem.batch * problem.rows;
  return is_half(problem.dtype) && !problem.transpose && problem.vectors >= 2 && is_staged(problem) &&
         writes_neighbours(problem) && problem.columns <= PackedProductPlan::kMostTerms &&
         (rows >= kManyRows || rows * problem.columns >= kLeastElements);
}

/// Whether a staged product without a bias multiplies rows in groups (RowGroupPlan), if matrices begin at
/// multiples of 16 bytes: in float32 and the 16-bit types, of rows enough that every warp has some groups.
inline bool takes_row_groups(const ThinProblem& problem) {
  constexpr int64_t kManyGroups = int64_t{1} << 10, kLarge = int64_t{12} << 20;
  const auto size = static_cast<int>(size_of(problem.dtype));
  if (size > 4 || problem.transpose || problem.vectors < 2 || !is_staged(problem)) return false;
  const int64_t rows = problem.batch * problem.rows;
  return writes_neighbours(problem) && problem.columns <= RowGroupPlan::most_terms(size) &&
         rows >= kManyGroups * RowGroupPlan::rows_at_once(size) && rows >= kLarge / (problem.columns * size);
}

/// Whether a staged product without a bias takes columns of few terms straight to tensor cores
/// (few_term_columns_cuda.cu, shifted_columns_cuda.cu): in the 16-bit types, of columns enough that most
/// warps have some; where these are several for each, of more terms too.
inline bool takes_few_term_columns(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 21, kFewTerms = 64;
  constexpr int64_t kSomeTerms = 256, kSeveralGroups = int64_t{1} << 18;
  const int64_t columns = problem.batch * problem.columns,
                many_columns = int64_t{1} << (problem.columns % unit_elements(problem) == 0 ? 16 : 15);
  const bool has_few_terms = problem.rows <= kFewTerms;
  if (!is_half(problem.dtype) || !problem.transpose || problem.vectors < 2 || !is_staged(problem) ||
      !writes_neighbours(problem)) {
    return false;
  }
  return has_few_terms ? columns >= many_columns || columns * problem.rows >= kLeastElements
                       : problem.rows <= kSomeTerms && columns >= kSeveralGroups;
}

/// Whether folded rows of a large matrix of 16-bit elements are multiplied on tensor cores, with a vector for
/// each row of a fold (many_term_product): rows enough for some rounds of a ManyTermPlan, whose last wave of
/// blocks leaves few processors idle.
inline bool is_folded_product(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 23, kLeastOuts = 40, kLeastRounds = 4;
  constexpr int64_t kWave = detail::kProcessors * ManyTermPlan::kBlocks, kFewWaves = 3;
  const int64_t fold = rows_of_fold(problem);
  if (!is_half(problem.dtype) || !takes_folded_rows(problem) || problem.columns * fold < kLeastOuts ||
      problem.rows < kLeastRounds * ManyTermPlan::kRound * fold ||
      problem.batch * problem.rows < kLeastElements / problem.columns) {
    return false;
  }
  const ManyTermPlan plan = plan_many_terms(problem.batch, problem.columns * fold,
                                            detail::divide_up(problem.rows, fold), static_cast<int>(fold));
  const int64_t blocks = problem.batch * plan.tiles * plan.parts, waves = detail::divide_up(blocks, kWave);
  return waves == 1 || waves > kFewWaves || 4 * blocks >= 3 * waves * kWave;
}

/// How many rows of the matrix count as one on tensor cores (ManyTermPlan): those of is_folded_product; with
/// several vectors, of a matrix of few columns, as many as the kernel has vectors for and a tile columns.
inline int many_term_fold(const ThinProblem& problem) {
  constexpr int64_t kLeastOuts = 40;
  constexpr int64_t kMostOuts = ManyTermPlan::most_width(1, ManyTermPlan::kWideUnits, false);
  if (problem.vectors == 1) return is_folded_product(problem) ? rows_of_fold(problem) : 1;
  if (problem.columns >= kLeastOuts) return 1;
  return static_cast<int>(
      std::min(int64_t{kMostStagedVectors / problem.vectors}, kMostOuts / problem.columns));
}

/// Whether the columns of a large product's many terms go to tensor cores as they are (ManyTermPlan): in the
/// 16-bit types, staged ones; those of one vector if rounds are mostly full.
inline bool takes_many_term_columns(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 22, kFewTerms = 64, kLeastOuts = 40;
  if (!is_half(problem.dtype) || !problem.transpose || !is_staged(problem)) return false;
  const int64_t rounds = detail::divide_up(problem.rows, ManyTermPlan::kRound);
  if (problem.vectors == 1 && 4 * problem.rows < 3 * rounds * ManyTermPlan::kRound) return false;
  return problem.rows > kFewTerms && problem.columns * many_term_fold(problem) >= kLeastOuts &&
         problem.batch * problem.rows >= kLeastElements / problem.columns;
}

/// The product that is multiplied there: rows of a fold count as one, and have vectors of their own, one
/// row's after the other's. Of its sums, a column of row r of a fold needs that with the vectors of row r.
inline ThinProblem many_term_product(ThinProblem problem) {
  const int fold = many_term_fold(problem);
  problem.rows = detail::divide_up(problem.rows, fold);
  problem.columns *= fold;
  problem.vectors *= fold;
  problem.x_element *= fold;
  return problem;
}
inline ManyTermPlan many_term_plan_of(const ThinProblem& problem) {
  const ThinProblem product = many_term_product(problem);
  return plan_many_terms(product.batch, product.columns, product.rows, product.vectors);
}

/// Whether a staged product without a bias takes columns of some terms to tensor cores in float32
/// (FloatColumnPlan): of columns enough that every warp has several tiles.
inline bool takes_float_columns(const ThinProblem& problem) {
  constexpr int64_t kManyColumns = int64_t{1} << 18, kFewTerms = 13, kMostTerms = 256;
  if (problem.dtype != DType::kFloat32 || !problem.transpose || problem.vectors < 2 || !is_staged(problem))
    return false;
  const int64_t outs = problem.columns, tiles = detail::divide_up(outs, FloatColumnPlan::kOuts);
  return writes_neighbours(problem) && problem.rows > kFewTerms && problem.rows <= kMostTerms &&
         4 * outs >= 3 * tiles * FloatColumnPlan::kOuts && problem.batch * outs >= kManyColumns;
}

/// Whether the columns of a large staged product's many terms go to tensor cores in float32
/// (FloatManyTermPlan): columns enough to fill half of an instruction's, of matrices that are large each.
inline bool takes_float_many_terms(const ThinProblem& problem) {
  constexpr int64_t kLeastElements = int64_t{1} << 22, kLeastMatrix = int64_t{1} << 18;
  constexpr int64_t kFewTerms = 13;
  const int64_t least_columns = problem.vectors <= 8 ? 20 : 65;  // narrower warps have instructions too many
  if (problem.dtype != DType::kFloat32 || !problem.transpose || problem.vectors < 2 || !is_staged(problem))
    return false;
  const int64_t least_rows = std::max(kLeastElements / problem.batch, kLeastMatrix) / problem.columns;
  return problem.rows > kFewTerms && problem.columns >= least_columns && problem.rows >= least_rows;
}

/// Whether rows that begin alike fill half of an instruction, or one where rows begin at every element of a
/// unit of 8, so that each is read with a unit more.
inline bool has_rows_alike(const ThinProblem& problem) {
  constexpr int64_t kLeastRows = 8;
  const int64_t classes = row_classes(problem.columns, static_cast<int>(size_of(problem.dtype)));
  return problem.rows >= (classes == 8 ? 2 : 1) * kLeastRows * classes;
}

/// Whether the long rows of a large staged product are multiplied in steps (RowProductPlan): in float32 and
/// the 16-bit types, where enough of them begin alike.
inline bool takes_row_products(const ThinProblem& problem) {
  constexpr int64_t kLeastBytes = int64_t{1} << 23, kLongRow = 512;
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  if (size > 4 || problem.transpose || problem.vectors < 2 || !is_staged(problem)) return false;
  return problem.columns * size >= kLongRow && has_rows_alike(problem) &&
         problem.batch * problem.rows >= kLeastBytes / size / problem.columns;
}
inline RowProductPlan row_product_plan_of(const ThinProblem& problem) {
  return plan_row_products(static_cast<int>(size_of(problem.dtype)), problem.batch, problem.rows,
                           problem.columns, problem.vectors);
}

/// Whether long rows are multiplied with several vectors as they lie (LongRowProductPlan): in the 16-bit
/// types, few rows, or some more that begin differently in groups, of which each reads the vectors again, if
/// L2 holds these. Of a matrix whose few columns are summed, the vectors are such rows, and the columns
/// vectors that lie side by side.
inline bool takes_long_row_products(const ThinProblem& problem) {
  constexpr int64_t kLeastBytes = int64_t{1} << 21, kLongRow = int64_t{1} << 14;
  constexpr int64_t kMostVectorBytes = int64_t{48} << 20;
  if (!is_half(problem.dtype) || problem.vectors < 2 || !is_staged(problem)) return false;
  if (problem.transpose && problem.x_element != 1) return false;
  const int64_t lines = problem.out() + problem.vectors, terms = problem.in();
  const bool takes_groups =
      !problem.transpose && !has_rows_alike(problem) && terms * problem.vectors * 2 <= kMostVectorBytes;
  return problem.out() <=
             (takes_groups ? LongRowProductPlan::kMostGroupedRows : LongRowProductPlan::kMostRows) &&
         terms * 2 >= kLongRow && problem.batch * lines >= kLeastBytes / 2 / terms;
}
inline LongRowProductPlan long_row_product_plan_of(const ThinProblem& problem) {
  const int64_t rows = problem.transpose ? problem.vectors : problem.rows;
  const auto vectors = static_cast<int>(problem.transpose ? problem.columns : problem.vectors);
  return plan_long_row_products(problem.batch, rows, problem.in(), vectors,
                                !problem.transpose && problem.x_element == 1);
}

/// Whether a staged product without a bias may skip shared tiles (FewTermPlan) in float32: so few terms that
/// it mostly writes. Rows of more than half as many terms are multiplied on tensor cores with many vectors
/// whose sums are neighbours in y.
inline bool takes_few_terms(const ThinProblem& problem) {
  constexpr int64_t kManyOuts = int64_t{1} << 17, kSomeTerms = 8;
  constexpr int kManyVectors = 12;
  if (problem.vectors > kManyVectors && problem.in() > kSomeTerms && problem.y_vector == 1 &&
      takes_row_groups(problem)) {
    return false;
  }
  if (problem.dtype != DType::kFloat32 || !is_staged(problem) || problem.vectors < 2) return false;
  return writes_neighbours(problem) && problem.batch * problem.out() >= kManyOuts &&
         problem.in() <= FewTermPlan::kMostTerms;
}

/// Whether the kernels understand how the vectors lie: sums along rows read them as dense vectors, or as the
/// rows of a dense (in, vectors) matrix.
inline bool can_multiply_thin(const ThinProblem& problem) {
  if (is_staged(problem)) return true;
  if (problem.vectors < 1 || problem.vectors > kMostDirectVectors) return false;
  if (problem.transpose || problem.vectors == 1) return problem.transpose || problem.x_element == 1;
  if (problem.x_element == 1) return problem.x_vector == problem.columns;
  return problem.x_vector == 1 && problem.x_element == problem.vectors &&
         std::has_single_bit(static_cast<unsigned>(problem.vectors));
}

/// Scratch for the problem wherever its operands lie.
inline size_t thin_workspace(const ThinProblem& given) {
  const ThinProblem problem = without_single_column(given);
  const int64_t sums = problem.batch * problem.out() * problem.vectors;
  const auto sum_bytes = size_of(accumulate_dtype(problem.dtype));
  if (is_staged(problem)) {
    int64_t parts = 1;
    if (takes_many_term_columns(problem)) {
      parts = many_term_plan_of(problem).parts * many_term_fold(problem);
    } else if (takes_row_products(problem)) {
      parts = row_product_plan_of(problem).parts;
    } else if (takes_long_row_products(problem)) {
      parts = long_row_product_plan_of(problem).parts;
    } else {
      parts = staged_plan_of(problem).parts;
    }
    if (takes_float_many_terms(problem)) {  // or the staged kernel, on GPUs with less shared memory
      const auto plan = plan_float_many_terms(problem.batch, problem.out(), problem.in(), problem.vectors);
      parts = std::max(parts, plan.parts);
    }
    return parts == 1 ? 0 : static_cast<size_t>(parts * sums) * sum_bytes;
  }
  if (takes_few_rows(problem)) return 0;
  const int widest = unit_elements(problem);
  int64_t most = 1;
  if (takes_narrow_columns(problem)) {
    most = plan_narrow_columns(problem.batch, problem.rows, static_cast<int>(problem.columns), widest).parts;
  }
  if (is_folded_product(problem)) {
    most = std::max(most, many_term_plan_of(problem).parts * rows_of_fold(problem));
    return static_cast<size_t>(most * sums) * sum_bytes;
  }
  if (takes_long_rows(problem)) {
    most = plan_long_rows(problem.batch, problem.rows, problem.columns, widest).parts;
  }
  if (may_take_unit_rows(problem)) {
    most = std::max(most, plan_unit_rows(problem.batch, problem.rows, problem.columns, widest).parts);
  }
  if (takes_folded_rows(problem)) {
    most = std::max(most, folded_parts(problem, folded_plan_of(problem)));
  }
  for (int pack = 1; pack <= widest && problem.columns % pack == 0; pack *= 2) {
    const int64_t all_rows = problem.batch * problem.rows;
    const int64_t parts = problem.transpose
                              ? plan_column_sums(problem.batch, problem.rows, problem.columns, pack).parts
                              : plan_row_sums(all_rows, problem.columns, pack, pack == widest).parts;
    most = std::max(most, parts);
  }
  return most == 1 ? 0 : static_cast<size_t>(most * sums) * sum_bytes;
}

}  // namespace sinter::ops
