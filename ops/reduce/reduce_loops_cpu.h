// The inner loops of reductions on the CPU: neighbouring elements into lanes, and lanes into one.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/transpose_cpu.h>

namespace sinter::ops {

/// lanes[i] = combine(lanes[i], x[i]); x may lie behind the lanes.
template <class Reducer, class V, class A>
void combine_lanes(A* lanes, const V* x, int64_t count) {
  SINTER_IVDEP
  for (int64_t i = 0; i < count; ++i) lanes[i] = Reducer::combine(lanes[i], static_cast<A>(x[i]));
}

/// Combines the lanes with x[i], then with x[stride + i], and so on: `rows` rows of `count` elements. Lanes
/// are loaded and stored once for some rows.
template <class Reducer, class T, class A>
void combine_rows(A* lanes, const T* x, int64_t stride, int64_t rows, int64_t count) {
  BlockBuffer<T> buffers[4];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto load = [&](int64_t row, size_t buffer) {
      return load_block(x + row * stride + begin, n, buffers[buffer].values);
    };
    A* target = lanes + begin;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      const auto *a = load(row, 0), *b = load(row + 1, 1), *c = load(row + 2, 2), *d = load(row + 3, 3);
      SINTER_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        A value = Reducer::combine(target[i], static_cast<A>(a[i]));
        value = Reducer::combine(value, static_cast<A>(b[i]));
        value = Reducer::combine(value, static_cast<A>(c[i]));
        target[i] = Reducer::combine(value, static_cast<A>(d[i]));
      }
    }
    for (; row < rows; ++row) combine_lanes<Reducer>(target, load(row, 0), n);
  }
}

/// Folds `rows` rows of `width` lanes by halves into the first.
template <class Reducer, class A>
void fold_rows(A* lanes, int64_t rows, int64_t width) {
  while (rows > 1) {
    const int64_t half = (rows + 1) / 2;
    combine_lanes<Reducer>(lanes, lanes + half * width, (rows - half) * width);
    rows = half;
  }
}

namespace detail {

/// Folds the lanes by halves, and takes in `count` < kLanes more values as soon as there are no more lanes.
template <class Reducer, int64_t kLanes, class V, class A>
A fold_lanes(A* __restrict lanes, const V* values, int64_t count) {
  if constexpr (kLanes > 1) {
    constexpr int64_t kHalf = kLanes / 2;
    for (int64_t j = 0; j < kHalf; ++j) lanes[j] = Reducer::combine(lanes[j], lanes[j + kHalf]);
    if (count >= kHalf) {
      for (int64_t j = 0; j < kHalf; ++j) lanes[j] = Reducer::combine(lanes[j], static_cast<A>(values[j]));
      values += kHalf, count -= kHalf;
    }
    return fold_lanes<Reducer, kHalf>(lanes, values, count);
  }
  return lanes[0];
}

}  // namespace detail

/// The reduction of `count` neighbouring elements: a few vectors of lanes, which the processor works on at
/// once.
template <class Reducer, class T, class A>
A reduce_line(const T* x, int64_t count) {
  constexpr int64_t kLanes = 256 / static_cast<int64_t>(sizeof(A));
  static_assert(kBlock % kLanes == 0);
  BlockBuffer<T> buffer;
  A lanes[static_cast<size_t>(kLanes)];
  std::fill_n(lanes, kLanes, Reducer::template identity<A>());
  const compute_type<T>* rest = nullptr;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin), whole = n - n % kLanes;
    const auto* values = load_block(x + begin, n, buffer.values);
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j)
        lanes[j] = Reducer::combine(lanes[j], static_cast<A>(values[i + j]));
    }
    rest = values + whole;
  }
  return detail::fold_lanes<Reducer, kLanes>(lanes, rest, count % kLanes);
}

/// Blocks of at most so many elements are reduced side by side, so many at once: a loop over one of them
/// would be over before it pays.
inline constexpr int64_t kSmallBlock = 64;
inline constexpr int64_t kSmallBlocks = 32;

/// Reduces `count` <= kSmallBlocks neighbouring blocks of rows x columns <= kSmallBlock elements each: calls
/// store(block, column, reduction).
template <class Reducer, class T, class A, class Store>
void reduce_small_blocks(const T* x, int64_t count, int64_t rows, int64_t columns, Store store) {
  alignas(64) T turned[kSmallBlock * kSmallBlocks];
  alignas(64) A lanes[kSmallBlock * kSmallBlocks];
  BlockBuffer<T> buffer;
  const int64_t size = rows * columns, elements = size * count;
  transpose_block(x, size, turned, count, count, size);
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements - begin);
    const auto* values = load_block(turned + begin, n, buffer.values);
    for (int64_t i = 0; i < n; ++i) lanes[begin + i] = static_cast<A>(values[i]);
  }
  fold_rows<Reducer>(lanes, rows, columns * count);
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t i = 0; i < count; ++i) store(i, c, lanes[c * count + i]);
  }
}

}  // namespace sinter::ops
