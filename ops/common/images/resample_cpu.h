// Images made of images of another size on the CPU, where rows and columns are weighted apart from each
// other: enlarging, averages of windows, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sinter/core/base/dtype.h>

namespace sinter::ops {

/// What a pixel of the result is made of along one axis: `count` pixels of the source from `begin` on, which
/// weigh weights[first_weight], weights[first_weight + 1], ... What is not among them has no part, and holds
/// nothing back: not even NaN.
struct ResampleSpan {
  int64_t begin = 0, count = 0, first_weight = 0;
};

/// Pixels [begin, end) of the source.
struct ResampleRange {
  int64_t begin, end;
};

/// One axis in compute type C; neither begins nor ends of spans fall, but for empty ones. Tables are the
/// caller's.
template <class C>
struct ResampleAxis {
  int64_t source, result;
  const ResampleSpan* spans;  ///< of every pixel of the result
  const C* weights;
  /// What the sum of every pixel is divided by: of both axes, as a product, or of neither (nullptr). Those of
  /// columns stand once for every element of a pixel.
  const C* divisors = nullptr;
};

/// What a call looks like: `images` images of `inner` elements to a pixel (NCHW is images of one channel).
struct ResampleExtents {
  int64_t images, inner;
  int64_t source_rows, source_columns;
  int64_t rows, columns;     ///< of the result
  int64_t most_source_rows;  ///< that a row of the result is made of
};

/// Memory for the tables of a call, and the functions that fill it, each of which makes an axis.
template <class C>
class ResampleTables {
 public:
  static size_t bytes(const ResampleExtents& extents) {
    const int64_t pixels = extents.rows + extents.columns;
    const int64_t numbers =
        2 * (pixels + extents.source_rows + extents.source_columns) + extents.columns * extents.inner;
    const size_t all =
        static_cast<size_t>(pixels) * sizeof(ResampleSpan) + static_cast<size_t>(numbers) * sizeof(C);
    return (all + kAlignment - 1) / kAlignment * kAlignment;
  }
  ResampleTables(const ResampleExtents& extents, void* memory)
      : spans_(static_cast<ResampleSpan*>(memory)),
        numbers_(reinterpret_cast<C*>(spans_ + extents.rows + extents.columns)) {}

  /// Result pixel i holds source pixel s, of those in between, weight(i, s) times: 0 only before or behind
  /// all that have a part. `range(i)`: a ResampleRange, or what has the same members.
  template <class RangeOf, class Weight>
  ResampleAxis<C> weighted(int64_t source, int64_t result, RangeOf range, Weight weight) {
    ResampleSpan* const spans = take_spans(result);
    C* const weights = numbers_;
    for (int64_t i = 0; i < result; ++i) {
      const auto [begin, end] = range(i);
      ResampleSpan& span = spans[i] = {begin, 0, numbers_ - weights};
      for (int64_t s = begin; s < end; ++s) {
        const double part = weight(i, s);
        if (part == 0.0) continue;
        if (span.count++ == 0) span.begin = s;
        *numbers_++ = static_cast<C>(part);
      }
    }
    return {source, result, spans, weights};
  }

  /// Source pixel s weighs share(s) wherever it has a part.
  template <class RangeOf, class Share>
  ResampleAxis<C> shares(int64_t source, int64_t result, RangeOf range, Share share) {
    ResampleSpan* const spans = take_spans(result);
    C* const weights = numbers_;
    for (int64_t s = 0; s < source; ++s) *numbers_++ = share(s);
    for (int64_t i = 0; i < result; ++i) {
      const auto [begin, end] = range(i);
      spans[i] = {begin, end > begin ? end - begin : 0, begin};
    }
    return {source, result, spans, weights};
  }

  /// Result pixel i, of `inner` elements, is a sum divided by divisor(i).
  template <class RangeOf, class Divisor>
  ResampleAxis<C> means(int64_t source, int64_t result, int64_t inner, RangeOf range, Divisor divisor) {
    ResampleSpan* const spans = take_spans(result);
    const C* const ones = numbers_;
    for (int64_t s = 0; s < source; ++s) *numbers_++ = C{1};
    C* const divisors = numbers_;
    for (int64_t i = 0; i < result; ++i) {
      const auto [begin, end] = range(i);
      spans[i] = {begin, end - begin, 0};
      for (int64_t k = 0; k < inner; ++k) *numbers_++ = divisor(i);
    }
    return {source, result, spans, ones, divisors};
  }

 private:
  static constexpr size_t kAlignment = 64;

  ResampleSpan* take_spans(int64_t count) {
    ResampleSpan* const spans = spans_;
    spans_ += count;
    return spans;
  }

  ResampleSpan* spans_;
  C* numbers_;
};

/// Bytes of the workspace: tables, then scratch of `threads` parts (KernelQuery::threads()). For float,
/// double, float16 and bfloat16.
size_t resample_workspace(const ResampleExtents& extents, DType dtype, int threads);

/// y = the result for the source x, with axes from tables at the workspace's beginning. Sums are taken in the
/// order of the source. `threads`: as the workspace was made for (KernelContext::threads()).
template <class T>
void resample(const ResampleExtents& extents, const ResampleAxis<compute_type<T>>& rows,
              const ResampleAxis<compute_type<T>>& columns, const T* x, T* y, void* workspace, int threads);

}  // namespace sinter::ops
