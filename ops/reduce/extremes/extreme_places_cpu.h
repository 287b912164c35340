// Where the first extremes lie, on the CPU: for argmax and for the gradients of max and min.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/reduce/reduce_loops_cpu.h>
#include <sinter/ops/reduce/reduce_plan.h>

namespace sinter::ops {
namespace detail {

constexpr int64_t kExtremeColumns = 512;            // columns that are looked through at once
constexpr int64_t kExtremeRows = int64_t{1} << 30;  // whose numbers fit into lanes of 32 bits

/// The first of `count` <= kBlock values that `is_wanted`; there is one.
template <class C, class F>
int64_t first_place(const C* values, int64_t count, F is_wanted) {
  auto place = static_cast<int32_t>(count);
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {  // to the end: this is vectorised
    const int32_t found = is_wanted(values[i]) ? i : static_cast<int32_t>(count);
    place = std::min(place, found);
  }
  return place;
}

/// The first extreme of a line: the block in which it lies, then its place there.
template <class Reducer, class T>
int64_t line_extreme(const T* x, int64_t count) {
  using C = compute_type<T>;
  BlockBuffer<T> buffer;
  C best = Reducer::template identity<C>();
  int64_t block = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const C extreme = reduce_line<Reducer, C, C>(load_block(x + begin, n, buffer.values), n);
    const bool replaces = Reducer::replaces(extreme, best);
    best = replaces ? extreme : best;
    block = replaces ? begin : block;
  }
  const int64_t n = std::min(kBlock, count - block);
  const C* values = load_block(x + block, n, buffer.values);
  if (best != best) return block + first_place(values, n, [](C value) { return value != value; });
  return block + first_place(values, n, [best](C value) { return value == best; });
}

/// Lanes with their extremes so far, and the rows of these.
template <class Reducer, class T>
struct ExtremeLanes {
  using C = compute_type<T>;

  /// Nothing replaces the first row of a lane all of whose values are the worst.
  void clear(int64_t count) {
    std::fill_n(best, count, Reducer::template identity<C>());
    std::fill_n(rows, count, 0);
  }
  void add(const T* x, int64_t row, int64_t count) {
    BlockBuffer<T> buffer;
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      replace(load_block(x + begin, n, buffer.values), static_cast<int32_t>(row), n, best + begin,
              rows + begin);
    }
  }
  static void replace(const C* __restrict values, int32_t row, int64_t count, C* __restrict best,
                      int32_t* __restrict rows) {
    for (int64_t i = 0; i < count; ++i) {
      const bool replaces = Reducer::replaces(values[i], best[i]);
      best[i] = replaces ? values[i] : best[i];
      rows[i] = replaces ? row : rows[i];
    }
  }

  static constexpr int64_t kMost = std::max(kSmallBlock * kSmallBlocks, kExtremeColumns);
  alignas(64) C best[static_cast<size_t>(kMost)];
  alignas(64) int32_t rows[static_cast<size_t>(kMost)];
};

/// `count` <= kSmallBlocks neighbouring blocks side by side.
template <class Reducer, class T, class Found>
void small_block_extremes(const ReducePlan& plan, const T* x, int64_t first, int64_t count, Found found) {
  const int64_t size = plan.rows * plan.columns, width = plan.columns * count;
  alignas(64) T turned[kSmallBlock * kSmallBlocks];
  ExtremeLanes<Reducer, T> lanes;
  transpose_block(x + first * size, size, turned, count, count, size);
  lanes.clear(width);
  for (int64_t row = 0; row < plan.rows; ++row) lanes.add(turned + row * width, row, width);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < plan.columns; ++c) {
      found((first + i) * plan.columns + c, (first + i) * size + c, lanes.rows[c * count + i]);
    }
  }
}

/// The lines that block `kept` stands for, of neighbouring elements.
template <class Reducer, class T, class Found>
void line_extremes(const ReducePlan& plan, const T* x, int64_t kept, Found found) {
  using C = compute_type<T>;
  const int64_t base = plan.kept.offset(kept), blocks = plan.reduced.count();
  int64_t start = base, row = line_extreme<Reducer>(x + base, plan.rows);
  for (int64_t block = 1; block < blocks; ++block) {
    const int64_t next = base + plan.reduced.offset(block);
    const int64_t next_row = line_extreme<Reducer>(x + next, plan.rows);
    if (!Reducer::replaces(static_cast<C>(x[next + next_row]), static_cast<C>(x[start + row]))) continue;
    start = next, row = next_row;
  }
  found(kept, start, row);
}

/// The columns [first, first + width). Some rows lie side by side in the lanes if the columns are few.
template <class Reducer, class T, class Found>
void column_extremes(const ReducePlan& plan, const T* x, int64_t kept, int64_t first, int64_t width,
                     Found found) {
  using C = compute_type<T>;
  const int64_t base = plan.kept.offset(kept) + first, blocks = plan.reduced.count();
  const int64_t tile_rows = std::clamp<int64_t>(kExtremeColumns / plan.columns, 1, plan.rows);
  ExtremeLanes<Reducer, T> lanes;
  C best[kExtremeColumns];
  int64_t starts[kExtremeColumns], rows[kExtremeColumns] = {};
  std::fill_n(best, width, Reducer::template identity<C>());
  std::fill_n(starts, width, base);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t start = base + plan.reduced.offset(block);
    for (int64_t begin = 0; begin < plan.rows; begin += kExtremeRows) {
      const int64_t count = std::min(kExtremeRows, plan.rows - begin);
      lanes.clear(tile_rows * width);
      for (int64_t row = 0; row < count; row += tile_rows) {
        lanes.add(x + start + (begin + row) * plan.columns, row, std::min(tile_rows, count - row) * width);
      }
      for (int64_t lane = 0; lane < std::min(tile_rows, count) * width; ++lane) {
        const int64_t c = lane % width, row = begin + lanes.rows[lane] + lane / width;
        const bool ties =
            !Reducer::replaces(lanes.best[lane], best[c]) && !Reducer::replaces(best[c], lanes.best[lane]);
        if (ties ? starts[c] == start && row < rows[c] : Reducer::replaces(lanes.best[lane], best[c])) {
          best[c] = lanes.best[lane], starts[c] = start, rows[c] = row;
        }
      }
    }
  }
  for (int64_t c = 0; c < width; ++c) found(kept * plan.columns + first + c, starts[c] + c, rows[c]);
}

}  // namespace detail

/// Calls found(output, where the first row of its column of a block begins in x, row) with the place of every
/// output's first extreme, in parallel.
template <class Reducer, class T, class Found>
void find_extremes(const ReducePlan& plan, const T* x, Found found) {
  const int64_t size = plan.rows * plan.columns, kept = plan.kept.count();
  if (plan.reduced.rank == 0 && size <= kSmallBlock) {
    const int64_t groups = (kept + kSmallBlocks - 1) / kSmallBlocks;
    parallel_for(groups, std::max<int64_t>(kElementwiseGrain / (size * kSmallBlocks), 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t first = begin * kSmallBlocks; first < std::min(end * kSmallBlocks, kept);
                        first += kSmallBlocks) {
                     detail::small_block_extremes<Reducer>(plan, x, first,
                                                           std::min(kSmallBlocks, kept - first), found);
                   }
                 });
    return;
  }
  const int64_t widest = std::min(plan.columns, detail::kExtremeColumns);
  const int64_t parts = (plan.columns + widest - 1) / widest;
  const int64_t grain = std::max<int64_t>(kElementwiseGrain / (plan.terms() * widest), 1);
  parallel_for(kept * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      if (plan.columns == 1) {
        detail::line_extremes<Reducer>(plan, x, task, found);
        continue;
      }
      const int64_t first = task % parts * widest;
      detail::column_extremes<Reducer>(plan, x, task / parts, first, std::min(widest, plan.columns - first),
                                       found);
    }
  });
}

}  // namespace sinter::ops
