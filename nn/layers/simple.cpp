#include <optional>

#include <fmt/ranges.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::nn {

Dropout::Dropout(double p) : p_(p) {
  SINTER_CHECK(p >= 0.0 && p < 1.0, "[dropout] expected a probability in [0, 1) but got {}", p);
  describe(fmt::format("{}", p));
}

Tensor Dropout::forward(const Tensor& x) const {
  return training() && p_ > 0.0 ? ops::dropout(x, p_) : x;
}

Dropout2d::Dropout2d(double p, Layout layout) : p_(p) {
  SINTER_CHECK(p >= 0.0 && p < 1.0, "[dropout2d] expected a probability in [0, 1) but got {}", p);
  describe(fmt::format("{}", p));
  works_in(layout);
}

Tensor Dropout2d::forward(const Tensor& x) const {
  check_batch("dropout2d", x);
  SINTER_CHECK(x.rank() == 4, "[dropout2d] expected images of rank 4 but got shape {}", x.shape());
  if (!training() || p_ == 0.0) return x;
  const bool is_channels_last = layout() == Layout::kNHWC;
  const int64_t channels = x.size(is_channels_last ? 3 : 1);
  const Shape shape = is_channels_last ? Shape{x.size(0), 1, 1, channels} : Shape{x.size(0), channels, 1, 1};
  return ops::mul_no_nan(x, ops::dropout(ops::full(shape, 1.0, x.dtype(), x.device()), p_));
}

std::string to_string(StochasticDepthMode mode) {
  return mode == StochasticDepthMode::kRow ? "row" : "batch";
}

StochasticDepth::StochasticDepth(double p, StochasticDepthMode mode) : p_(p), mode_(mode) {
  SINTER_CHECK(p >= 0.0 && p < 1.0, "[stochastic_depth] expected a probability in [0, 1) but got {}", p);
  describe(fmt::format("{}, {}", p, to_string(mode)));
}

Tensor StochasticDepth::forward(const Tensor& x) const {
  SINTER_CHECK(x.rank() > 0, "[stochastic_depth] expected a batch but got a scalar");
  if (!training() || p_ == 0.0) return x;
  std::vector<int64_t> extents(static_cast<size_t>(x.rank()), 1);
  std::optional<RandomPartScope> whole;
  if (mode_ == StochasticDepthMode::kRow) {
    extents[0] = x.size(0);
  } else {
    whole.emplace(0, 1);  // the batch is that of all parts
  }
  return ops::mul_no_nan(x, ops::dropout(ops::full(Shape(extents), 1.0, x.dtype(), x.device()), p_));
}

Unflatten::Unflatten(int64_t axis, std::vector<int64_t> extents, Layout layout)
    : axis_(axis), extents_(std::move(extents)), made_in_(layout) {
  starts_in(layout);
  SINTER_CHECK(!extents_.empty(), "[unflatten] expected extents but got none");
  describe(fmt::format("{}, {}", axis, fmt::join(extents_, "x")));
}

Tensor Unflatten::forward(const Tensor& x) const {
  const auto axis = static_cast<size_t>(normalize_axis(axis_, x.rank(), "unflatten"));
  const Shape shape = x.shape();
  std::vector<int64_t> extents(shape.begin(), shape.end());
  // Of the axis alone, so that -1 stands for what is left of it.
  const Shape parts = ops::reshape(Tensor::empty({extents[axis]}, DType::kUInt8), extents_).shape();
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(axis));
  extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(axis), parts.begin(), parts.end());
  const Tensor y = ops::reshape(x, extents);
  if (x.rank() == 4 || y.rank() != 4 || layout() == made_in_) return y;
  return layout() == Layout::kNHWC ? ops::permute(y, {0, 2, 3, 1}) : ops::permute(y, {0, 3, 1, 2});
}

Pad2d::Pad2d(Padding2d padding, const Pad2dOptions& options) : padding_(padding), options_(options) {
  describe(fmt::format("{}, {}", to_string(padding), ops::to_string(options.mode)));
  works_in(options.layout);
}

Tensor Pad2d::forward(const Tensor& x) const {
  check_batch("pad2d", x);
  SINTER_CHECK(x.rank() == 4, "[pad2d] expected images of rank 4 but got shape {}", x.shape());
  const std::array<int64_t, 2> none{0, 0}, rows{padding_.top, padding_.bottom},
      columns{padding_.left, padding_.right};
  return layout() == Layout::kNHWC
             ? ops::pad(x, {none, rows, columns, none}, {.mode = options_.mode, .value = options_.value})
             : ops::pad(x, {none, none, rows, columns}, {.mode = options_.mode, .value = options_.value});
}

ChangeLayout::ChangeLayout(Layout from, Layout to) {
  works_in(from, to);
  describe(fmt::format("{} to {}", to_string(from), to_string(to)));
}

Tensor ChangeLayout::forward(const Tensor& x) const {
  if (layout() == output_layout()) return x;
  return output_layout() == Layout::kNHWC ? ops::permute(x, {0, 2, 3, 1}) : ops::permute(x, {0, 3, 1, 2});
}

Tensor Flatten::forward(const Tensor& x) const {
  const bool is_channels_last = layout() == Layout::kNHWC && x.rank() == 4;
  return ops::flatten(is_channels_last ? ops::permute(x, {0, 3, 1, 2}) : x, first_, last_);
}

}  // namespace sinter::nn
