#include <sinter/nn/layers/simple.h>
#include <sinter/ops/dropout/dropout.h>
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

ChangeLayout::ChangeLayout(Layout from, Layout to) : changes_(from != to), to_(to) {
  works_in(from, to);
  describe(fmt::format("{} to {}", to_string(from), to_string(to)));
}

Tensor ChangeLayout::forward(const Tensor& x) const {
  if (!changes_) return x;
  return to_ == Layout::kNHWC ? ops::permute(x, {0, 2, 3, 1}) : ops::permute(x, {0, 3, 1, 2});
}

Tensor Flatten::forward(const Tensor& x) const {
  const bool is_channels_last = layout_ == Layout::kNHWC && x.rank() == 4;
  return ops::flatten(is_channels_last ? ops::permute(x, {0, 3, 1, 2}) : x);
}

}  // namespace sinter::nn
