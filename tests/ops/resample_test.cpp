// Resampling on the CPU with any spans and weights: every element is the sum that the tables say, nothing
// else holds it back, and its bits do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/images/resample_cpu.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

/// The spans of one axis with a weight for each of their pixels.
struct RandomAxis {
  RandomAxis(SampleMaker& maker, int64_t given_source, int64_t result) : source(given_source) {
    const int64_t longest = maker.pick<int64_t>({1, 2, 3, 5, 9});
    std::vector<int64_t> begins, ends;
    for (int64_t i = 0; i < result; ++i) {
      begins.push_back(maker.integer(0, source));
      ends.push_back(std::min(source, begins.back() + maker.integer(0, longest)));
    }
    std::sort(begins.begin(), begins.end());
    std::sort(ends.begin(), ends.end());
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t count = ends[i] - begins[i];
      ranges.push_back({begins[i], ends[i]});
      most = std::max(most, count);
      divisors.push_back(static_cast<double>(maker.integer(1, 4)));
    }
    for (int64_t s = 0; s < source; ++s) shares.push_back(maker.uniform(0.25, 1));
  }
  int64_t result() const { return static_cast<int64_t>(ranges.size()); }

  int64_t source, most = 0;
  std::vector<ResampleRange> ranges;
  std::vector<double> divisors, shares;
};

enum class Kind { kWeighted, kShares, kMeans };

/// The weight of source pixel s for result pixel i, before divisors.
double weight_of(const RandomAxis& axis, Kind kind, int64_t i, int64_t s) {
  const double share = axis.shares[static_cast<size_t>(s)];
  if (kind == Kind::kMeans) return 1.0;
  return kind == Kind::kShares ? share : (i % 2 == 0 ? share : -share);
}

template <class C>
ResampleAxis<C> table_of(const RandomAxis& axis, Kind kind, int64_t inner, ResampleTables<C>& tables) {
  const auto range = [&](int64_t i) { return axis.ranges[static_cast<size_t>(i)]; };
  const auto weight = [&](int64_t i, int64_t s) { return weight_of(axis, kind, i, s); };
  const auto share = [&](int64_t s) { return static_cast<C>(axis.shares[static_cast<size_t>(s)]); };
  const auto divisor = [&](int64_t i) { return static_cast<C>(axis.divisors[static_cast<size_t>(i)]); };
  if (kind == Kind::kWeighted) return tables.weighted(axis.source, axis.result(), range, weight);
  if (kind == Kind::kShares) return tables.shares(axis.source, axis.result(), range, share);
  return tables.means(axis.source, axis.result(), inner, range, divisor);
}

struct Case {
  ResampleExtents extents;
  RandomAxis rows, columns;
  Kind kind;
};

Case random_case(SampleMaker& maker) {
  const int64_t inner = maker.pick<int64_t>({1, 1, 2, 3, 7, 8, 15, 16, 17, 40});
  const auto side = [&] { return maker.chance(0.1) ? 1 : maker.integer(1, maker.chance(0.1) ? 700 : 40); };
  const int64_t source_rows = side(), source_columns = side(), rows = side(), columns = side();
  const int64_t all = std::max(source_rows * source_columns, rows * columns) * inner;
  const int64_t images = maker.chance(0.05) ? 0 : maker.integer(1, std::max<int64_t>(1, 60000 / all));
  RandomAxis down(maker, source_rows, rows), across(maker, source_columns, columns);
  const ResampleExtents extents{.images = images,
                                .inner = inner,
                                .source_rows = source_rows,
                                .source_columns = source_columns,
                                .rows = rows,
                                .columns = columns,
                                .most_source_rows = down.most};
  return {extents, std::move(down), std::move(across),
          maker.pick({Kind::kWeighted, Kind::kShares, Kind::kMeans})};
}

template <class T>
std::vector<T> run(const Case& c, const std::vector<T>& x) {
  using C = compute_type<T>;
  const ResampleExtents& e = c.extents;
  const size_t bytes = resample_workspace(e, dtype_of<T>, num_threads());
  std::vector<std::max_align_t> workspace(bytes / sizeof(std::max_align_t) + 1);
  std::memset(workspace.data(), 0xff, bytes);  // NaN
  std::vector<T> y(static_cast<size_t>(e.images * e.rows * e.columns * e.inner));
  ResampleTables<C> tables(e, workspace.data());
  const auto rows = table_of(c.rows, c.kind, 1, tables);
  const auto columns = table_of(c.columns, c.kind, e.inner, tables);
  resample(e, rows, columns, x.data(), y.data(), workspace.data(), num_threads());
  return y;
}

/// Expects y[...] of an element to be the sum of its terms.
template <class T>
void expect_sums(const Case& c, const std::vector<T>& x, const std::vector<T>& y) {
  const ResampleExtents& e = c.extents;
  const double of_result = default_tolerance(dtype_of<T>);
  const double of_terms = default_tolerance(dtype_of<compute_type<T>>);
  constexpr double kSmallest = 1e-7;  // float16 is that far apart near 0
  size_t at = 0;
  for (int64_t image = 0; image < e.images; ++image) {
    for (int64_t row = 0; row < e.rows; ++row) {
      for (int64_t column = 0; column < e.columns; ++column) {
        const ResampleRange down = c.rows.ranges[static_cast<size_t>(row)];
        const ResampleRange across = c.columns.ranges[static_cast<size_t>(column)];
        const double divisor = c.kind == Kind::kMeans ? c.rows.divisors[static_cast<size_t>(row)] *
                                                            c.columns.divisors[static_cast<size_t>(column)]
                                                      : 1.0;
        for (int64_t k = 0; k < e.inner; ++k, ++at) {
          double want = 0, size = 0;
          for (int64_t r = down.begin; r < down.end; ++r) {
            for (int64_t s = across.begin; s < across.end; ++s) {
              const double weight =
                  weight_of(c.rows, c.kind, row, r) * weight_of(c.columns, c.kind, column, s) / divisor;
              const auto place = ((image * e.source_rows + r) * e.source_columns + s) * e.inner + k;
              const double term = weight * static_cast<double>(x[static_cast<size_t>(place)]);
              want += term;
              size += std::abs(term);
            }
          }
          const double got = static_cast<double>(y[at]);
          if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << "element " << at;
          } else {
            ASSERT_LE(std::abs(got - want), of_result * std::abs(want) + of_terms * size + kSmallest)
                << "element " << at;
          }
        }
      }
    }
  }
}

template <class T>
class Resample : public testing::Test {};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(Resample, Types);

TYPED_TEST(Resample, IsTheSumThatTheTablesSayWithAnyNumberOfThreads) {
  const int before = num_threads();
  for (uint64_t round = 0; round < 150; ++round) {
    SampleMaker maker(1000 + round, dtype_of<TypeParam>);
    const Case c = random_case(maker);
    const ResampleExtents& e = c.extents;
    SCOPED_TRACE(fmt::format("round {}: {} images of {} x {} x {} to {} x {}", round, e.images, e.source_rows,
                             e.source_columns, e.inner, e.rows, e.columns));
    std::vector<TypeParam> x(static_cast<size_t>(e.images * e.source_rows * e.source_columns * e.inner));
    for (TypeParam& value : x) value = static_cast<TypeParam>(maker.uniform(-2, 2));
    // A NaN reaches what it has a part in, and nothing else.
    if (!x.empty() && maker.chance(0.5)) {
      x[static_cast<size_t>(maker.integer(0, static_cast<int64_t>(x.size()) - 1))] =
          static_cast<TypeParam>(std::numeric_limits<float>::quiet_NaN());
    }
    std::vector<TypeParam> first;
    for (const int threads : {1, 2, 3, 5}) {
      set_num_threads(threads);
      const std::vector<TypeParam> y = run(c, x);
      if (threads == 1) {
        expect_sums(c, x, y);
        first = y;
      }
      EXPECT_TRUE(y.empty() || std::memcmp(y.data(), first.data(), y.size() * sizeof(TypeParam)) == 0)
          << threads << " threads";
    }
    set_num_threads(before);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace sinter::ops
