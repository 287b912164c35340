// Loops of the CPU over tensors with one set of parameters, or one sum, per channel. They are vectorised
// whether channels are the last axis or not, and sums are taken in an order that depends on the shape alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/channel_view.h>
#include <sinter/ops/common/cpu/block_cpu.h>

namespace sinter::ops {

/// K sums side by side, each spread over enough partial sums to keep the processor's vector units busy.
template <class C, size_t K>
class LaneSums {
 public:
  /// Adds term(i)[k] for all i in [begin, end) to sum k.
  template <class Term>
  [[gnu::always_inline]] void add(int64_t begin, int64_t end, Term term) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const std::array<C, K> terms = term(i + lane);
        for (size_t k = 0; k < K; ++k) sums_[k][lane] += terms[k];
      }
    }
    for (int64_t lane = 0; i < end; ++i, ++lane) {
      const std::array<C, K> terms = term(i);
      for (size_t k = 0; k < K; ++k) sums_[k][lane] += terms[k];
    }
  }
  [[gnu::always_inline]] double total(size_t k) const {
    constexpr int64_t kLeft = 8;
    C left[kLeft];
    for (int64_t lane = 0; lane < kLeft; ++lane) {
      C sum = sums_[k][lane];
      for (int64_t next = lane + kLeft; next < kLanes; next += kLeft) sum += sums_[k][next];
      left[lane] = sum;
    }
    return ((double{left[0]} + double{left[4]}) + (double{left[1]} + double{left[5]})) +
           ((double{left[2]} + double{left[6]}) + (double{left[3]} + double{left[7]}));
  }

 private:
  static constexpr int64_t kLanes = 128 / sizeof(C);
  C sums_[K][static_cast<size_t>(kLanes)] = {};
};

/// How to walk a ChannelView. Long runs of one channel are walked run by run, with the channel's parameters
/// in registers. Where runs are short (channels last, or few pixels) the tensor is cut into rows of `width`
/// elements, a multiple of channels * inner, and element `lane` of every row belongs to the same channel:
/// parameters and sums are arrays of that width. Otherwise the width is the number of channels.
///
/// Sums go to a table of `entries` x `width`, one entry per fixed part of the tensor, which fold() adds up.
class ChannelLoop {
 public:
  explicit ChannelLoop(const ChannelView& view) : view_(view), by_rows_(view.inner < kShortRun) {
    const int64_t period = view.channels * view.inner;
    if (by_rows_) {
      repeats_ = std::clamp<int64_t>(kRowElements / std::max<int64_t>(period, 1), 1,
                                     std::max<int64_t>(view.outer, 1));
      width_ = repeats_ * period;
      rows_ = view.outer / repeats_;
      tail_ = (view.outer % repeats_) * period;
      parts_ = width_ == 0 ? 0 : std::min<int64_t>(rows_, kMostParts);
    } else {
      width_ = view.channels;
      chunks_ = (view.inner + kBlockElements - 1) / kBlockElements;
      parts_ = std::min({view.outer * chunks_, kMostParts, view.per_channel() / kLeastPart + 1});
    }
  }

  const ChannelView& view() const { return view_; }
  /// Elements of an array of parameters.
  int64_t width() const { return width_; }
  int64_t entries() const { return parts_ + (tail_ > 0 ? 1 : 0); }
  bool by_rows() const { return by_rows_; }

  /// Lays the P parameters values(channel) of every channel out as P arrays of `width` elements, one behind
  /// the other.
  template <class C, size_t P, class Values>
  std::array<const C*, P> expand(C* lanes, Values values) const {
    std::array<const C*, P> arrays{};
    const int64_t run = by_rows_ ? view_.inner : 1, period = view_.channels * run;
    for (size_t p = 0; p < P; ++p) arrays[p] = lanes + static_cast<int64_t>(p) * width_;
    for (int64_t c = 0; c < view_.channels; ++c) {
      const std::array<C, P> of_channel = values(c);
      for (size_t p = 0; p < P; ++p) {
        std::fill_n(lanes + static_cast<int64_t>(p) * width_ + c * run, run, of_channel[p]);
      }
    }
    for (size_t p = 0; p < P; ++p) {
      C* array = lanes + static_cast<int64_t>(p) * width_;
      for (int64_t first = period; first < width_; first += period) std::copy_n(array, period, array + first);
    }
    return arrays;
  }

  /// Calls body(i, parameters of i's channel) for every element i, in parallel.
  template <class C, size_t P, class Body>
  void for_each(const std::array<const C*, P>& parameters, Body body) const;

  /// Adds body(i, parameters)[k], in compute type C, over the elements of every channel:
  /// table[(entry * K + k) * width + lane]. `scratch` has entries * K * width elements; see sum_bytes.
  template <size_t K, class C, size_t P, class Body>
  void sum(const std::array<const C*, P>& parameters, double* table, C* scratch, Body body) const;

  size_t sum_bytes(size_t k, size_t compute_bytes) const {
    return static_cast<size_t>(entries() * width_) * k * (sizeof(double) + compute_bytes);
  }

  /// sums[channel] = the sum over entries and lanes of table[entry * stride + lane].
  void fold(const double* table, int64_t stride, double* sums) const {
    std::fill_n(sums, view_.channels, 0.0);
    for (int64_t entry = 0; entry < entries(); ++entry) {
      const double* values = table + entry * stride;
      for_lanes(entry, [=](int64_t channel, int64_t lane) { sums[channel] += values[lane]; });
    }
  }

  /// Calls visit(channel, lane) for every lane that an entry of a table has.
  template <class Visit>
  void for_lanes(int64_t entry, Visit visit) const {
    const int64_t lanes = entry == parts_ ? tail_ : width_;
    const int64_t run = by_rows_ ? view_.inner : 1;
    for (int64_t first = 0; first < lanes; first += view_.channels * run) {
      if (run == 1) {
        SINTER_IVDEP
        for (int64_t c = 0; c < view_.channels; ++c) visit(c, first + c);
      } else {
        for (int64_t lane = 0; lane < view_.channels * run; ++lane) visit(lane / run, first + lane);
      }
    }
  }

  /// Runs of one channel: calls run(part, channel) for all parts of every channel, in parallel.
  template <class Run>
  void for_runs(Run run) const {
    if (parts_ == 0) return;
    const int64_t per_task = std::max<int64_t>(view_.per_channel() / parts_, 1);
    parallel_for(parts_ * view_.channels, kGrain / per_task + 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) run(task / view_.channels, task % view_.channels);
    });
  }
  /// Calls block(pieces) for consecutive blocks of a part, each of at most kBlockElements elements (or one
  /// run); `pieces(visit)` calls visit(begin, end) for the ranges of elements that make up the block.
  template <class Block>
  [[gnu::always_inline]] void for_blocks(int64_t part, int64_t channel, Block block) const {
    const int64_t pieces = view_.outer * chunks_;
    const int64_t step = std::max<int64_t>(kBlockElements / view_.inner, 1);
    const int64_t last = pieces * (part + 1) / parts_;
    for (int64_t first = pieces * part / parts_; first < last; first += step) {
      const int64_t stop = std::min(first + step, last);
      block([&](auto visit) __attribute__((always_inline)) {
        if (chunks_ == 1) {
          for (int64_t piece = first; piece < stop; ++piece) {
            const int64_t run = (piece * view_.channels + channel) * view_.inner;
            visit(run, run + view_.inner);
          }
          return;
        }
        for (int64_t piece = first; piece < stop; ++piece) {
          const int64_t run = (piece / chunks_ * view_.channels + channel) * view_.inner;
          const int64_t offset = piece % chunks_ * kBlockElements;
          visit(run + offset, run + std::min(offset + kBlockElements, view_.inner));
        }
      });
    }
  }

  /// Rows: calls run(entry, first row, last row, width of the row) for all entries, in parallel. The last
  /// entry may be one row of fewer elements.
  template <class Run>
  void for_rows(Run run) const {
    if (entries() == 0) return;
    const int64_t per_entry = std::max<int64_t>(view_.numel() / entries(), 1);
    parallel_for(entries(), kGrain / per_entry + 1, [&](int64_t begin, int64_t end) {
      for (int64_t entry = begin; entry < end; ++entry) {
        if (entry == parts_) {
          run(entry, rows_, rows_ + 1, tail_);
        } else {
          run(entry, rows_ * entry / parts_, rows_ * (entry + 1) / parts_, width_);
        }
      }
    });
  }
  /// Adds term(i, lane)[k] of the rows [begin, end) to sums[k * width + lane], for all lanes < `lanes`.
  template <size_t K, class C, class Term>
  void add_rows(int64_t begin, int64_t end, int64_t lanes, C* sums, Term term) const;
  /// Rows that are worked on together while they are in the first-level cache.
  int64_t rows_per_block() const {
    return std::max<int64_t>(kBlockElements / std::max<int64_t>(width_, 1), 8);
  }

 private:
  static constexpr int64_t kShortRun = 16;         // shorter runs do not fill the vector units
  static constexpr int64_t kRowElements = 256;     // enough independent sums to hide their latency
  static constexpr int64_t kBlockElements = 8192;  // 32 KiB of float32
  static constexpr int64_t kMostParts = 16;
  static constexpr int64_t kLeastPart =
      1024;  // elements of a channel: beginning and folding a sum takes time
  static constexpr int64_t kGrain = 16384;

  ChannelView view_;
  bool by_rows_;
  int64_t width_ = 0;
  int64_t repeats_ = 1, rows_ = 0, tail_ = 0;  // by rows
  int64_t chunks_ = 1;                         // by runs: blocks per run
  int64_t parts_ = 0;
};

template <class C, size_t P, class Body>
void ChannelLoop::for_each(const std::array<const C*, P>& parameters, Body body) const {
  const auto at = [parameters](int64_t lane) {
    std::array<C, P> values{};
    for (size_t p = 0; p < P; ++p) values[p] = parameters[p][lane];
    return values;
  };
  if (view_.numel() == 0) return;
  if (by_rows_) {
    const int64_t width = width_, count = view_.numel();
    parallel_for(rows_ + (tail_ > 0 ? 1 : 0), kGrain / width + 1, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * width, lanes = std::min(width, count - first);
        SINTER_IVDEP
        for (int64_t lane = 0; lane < lanes; ++lane) body(first + lane, at(lane));
      }
    });
    return;
  }
  const int64_t channels = view_.channels, inner = view_.inner;
  const auto walk = [=](int64_t begin, int64_t end) {  // [begin, end): elements
    int64_t run = begin / inner, channel = run % channels;
    while (begin < end) {
      const std::array<C, P> values = at(channel);
      const int64_t stop = std::min((run + 1) * inner, end);
      SINTER_IVDEP
      for (int64_t i = begin; i < stop; ++i) body(i, values);
      begin = stop;
      ++run;
      if (++channel == channels) channel = 0;
    }
  };
  parallel_for(view_.numel(), kGrain, walk);
}

template <size_t K, class C, size_t P, class Body>
void ChannelLoop::sum(const std::array<const C*, P>& parameters, double* table, C* scratch, Body body) const {
  const auto at = [parameters](int64_t lane) {
    std::array<C, P> values{};
    for (size_t p = 0; p < P; ++p) values[p] = parameters[p][lane];
    return values;
  };
  const int64_t width = width_;
  if (!by_rows_) {
    for_runs([&](int64_t part, int64_t channel) {
      const std::array<C, P> values = at(channel);
      std::array<double, K> totals{};
      for_blocks(
          part, channel, [&](auto pieces) __attribute__((always_inline)) {
            LaneSums<C, K> sums;
            pieces([&](int64_t begin, int64_t end) __attribute__((always_inline)) {
              sums.add(begin, end, [&](int64_t i) { return body(i, values); });
            });
            for (size_t k = 0; k < K; ++k) totals[k] += sums.total(k);
          });
      for (size_t k = 0; k < K; ++k) table[(part * int64_t{K} + int64_t(k)) * width + channel] = totals[k];
    });
    return;
  }
  for_rows([&](int64_t entry, int64_t first, int64_t last, int64_t lanes) {
    double* totals = table + entry * int64_t{K} * width;
    C* sums = scratch + entry * int64_t{K} * width;
    std::fill_n(totals, int64_t{K} * width, 0.0);
    for (int64_t begin = first; begin < last; begin += rows_per_block()) {
      const int64_t end = std::min(begin + rows_per_block(), last);
      std::fill_n(sums, int64_t{K} * width, C{0});
      add_rows<K>(begin, end, lanes, sums, [=](int64_t i, int64_t lane) { return body(i, at(lane)); });
      SINTER_IVDEP
      for (int64_t lane = 0; lane < int64_t{K} * width; ++lane) totals[lane] += double{sums[lane]};
    }
  });
}

template <size_t K, class C, class Term>
void ChannelLoop::add_rows(int64_t begin, int64_t end, int64_t lanes, C* sums, Term term) const {
  const int64_t width = width_;
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) {  // four rows at a time, to load and store the sums less often
    const int64_t i = row * width;
    SINTER_IVDEP
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const std::array<C, K> a = term(i + lane, lane), b = term(i + width + lane, lane);
      const std::array<C, K> c = term(i + 2 * width + lane, lane), d = term(i + 3 * width + lane, lane);
      for (size_t k = 0; k < K; ++k) sums[int64_t(k) * width + lane] += (a[k] + b[k]) + (c[k] + d[k]);
    }
  }
  for (; row < end; ++row) {
    SINTER_IVDEP
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const std::array<C, K> a = term(row * width + lane, lane);
      for (size_t k = 0; k < K; ++k) sums[int64_t(k) * width + lane] += a[k];
    }
  }
}

}  // namespace sinter::ops
