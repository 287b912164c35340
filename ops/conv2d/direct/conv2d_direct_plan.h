// How the direct kernels walk a convolution: which source pixel each filter tap reads for each target pixel,
// and how a band of a source image is packed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <sinter/ops/conv2d/conv2d_geometry.h>

namespace sinter::ops {

/// A filter tap along one axis, and where it reads relative to the target.
struct DirectTap {
  int64_t index = 0;   ///< in the filter
  int64_t offset = 0;  ///< the source index for the phase's first target
};

/// The targets start, start + step, start + 2*step, ...: the j-th reads, at each tap, the source index
/// j * DirectAxis::source_step + tap.offset (padding if outside the source).
struct DirectPhase {
  int64_t start = 0, step = 1;
  std::vector<DirectTap> taps;

  /// How many of the phase's targets lie before `target`.
  int64_t count_before(int64_t target) const {
    return target <= start ? 0 : (target - start + step - 1) / step;
  }
};

struct DirectAxis {
  int64_t source = 0, target = 0;  ///< extents
  int64_t source_step = 1;
  std::vector<DirectPhase> phases;

  /// The source indices [first, second) that the targets [begin, end) read, padding included; empty: (0, 0).
  std::pair<int64_t, int64_t> reads(int64_t begin, int64_t end) const;
};

/// y from x: one phase whose taps step over the source by the stride.
DirectAxis forward_axis(const Conv2dAxis& axis);
/// dx from dy: targets of equal remainder by the stride read the same taps, so that each phase is a
/// convolution of stride 1 with a part of the filter.
DirectAxis grad_input_axis(const Conv2dAxis& axis);
/// Every target reads its own index.
DirectAxis identity_axis(int64_t extent);

/// A band of source rows as packed for vectors of `lanes` channels: [channel block][row][column][lane], zeros
/// for padding and missing channels. Columns are sorted by remainder modulo source_step, so that neighbouring
/// targets read neighbouring pixels whatever the stride.
class PackedBand {
 public:
  PackedBand(const DirectAxis& rows, const DirectAxis& columns, int64_t channels, int64_t lanes);

  /// Chooses the band that the target rows [begin, end) read.
  void set_targets(int64_t begin, int64_t end);
  /// Elements of the largest band of `band_rows` target rows.
  int64_t capacity(int64_t band_rows) const;

  int64_t channels() const { return channels_; }
  int64_t blocks() const { return (channels_ + lanes_ - 1) / lanes_; }
  int64_t first_row() const { return first_row_; }
  int64_t row_count() const { return row_count_; }
  int64_t row_elements() const { return columns_packed_ * lanes_; }
  int64_t block_elements() const { return row_count_ * row_elements(); }
  /// False for rows that no target reads.
  bool needs_row(int64_t row) const { return row_needed_[static_cast<size_t>(row - first_row_)] != 0; }
  /// Element of a packed row at which a source column lies; negative if no target reads it.
  int64_t column_element(int64_t column) const { return column_elements_[static_cast<size_t>(column)]; }
  /// Where a tap's column lies for the first target of its phase.
  int64_t tap_element(int64_t offset) const;
  const std::vector<int64_t>& padding_elements() const { return padding_elements_; }
  const DirectAxis& rows() const { return *rows_; }
  const DirectAxis& columns() const { return *columns_; }

 private:
  const DirectAxis* rows_;
  const DirectAxis* columns_;
  int64_t channels_, lanes_;
  int64_t first_column_ = 0, columns_per_phase_ = 0, columns_packed_ = 0;
  int64_t first_row_ = 0, row_count_ = 0;
  std::vector<char> row_needed_;
  std::vector<int64_t> phase_elements_;    // by remainder: the first column's element, negative if unused
  std::vector<int64_t> column_elements_;   // by source column
  std::vector<int64_t> padding_elements_;  // of columns outside the image
};

}  // namespace sinter::ops
