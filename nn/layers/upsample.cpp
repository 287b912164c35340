#include <cmath>

#include <sinter/nn/layers/upsample.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/upsample/pixel_shuffle.h>

namespace sinter::nn {

Upsample::Upsample(const UpsampleOptions& options) : options_(options) {
  SINTER_CHECK(options.size || (options.scale > 0.0 && std::isfinite(options.scale)),
               "[upsample] expected a finite scale > 0 but got {}", options.scale);
  SINTER_CHECK(!options.size || (options.size->height > 0 && options.size->width > 0),
               "[upsample] expected a size > 0 but got {}", to_string(*options.size));
  works_in(options.layout);
  describe((options.size ? "size " + to_string(*options.size) : fmt::format("scale {}", options.scale)) +
           ", " + std::string(ops::to_string(options.mode)));
}

Tensor Upsample::forward(const Tensor& x) const {
  check_batch("upsample", x);
  UpsampleOptions options = options_;
  options.layout = layout();
  return ops::upsample(x, options);
}

PixelShuffle::PixelShuffle(int64_t factor, Layout layout) : factor_(factor) {
  SINTER_CHECK(factor > 0, "[pixel_shuffle] expected a factor > 0 but got {}", factor);
  works_in(layout);
  describe(fmt::format("{}", factor));
}

Tensor PixelShuffle::forward(const Tensor& x) const {
  check_batch("pixel_shuffle", x);
  return ops::pixel_shuffle(x, factor_, {.layout = layout()});
}

}  // namespace sinter::nn
