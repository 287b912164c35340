#include <algorithm>
#include <cmath>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/augment/mixing.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/one_hot/one_hot.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::nn {
namespace {

void check_options(double alpha, int64_t classes, const char* tag) {
  SINTER_CHECK(alpha > 0 && alpha <= 1000, "[{}] expected 0 < alpha <= 1000 but got {}", tag, alpha);
  SINTER_CHECK(classes > 0, "[{}] expected the number of classes but got {}", tag, classes);
}

void check_batch(const Tensor& images, const Tensor& labels, const char* tag) {
  SINTER_CHECK(is_float(images.dtype()) && images.rank() >= 1 && labels.dtype() == DType::kInt64 &&
                   labels.shape() == Shape{images.shape()[0]},
               "[{}] expected floating-point images (N, ...) and int64 labels (N) but got {} {} and {} {}",
               tag, images.dtype(), images.shape(), labels.dtype(), labels.shape());
}

/// The labels of the images that are mixed in.
Tensor labels_before(const Tensor& labels) {
  const int64_t count = labels.numel();
  if (count < 2) return labels;
  return ops::concat({ops::slice(labels, 0, count - 1, count), ops::slice(labels, 0, 0, count - 1)}, 0);
}

/// The share as targets have it: the larger of the two as the dtype rounds it, and the other one the rest,
/// which the dtype then holds exactly. Rounded each by itself, they may miss a sum of 1.
double target_share(double share, DType dtype) {
  const auto rounded = [dtype](double value) -> double {
    if (dtype == DType::kBFloat16) return bfloat16(value);
    if (dtype == DType::kFloat16) return float16(value);
    return dtype == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  };
  return share >= 0.5 ? rounded(share) : 1.0 - rounded(1.0 - share);
}

MixedBatch mixed_batch(const Tensor& images, const Tensor& labels, int64_t classes, double share,
                       const ops::MixImagesOptions& of_images) {
  const NoGrad no_grad;
  return {.images = ops::mix_images(images, of_images),
          .targets = ops::mix_images(ops::one_hot(labels, classes, images.dtype()),
                                     {.share = target_share(share, images.dtype())}),
          .labels = share >= 0.5 ? labels : labels_before(labels),
          .share = share};
}

}  // namespace

Mixup::Mixup(const MixupOptions& options) : options_(options) {
  check_options(options.alpha, options.classes, "mixup");
}

MixedBatch Mixup::operator()(const Tensor& images, const Tensor& labels, Generator& generator) const {
  check_batch(images, labels, "mixup");
  const double share = generator.beta(options_.alpha, options_.alpha);
  return mixed_batch(images, labels, options_.classes, share, {.share = share});
}

CutMix::CutMix(const CutMixOptions& options) : options_(options) {
  check_options(options.alpha, options.classes, "cutmix");
}

MixedBatch CutMix::operator()(const Tensor& images, const Tensor& labels, Generator& generator) const {
  check_batch(images, labels, "cutmix");
  const Shape& shape = images.shape();
  SINTER_CHECK(images.rank() == 4 && images.numel() > 0,
               "[cutmix] expected images with pixels of rank 4 but got shape {}", shape);
  const bool last = options_.layout == Layout::kNHWC;
  const int64_t height = shape[last ? 1 : 2], width = shape[last ? 2 : 3];
  const double half = 0.5 * std::sqrt(1.0 - generator.beta(options_.alpha, options_.alpha));
  const auto y = static_cast<int64_t>(generator.below(static_cast<uint64_t>(height)));
  const auto x = static_cast<int64_t>(generator.below(static_cast<uint64_t>(width)));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  ops::MixImagesOptions box{.share = 0.0, .boxed = true, .layout = options_.layout};
  box.top = std::max<int64_t>(y - half_height, 0);
  box.left = std::max<int64_t>(x - half_width, 0);
  box.height = std::min(y + half_height, height) - box.top;
  box.width = std::min(x + half_width, width) - box.left;
  const double share =
      1.0 - static_cast<double>(box.height * box.width) / static_cast<double>(height * width);
  return mixed_batch(images, labels, options_.classes, share, box);
}

}  // namespace sinter::nn
