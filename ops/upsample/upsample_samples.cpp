#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>
#include <sinter/ops/upsample/upsample.h>

namespace sinter::ops {
namespace {

struct Sizes {
  Shape small, large;
  UpsampleAttributes attributes;  // without a size
};

Sizes random_sizes(SampleMaker& maker) {
  Sizes sizes;
  sizes.attributes.mode = maker.pick({UpsampleMode::kNearest, UpsampleMode::kBilinear});
  sizes.attributes.align_corners = sizes.attributes.mode == UpsampleMode::kBilinear && maker.chance(0.4);
  sizes.attributes.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  const int64_t batch = maker.integer(0, 3), channels = maker.integer(0, 4);
  const int64_t h = maker.integer(1, 7), w = maker.integer(1, 7);
  // Mostly larger, now and then smaller or a whole multiple.
  const auto out = [&](int64_t in) { return maker.chance(0.4) ? 2 * in : maker.integer(1, 15); };
  const int64_t out_h = out(h), out_w = out(w);
  const bool is_first = sizes.attributes.layout == Layout::kNCHW;
  sizes.small = is_first ? Shape{batch, channels, h, w} : Shape{batch, h, w, channels};
  sizes.large = is_first ? Shape{batch, channels, out_h, out_w} : Shape{batch, out_h, out_w, channels};
  return sizes;
}

std::array<int64_t, 2> size_of_image(const Shape& shape, Layout layout) {
  const int axis = layout == Layout::kNCHW ? 2 : 1;
  return {shape[axis], shape[axis + 1]};
}

OpSample make_upsample(SampleMaker& maker) {
  Sizes sizes = random_sizes(maker);
  sizes.attributes.size = size_of_image(sizes.large, sizes.attributes.layout);
  return {{maker.tensor(sizes.small)}, sizes.attributes};
}

OpSample make_upsample_grad(SampleMaker& maker) {
  Sizes sizes = random_sizes(maker);
  sizes.attributes.size = size_of_image(sizes.small, sizes.attributes.layout);
  return {{maker.tensor(sizes.large)}, sizes.attributes};
}

/// How much of input pixel i is in output pixel o: a triangle around the output's position, clamped to the
/// image.
double weight_of(int64_t o, int64_t i, int64_t input, int64_t output, const UpsampleAttributes& attributes) {
  const double in = static_cast<double>(input), out = static_cast<double>(output);
  if (attributes.mode == UpsampleMode::kNearest) return i == o * input / output ? 1.0 : 0.0;
  double position = (static_cast<double>(o) + 0.5) * in / out - 0.5;
  if (attributes.align_corners) {
    position = output > 1 ? static_cast<double>(o) * (in - 1.0) / (out - 1.0) : 0.0;
  }
  position = std::clamp(position, 0.0, in - 1.0);
  return std::max(0.0, 1.0 - std::abs(position - static_cast<double>(i)));
}

/// The matrix of the op applied to x, or its transpose to dy.
ReferenceTensor applied(const ReferenceTensor& from, const Shape& small, const Shape& large, bool transposed,
                        const UpsampleAttributes& attributes) {
  ReferenceTensor result(transposed ? small : large);
  const int h = attributes.layout == Layout::kNCHW ? 2 : 1, w = h + 1;
  for (int64_t at = 0; at < large.numel(); ++at) {
    const std::vector<int64_t> index = unravel(large, at);
    const int64_t row = index[static_cast<size_t>(h)], column = index[static_cast<size_t>(w)];
    for (int64_t i = 0; i < small[h]; ++i) {
      for (int64_t j = 0; j < small[w]; ++j) {
        std::vector<int64_t> source = index;
        source[static_cast<size_t>(h)] = i;
        source[static_cast<size_t>(w)] = j;
        const int64_t other = ravel(small, source);
        const double weight = weight_of(row, i, small[h], large[h], attributes) *
                              weight_of(column, j, small[w], large[w], attributes);
        if (transposed) {
          result[other] += weight * from[at];
        } else {
          result[at] += weight * from[other];
        }
      }
    }
  }
  return result;
}

Shape with_size(const Shape& shape, const UpsampleAttributes& attributes) {
  const int axis = attributes.layout == Layout::kNCHW ? 2 : 1;
  return shape.with(axis, attributes.size[0]).with(axis + 1, attributes.size[1]);
}

std::vector<ReferenceTensor> upsample_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<UpsampleAttributes>();
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  return {applied(x, x.shape, with_size(x.shape, attributes), false, attributes)};
}

std::vector<ReferenceTensor> upsample_grad_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<UpsampleAttributes>();
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  return {applied(dy, with_size(dy.shape, attributes), dy.shape, true, attributes)};
}

}  // namespace

void register_upsample_samples(SampleRegistry& registry);
void register_upsample_samples(SampleRegistry& registry) {
  registry.add({.op = "upsample",
                .make = make_upsample,
                .reference = upsample_reference,
                .term_size = product_terms<upsample_reference>});
  registry.add({.op = "upsample_grad",
                .make = make_upsample_grad,
                .reference = upsample_grad_reference,
                .term_size = product_terms<upsample_grad_reference>});
}

}  // namespace sinter::ops
