#include <sinter/ops/conv2d/direct/conv2d_direct_plan.h>

namespace sinter::ops {

std::pair<int64_t, int64_t> DirectAxis::reads(int64_t begin, int64_t end) const {
  bool any = false;
  std::pair<int64_t, int64_t> range{0, 0};
  for (const DirectPhase& phase : phases) {
    const int64_t first = phase.count_before(begin), last = phase.count_before(end) - 1;
    if (first > last) continue;
    for (const DirectTap& tap : phase.taps) {
      const int64_t low = first * source_step + tap.offset, high = last * source_step + tap.offset + 1;
      range =
          any ? std::pair(std::min(range.first, low), std::max(range.second, high)) : std::pair(low, high);
      any = true;
    }
  }
  return range;
}

DirectAxis forward_axis(const Conv2dAxis& axis) {
  DirectPhase phase;
  for (int64_t tap = 0; tap < axis.kernel; ++tap)
    phase.taps.push_back({tap, tap * axis.dilation - axis.padding});
  return {.source = axis.input, .target = axis.output, .source_step = axis.stride, .phases = {phase}};
}

DirectAxis grad_input_axis(const Conv2dAxis& axis) {
  DirectAxis made{.source = axis.output, .target = axis.input, .source_step = 1, .phases = {}};
  for (int64_t start = 0; start < std::min(axis.stride, axis.input); ++start) {
    DirectPhase phase{.start = start, .step = axis.stride, .taps = {}};
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      // y[j] read x[j * stride - padding + tap * dilation].
      const int64_t distance = start + axis.padding - tap * axis.dilation;
      if (distance % axis.stride == 0) phase.taps.push_back({tap, distance / axis.stride});
    }
    made.phases.push_back(std::move(phase));
  }
  return made;
}

DirectAxis identity_axis(int64_t extent) {
  return {.source = extent, .target = extent, .source_step = 1, .phases = {{.taps = {{0, 0}}}}};
}

PackedBand::PackedBand(const DirectAxis& rows, const DirectAxis& columns, int64_t channels, int64_t lanes)
    : rows_(&rows), columns_(&columns), channels_(channels), lanes_(lanes) {
  const int64_t step = columns.source_step;
  const auto [low, high] = columns.reads(0, columns.target);
  first_column_ = low;
  columns_per_phase_ = (high - low + step - 1) / step;
  // Remainders that no tap has are left out.
  std::vector<int64_t> base(static_cast<size_t>(std::min(step, high - low)), -1);
  for (const DirectPhase& phase : columns.phases) {
    for (const DirectTap& tap : phase.taps) {
      if (phase.count_before(columns.target) > 0) base[static_cast<size_t>((tap.offset - low) % step)] = 0;
    }
  }
  for (int64_t& element : base) {
    if (element < 0) continue;
    element = columns_packed_ * lanes;
    columns_packed_ += columns_per_phase_;
  }
  phase_elements_ = base;
  column_elements_.assign(static_cast<size_t>(columns.source), -1);
  for (int64_t q = 0; q < columns_per_phase_ * step; ++q) {
    if (q % step >= static_cast<int64_t>(base.size()) || base[static_cast<size_t>(q % step)] < 0) continue;
    const int64_t element = base[static_cast<size_t>(q % step)] + q / step * lanes;
    if (low + q >= 0 && low + q < columns.source) {
      column_elements_[static_cast<size_t>(low + q)] = element;
    } else {
      padding_elements_.push_back(element);
    }
  }
}

int64_t PackedBand::tap_element(int64_t offset) const {
  const int64_t step = columns_->source_step;
  const int64_t q = offset - first_column_;
  return phase_elements_[static_cast<size_t>(q % step)] + q / step * lanes_;
}

void PackedBand::set_targets(int64_t begin, int64_t end) {
  const auto [low, high] = rows_->reads(begin, end);
  first_row_ = low;
  row_count_ = high - low;
  row_needed_.assign(static_cast<size_t>(row_count_), 0);
  for (const DirectPhase& phase : rows_->phases) {
    for (const DirectTap& tap : phase.taps) {
      for (int64_t j = phase.count_before(begin); j < phase.count_before(end); ++j) {
        row_needed_[static_cast<size_t>(j * rows_->source_step + tap.offset - low)] = 1;
      }
    }
  }
}

int64_t PackedBand::capacity(int64_t band_rows) const {
  int64_t most = 0;
  for (int64_t row = 0; row < rows_->target; row += band_rows) {
    const auto [low, high] = rows_->reads(row, std::min(row + band_rows, rows_->target));
    most = std::max(most, high - low);
  }
  return blocks() * most * row_elements();
}

}  // namespace sinter::ops
