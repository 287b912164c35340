#include <sinter/core/base/error.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/upsample/pixel_shuffle.h>

namespace sinter::ops {
namespace {

/// The extents of images in the order (N, C, H, W).
struct ImageExtents {
  ImageExtents(const char* tag, const Tensor& x, int64_t factor, Layout layout) {
    SINTER_CHECK(x.rank() == 4, "[{}] expected images (rank 4) but got shape {}", tag, x.shape());
    SINTER_CHECK(factor > 0 && factor <= INT32_MAX, "[{}] expected a factor > 0 but got {}", tag, factor);
    const bool first = layout == Layout::kNCHW;
    n = x.size(0), c = x.size(first ? 1 : 3), h = x.size(first ? 2 : 1), w = x.size(first ? 3 : 2);
  }
  int64_t n, c, h, w;
};

}  // namespace

Tensor pixel_shuffle(const Tensor& x, int64_t factor, const PixelShuffleOptions& options) {
  const auto [n, c, h, w] = ImageExtents("pixel_shuffle", x, factor, options.layout);
  const int64_t r = factor, channels = c / (r * r);
  SINTER_CHECK(c % (r * r) == 0, "[pixel_shuffle] expected channels that are a multiple of {} but got {}",
               r * r, c);
  // One permutation does for both: (N, C, r, r, H, W) to (N, C, H, r, W, r), (N, H, W, C, r, r) to (N, H, r,
  // W, r, C).
  if (options.layout == Layout::kNCHW) {
    const Tensor split = reshape(x, {n, channels, r, r, h, w});
    return reshape(permute(split, {0, 1, 4, 2, 5, 3}), {n, channels, h * r, w * r});
  }
  const Tensor split = reshape(x, {n, h, w, channels, r, r});
  return reshape(permute(split, {0, 1, 4, 2, 5, 3}), {n, h * r, w * r, channels});
}

Tensor pixel_unshuffle(const Tensor& x, int64_t factor, const PixelShuffleOptions& options) {
  const auto [n, c, h, w] = ImageExtents("pixel_unshuffle", x, factor, options.layout);
  const int64_t r = factor;
  SINTER_CHECK(h % r == 0 && w % r == 0,
               "[pixel_unshuffle] expected a height and a width that are multiples of {} but got {} and {}",
               r, h, w);
  if (options.layout == Layout::kNCHW) {
    const Tensor split = reshape(x, {n, c, h / r, r, w / r, r});
    return reshape(permute(split, {0, 1, 3, 5, 2, 4}), {n, c * r * r, h / r, w / r});
  }
  const Tensor split = reshape(x, {n, h / r, r, w / r, r, c});
  return reshape(permute(split, {0, 1, 3, 5, 2, 4}), {n, h / r, w / r, c * r * r});
}

}  // namespace sinter::ops
