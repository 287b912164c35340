#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/mix_images/mix_images.h>

namespace sinter::ops {
namespace {

OpSample make_mix_images(SampleMaker& maker) {
  MixImagesOptions options;
  options.share = maker.chance(0.2) ? 0.0 : maker.chance(0.1) ? 1.0 : maker.uniform(0, 1);
  options.boxed = maker.chance(0.6);
  options.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  if (options.boxed) {
    options.top = maker.integer(-3, 9);
    options.left = maker.integer(-3, 9);
    options.height = maker.integer(0, 9);
    options.width = maker.integer(0, 9);
  }
  const int rank = options.boxed ? 4 : static_cast<int>(maker.integer(1, 4));
  return {{maker.tensor(maker.shape(rank))}, options};
}

/// Goes by places (n, c, y, x) instead of runs of memory.
std::vector<ReferenceTensor> mix_images_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<MixImagesOptions>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor mixed(x.shape);
  if (x.values.empty()) return {mixed};
  const int64_t images = x.shape[0], size = x.shape.numel() / images;
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t at = 0; at < size; ++at) {
      bool inside = true;
      if (options.boxed) {
        const bool last = options.layout == Layout::kNHWC;
        const int64_t column = last ? at / x.shape[3] % x.shape[2] : at % x.shape[3];
        const int64_t row = last ? at / x.shape[3] / x.shape[2] : at / x.shape[3] % x.shape[2];
        inside = row >= options.top && row < options.top + options.height && column >= options.left &&
                 column < options.left + options.width;
      }
      const double own = x[n * size + at], other = x[(n + images - 1) % images * size + at];
      mixed[n * size + at] = inside ? own * options.share + other * (1 - options.share) : own;
    }
  }
  return {mixed};
}

}  // namespace

void register_mix_images_samples(SampleRegistry& registry);
void register_mix_images_samples(SampleRegistry& registry) {
  registry.add({.op = "mix_images",
                .make = make_mix_images,
                .reference = mix_images_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
