// Rows and columns are weighted one after the other, first what leaves less: for images that get fewer rows,
// the rows. Weighting rows adds whole rows. So does weighting columns, of many channels; of few, a vector of
// rows is transposed, so that the same column of all of them lies side by side.
#include <algorithm>
#include <type_traits>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/vector_cpu.h>
#include <sinter/ops/common/images/resample_cpu.h>
#include <sinter/ops/common/images/slots_cpu.h>

namespace sinter::ops {
namespace {

/// to[i] = sum of weights[k] * rows[k][i] over k < n, added to what is there unless `is_first`.
template <int n, bool is_first, class C>
[[gnu::always_inline]] inline void add_rows(const C* const* rows, const C* weights, int64_t length, C* to) {
  SINTER_IVDEP
  for (int64_t i = 0; i < length; ++i) {
    C sum = is_first ? weights[0] * rows[0][i] : to[i];
#pragma GCC unroll 4
    for (int k = is_first ? 1 : 0; k < n; ++k) sum += weights[k] * rows[k][i];
    to[i] = sum;
  }
}

template <bool is_first, class C>
[[gnu::always_inline]] inline void add_rows(const C* const* rows, const C* weights, int64_t count,
                                            int64_t length, C* to) {
  switch (count) {
    case 1:
      return add_rows<1, is_first>(rows, weights, length, to);
    case 2:
      return add_rows<2, is_first>(rows, weights, length, to);
    case 3:
      return add_rows<3, is_first>(rows, weights, length, to);
    default:
      return add_rows<4, is_first>(rows, weights, length, to);
  }
}

/// to[i] = the weighted sum of from[i], from[stride + i], from[2 * stride + i], ...
template <class T>
[[gnu::always_inline]] inline void weigh(const T* from, int64_t stride, const ResampleSpan& span,
                                         const compute_type<T>* all_weights, int64_t length,
                                         compute_type<T>* to) {
  using C = compute_type<T>;
  constexpr int64_t kTogether = 4;
  const C* weights = all_weights + span.first_weight;
  from += span.begin * stride;
  if (span.count == 0) std::fill_n(to, length, C{0});
  BlockBuffer<T> buffers[kTogether];
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t width = std::min(kBlock, length - first);
    for (int64_t k = 0; k < span.count; k += kTogether) {
      const int64_t count = std::min(kTogether, span.count - k);
      const C* rows[kTogether];
      for (int64_t i = 0; i < count; ++i) {
        rows[i] = load_block(from + (k + i) * stride + first, width, buffers[i].values);
      }
      if (k == 0) {
        add_rows<true>(rows, weights, count, width, to + first);
      } else {
        add_rows<false>(rows, weights + k, count, width, to + first);
      }
    }
  }
}

/// The elements [0, width) of kLanes rows, of which those from `rows` on repeat the last, element by element.
template <class C>
void interleave(const C* from, int64_t width, int64_t rows, C* to) {
  constexpr int kRows = kLanes<C>;
  const C* lanes[static_cast<size_t>(kRows)];
  for (int lane = 0; lane < kRows; ++lane) lanes[lane] = from + std::min<int64_t>(lane, rows - 1) * width;
  int64_t first = 0;
  for (; first + kRows <= width; first += kRows) {
    Vector<C> tile[static_cast<size_t>(kRows)];
    for (int lane = 0; lane < kRows; ++lane) tile[lane] = load_vector(lanes[lane] + first);
    transpose_vectors<C>(tile);
    for (int i = 0; i < kRows; ++i) store_vector(to + (first + i) * kRows, tile[i]);
  }
  for (; first < width; ++first) {
    for (int lane = 0; lane < kRows; ++lane) to[first * kRows + lane] = lanes[lane][first];
  }
}

/// The way back: the first `rows` of the rows.
template <class C>
void part(const C* from, int64_t width, int64_t rows, C* to) {
  constexpr int kRows = kLanes<C>;
  int64_t first = 0;
  for (; first + kRows <= width; first += kRows) {
    Vector<C> tile[static_cast<size_t>(kRows)];
    for (int i = 0; i < kRows; ++i) tile[i] = load_vector(from + (first + i) * kRows);
    transpose_vectors<C>(tile);
    for (int64_t lane = 0; lane < rows; ++lane) store_vector(to + lane * width + first, tile[lane]);
  }
  for (; first < width; ++first) {
    for (int64_t lane = 0; lane < rows; ++lane) to[lane * width + first] = from[first * kRows + lane];
  }
}

/// Weights the columns of `rows` rows that lie one behind the other.
template <class C>
void weigh_columns(const ResampleAxis<C>& columns, int64_t inner, int64_t rows, const C* from, C* to,
                   C* scratch) {
  const int64_t source = columns.source * inner, result = columns.result * inner;
  const auto weigh_row = [&](const C* row, int64_t depth, C* out) {
    for (int64_t column = 0; column < columns.result; ++column) {
      weigh(row, depth, columns.spans[column], columns.weights, depth, out + column * depth);
    }
  };
  if (inner >= kLanes<C>) {
    for (int64_t row = 0; row < rows; ++row) weigh_row(from + row * source, inner, to + row * result);
    return;
  }
  C* const weighted = scratch + kLanes<C> * source;
  for (int64_t row = 0; row < rows; row += kLanes<C>) {
    const int64_t count = std::min<int64_t>(kLanes<C>, rows - row);
    interleave(from + row * source, source, count, scratch);
    weigh_row(scratch, inner * kLanes<C>, weighted);
    part(weighted, result, count, to + row * result);
  }
}

/// How a call is cut into strips of rows, and where a strip's scratch lies.
template <class T>
struct Strips {
  // With what is made of them, they stay in the second-level cache.
  static constexpr int64_t kStripElements = 16384;

  explicit Strips(const ResampleExtents& extents)
      : rows_first(extents.rows <= extents.source_rows),
        source(extents.source_columns * extents.inner),
        result(extents.columns * extents.inner) {
    const int64_t rows = rows_first ? extents.rows : extents.source_rows;
    const bool transposes = extents.inner < kLanes<compute_type<T>>;
    const int64_t least = std::max<int64_t>(rows_first ? 1 : 2 * extents.most_source_rows,
                                            transposes ? kLanes<compute_type<T>> : 1);
    capacity = std::min(std::max(kStripElements / std::max<int64_t>({source, result, 1}), least),
                        std::max<int64_t>(extents.images * rows, 1));
    between = aligned(capacity * (rows_first ? source : result));
    const int64_t results = rows_first ? capacity * result : capacity * source + result;
    converted = std::is_same_v<T, compute_type<T>> ? 0 : aligned(results);
    transposed = transposes ? aligned(kLanes<compute_type<T>> * (source + result)) : 0;
  }

  /// Vectors that begin at lines of the cache are stored faster.
  static int64_t aligned(int64_t elements) { return (elements + 15) / 16 * 16; }

  bool rows_first;
  int64_t source, result;                  // elements of a row
  int64_t capacity;                        // rows between the two steps
  int64_t between, converted, transposed;  // elements of scratch
  int64_t slot() const { return between + converted + transposed; }
};

template <class T>
class Resampler {
 public:
  using C = compute_type<T>;

  Resampler(const ResampleExtents& extents, const ResampleAxis<C>& rows, const ResampleAxis<C>& columns,
            const T* x, T* y, C* scratch)
      : strips_(extents),
        inner_(extents.inner),
        rows_(rows),
        columns_(columns),
        x_(x),
        y_(y),
        between_(scratch),
        converted_(between_ + strips_.between),
        transposed_(converted_ + strips_.converted) {}

  /// Makes the rows [begin, end) of the result, counted through all images.
  void run(int64_t begin, int64_t end) const {
    while (begin < end) begin = strips_.rows_first ? collect(begin, end) : spread(begin, end);
  }

 private:
  static constexpr bool kConverts = !std::is_same_v<T, C>;

  /// Makes rows from `begin` on, and says where it stopped.
  int64_t collect(int64_t begin, int64_t end) const {
    end = std::min(end, begin + strips_.capacity);
    for (int64_t row = begin; row < end; ++row) {
      weigh(x_ + row / rows_.result * rows_.source * strips_.source, strips_.source,
            rows_.spans[row % rows_.result], rows_.weights, strips_.source,
            between_ + (row - begin) * strips_.source);
    }
    C* results = converted_;
    if constexpr (!kConverts) results = y_ + begin * strips_.result;
    weigh_columns(columns_, inner_, end - begin, between_, results, transposed_);
    for (int64_t row = begin; row < end; ++row) finish(row, results + (row - begin) * strips_.result);
    return end;
  }

  int64_t spread(int64_t begin, int64_t limit) const {
    const int64_t first = source_of(begin).begin;
    int64_t end = begin + 1, last = source_of(begin).end;
    for (; end < limit && source_of(end).end - first <= strips_.capacity; ++end) {
      last = std::max(last, source_of(end).end);
    }
    const C* source = nullptr;
    if constexpr (kConverts) {
      convert_block(x_ + first * strips_.source, converted_, (last - first) * strips_.source);
      source = converted_;
    } else {
      source = x_ + first * strips_.source;
    }
    weigh_columns(columns_, inner_, last - first, source, between_, transposed_);
    for (int64_t row = begin; row < end; ++row) {
      C* results = converted_ + strips_.capacity * strips_.source;
      if constexpr (!kConverts) results = y_ + row * strips_.result;
      const int64_t image = row / rows_.result * rows_.source - first;
      weigh(between_ + image * strips_.result, strips_.result, rows_.spans[row % rows_.result], rows_.weights,
            strips_.result, results);
      finish(row, results);
    }
    return end;
  }

  struct Range {
    int64_t begin, end;
  };
  /// The rows of the source, counted through all images, that row `row` of the result is made of.
  Range source_of(int64_t row) const {
    const ResampleSpan& span = rows_.spans[row % rows_.result];
    const int64_t begin = row / rows_.result * rows_.source + span.begin;
    return {begin, begin + span.count};
  }

  void finish(int64_t row, C* results) const {
    if (rows_.divisors != nullptr) {
      const C divisor = rows_.divisors[row % rows_.result];
      const C* divisors = columns_.divisors;
      SINTER_IVDEP
      for (int64_t i = 0; i < strips_.result; ++i) results[i] /= divisor * divisors[i];
    }
    if constexpr (kConverts) convert_block(results, y_ + row * strips_.result, strips_.result);
  }

  Strips<T> strips_;
  int64_t inner_;
  ResampleAxis<C> rows_, columns_;
  const T* x_;
  T* y_;
  C *between_, *converted_, *transposed_;
};

}  // namespace

size_t resample_workspace(const ResampleExtents& extents, DType dtype, int threads) {
  size_t bytes = 0;
  dispatch_float(dtype, "resample", [&]<class T> {
    using C = compute_type<T>;
    bytes = ResampleTables<C>::bytes(extents) +
            static_cast<size_t>(threads * Strips<T>(extents).slot()) * sizeof(C);
  });
  return bytes;
}

template <class T>
void resample(const ResampleExtents& extents, const ResampleAxis<compute_type<T>>& rows,
              const ResampleAxis<compute_type<T>>& columns, const T* x, T* y, void* workspace, int threads) {
  using C = compute_type<T>;
  const Strips<T> strips(extents);
  if (strips.result == 0) return;
  C* const scratch =
      reinterpret_cast<C*>(static_cast<std::byte*>(workspace) + ResampleTables<C>::bytes(extents));
  const int64_t terms = (extents.source_rows / extents.rows + 1) * strips.source + strips.result;
  parallel_slots(threads, extents.images * extents.rows, terms,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   Resampler<T>(extents, rows, columns, x, y, scratch + slot * strips.slot()).run(begin, end);
                 });
}

#define SINTER_INSTANTIATE(T)                                                          \
  template void resample(const ResampleExtents&, const ResampleAxis<compute_type<T>>&, \
                         const ResampleAxis<compute_type<T>>&, const T*, T*, void*, int);

SINTER_INSTANTIATE(float)
SINTER_INSTANTIATE(double)
SINTER_INSTANTIATE(float16)
SINTER_INSTANTIATE(bfloat16)
#undef SINTER_INSTANTIATE

}  // namespace sinter::ops
