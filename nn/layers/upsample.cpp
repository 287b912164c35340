#include <cmath>

#include <sinter/nn/layers/upsample.h>
#include <sinter/nn/module/layer_support_internal.h>

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
  SINTER_CHECK(x.rank() == 4, "[upsample] expected images (rank 4) but got shape {}", x.shape());
  const int height = options_.layout == Layout::kNCHW ? 2 : 1;
  const auto scaled = [&](int64_t extent) {
    return static_cast<int64_t>(std::floor(static_cast<double>(extent) * options_.scale));
  };
  const Size2d size =
      options_.size.value_or(Size2d(scaled(x.shape()[height]), scaled(x.shape()[height + 1])));
  return ops::upsample(x, {.size = size,
                           .mode = options_.mode,
                           .align_corners = options_.align_corners,
                           .layout = options_.layout});
}

}  // namespace sinter::nn
