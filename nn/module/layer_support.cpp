// How layers check their inputs and print their options, as layer_support_internal.h declares.
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::nn {

void check_batch(const char* tag, const Tensor& x) {
  if (x.rank() != 3) return;
  const Shape& shape = x.shape();
  throw_error<InvalidArgument>(
      "[{}] expected a batch of images (rank 4) but got shape {}; if that is one image, give it a batch "
      "axis: "
      "ops::reshape(x, {{1, {}, {}, {}}})",
      tag, shape, shape[0], shape[1], shape[2]);
}

void check_channels(const char* tag, const Tensor& x, int64_t channels, Layout layout) {
  if (x.rank() != 4) return;
  const bool is_first = layout == Layout::kNCHW;
  const int axis = is_first ? 1 : 3, other_axis = is_first ? 3 : 1;
  SINTER_CHECK(
      x.shape()[axis] == channels || x.shape()[other_axis] != channels,
      "[{}] expected {} channels in axis {}, as the layer works in {}, but got shape {}, which looks "
      "like {}; model.to(Layout::{}) makes the model work in it",
      tag, channels, axis, to_string(layout), x.shape(), to_string(is_first ? Layout::kNHWC : Layout::kNCHW),
      is_first ? "kNHWC" : "kNCHW");
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  return ops::reshape(x, std::vector<int64_t>(shape.begin(), shape.end()));
}

std::string to_string(Size2d size) {
  return fmt::format("{}x{}", size.height, size.width);
}

std::string to_string(const Padding2d& padding) {
  if (padding.is_even()) return to_string(Size2d(padding.top, padding.left));
  return fmt::format("top {} bottom {} left {} right {}", padding.top, padding.bottom, padding.left,
                     padding.right);
}

}  // namespace sinter::nn
