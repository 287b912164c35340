#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/common/samples/reference_index.h>

namespace sinter::ops {
namespace {

struct Sizes {
  Shape images, pooled;
  Layout layout = Layout::kNCHW;
};

Sizes random_sizes(SampleMaker& maker) {
  const Layout layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  const int64_t batch = maker.integer(0, 3);
  const int64_t channels = maker.chance(0.05) ? 70 : maker.integer(0, 4);
  const auto shape = [&](int64_t height, int64_t width) {
    return layout == Layout::kNCHW ? Shape{batch, channels, height, width}
                                   : Shape{batch, height, width, channels};
  };
  const int64_t height = maker.integer(1, 13), width = maker.integer(1, 13);
  // Mostly smaller, now and then larger.
  const auto out = [&](int64_t in) { return maker.integer(1, maker.chance(0.2) ? 15 : in); };
  const int64_t out_height = out(height), out_width = out(width);
  return {shape(height, width), shape(out_height, out_width), layout};
}

AdaptivePoolAttributes attributes_of(const Shape& result, Layout layout) {
  const int axis = layout == Layout::kNCHW ? 2 : 1;
  return {{result[axis], result[axis + 1]}, layout};
}

/// What part of window o, of `out` over `in` pixels, pixel i is: the window runs from o / out to (o + 1) /
/// out of the image, and takes every pixel that it touches.
double share(int64_t o, int64_t i, int64_t out, int64_t in) {
  const auto touches = [&](int64_t pixel) {
    return pixel * out < (o + 1) * in && (pixel + 1) * out > o * in;
  };
  double count = 0.0;
  for (int64_t pixel = 0; pixel < in; ++pixel) count += touches(pixel) ? 1.0 : 0.0;
  return touches(i) ? 1.0 / count : 0.0;
}

/// The matrix of the op applied to x, or its transpose to dy.
ReferenceTensor applied(const ReferenceTensor& from, const Shape& images, const Shape& pooled,
                        bool transposed, Layout layout) {
  ReferenceTensor result(transposed ? images : pooled);
  const int h = layout == Layout::kNCHW ? 2 : 1, w = h + 1;
  for (int64_t at = 0; at < pooled.numel(); ++at) {
    const std::vector<int64_t> index = unravel(pooled, at);
    for (int64_t i = 0; i < images[h]; ++i) {
      for (int64_t j = 0; j < images[w]; ++j) {
        std::vector<int64_t> pixel = index;
        pixel[static_cast<size_t>(h)] = i;
        pixel[static_cast<size_t>(w)] = j;
        const int64_t other = ravel(images, pixel);
        const double weight = share(index[static_cast<size_t>(h)], i, pooled[h], images[h]) *
                              share(index[static_cast<size_t>(w)], j, pooled[w], images[w]);
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

Shape result_shape(const OpSample& sample) {
  const auto& [size, layout] = sample.attributes.as<AdaptivePoolAttributes>();
  const int axis = layout == Layout::kNCHW ? 2 : 1;
  return sample.inputs[0].shape().with(axis, size[0]).with(axis + 1, size[1]);
}

OpSample make_pool(SampleMaker& maker) {
  const Sizes sizes = random_sizes(maker);
  return {{maker.tensor(sizes.images)}, attributes_of(sizes.pooled, sizes.layout)};
}

OpSample make_grad(SampleMaker& maker) {
  const Sizes sizes = random_sizes(maker);
  return {{maker.tensor(sizes.pooled)}, attributes_of(sizes.images, sizes.layout)};
}

std::vector<ReferenceTensor> pool_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  return {applied(x, x.shape, result_shape(sample), false,
                  sample.attributes.as<AdaptivePoolAttributes>().layout)};
}

std::vector<ReferenceTensor> grad_reference(const OpSample& sample) {
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  return {applied(dy, result_shape(sample), dy.shape, true,
                  sample.attributes.as<AdaptivePoolAttributes>().layout)};
}

OpSample make_max_pool(SampleMaker& maker) {
  const Sizes sizes = random_sizes(maker);
  return {{maker.distinct(sizes.images)}, attributes_of(sizes.pooled, sizes.layout)};
}

std::vector<ReferenceTensor> max_pool_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y(result_shape(sample)), indices(y.shape);
  const int h = sample.attributes.as<AdaptivePoolAttributes>().layout == Layout::kNCHW ? 2 : 1, w = h + 1;
  for (int64_t at = 0; at < y.shape.numel(); ++at) {
    const std::vector<int64_t> index = unravel(y.shape, at);
    std::vector<int64_t> pixel = index;
    y[at] = -1e300;
    for (int64_t i = 0; i < x.shape[h] * x.shape[w]; ++i) {
      const int64_t row = pixel[static_cast<size_t>(h)] = i / x.shape[w];
      const int64_t column = pixel[static_cast<size_t>(w)] = i % x.shape[w];
      const double value = x[ravel(x.shape, pixel)];
      if (share(index[static_cast<size_t>(h)], row, y.shape[h], x.shape[h]) == 0.0 ||
          share(index[static_cast<size_t>(w)], column, y.shape[w], x.shape[w]) == 0.0 || value <= y[at]) {
        continue;
      }
      y[at] = value;
      indices[at] = static_cast<double>(i);
    }
  }
  return {y, indices};
}

}  // namespace

void register_adaptive_pool_samples(SampleRegistry& registry);
void register_adaptive_pool_samples(SampleRegistry& registry) {
  registry.add({.op = "adaptive_avg_pool2d",
                .make = make_pool,
                .reference = pool_reference,
                .term_size = product_terms<pool_reference>});
  registry.add({.op = "adaptive_avg_pool2d_grad",
                .make = make_grad,
                .reference = grad_reference,
                .term_size = product_terms<grad_reference>});
  registry.add({.op = "adaptive_max_pool2d", .make = make_max_pool, .reference = max_pool_reference});
}

}  // namespace sinter::ops
