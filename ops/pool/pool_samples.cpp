#include <limits>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::ops {
namespace {

int64_t after(const PoolAttributes& options, size_t axis) {
  return options.padding_after[axis] < 0 ? options.padding[axis] : options.padding_after[axis];
}
int64_t span_of(const PoolAttributes& options, size_t axis) {
  return options.dilation[axis] * (options.kernel[axis] - 1) + 1;
}

/// Extents of a call, counted out by brute force.
struct Windows {
  int64_t batch = 0, channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
  PoolAttributes options;

  int64_t at(int64_t n, int64_t c, int64_t y, int64_t x, int64_t rows, int64_t columns) const {
    return options.layout == Layout::kNCHW ? ((n * channels + c) * rows + y) * columns + x
                                           : ((n * rows + y) * columns + x) * channels + c;
  }
  int64_t image(int64_t n, int64_t c, int64_t y, int64_t x) const { return at(n, c, y, x, height, width); }
  int64_t output(int64_t n, int64_t c, int64_t y, int64_t x) const {
    return at(n, c, y, x, out_height, out_width);
  }
  Shape shape(int64_t rows, int64_t columns) const {
    return options.layout == Layout::kNCHW ? Shape{batch, channels, rows, columns}
                                           : Shape{batch, rows, columns, channels};
  }

  /// Calls visit(image index, output index, place in the window) for every element of every window that lies
  /// in the image.
  template <class Visit>
  void each(Visit visit) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t oy = 0; oy < out_height; ++oy) {
          for (int64_t ox = 0; ox < out_width; ++ox) {
            for (int64_t place = 0; place < options.kernel[0] * options.kernel[1]; ++place) {
              const int64_t y = oy * options.stride[0] - options.padding[0] +
                                place / options.kernel[1] * options.dilation[0];
              const int64_t x = ox * options.stride[1] - options.padding[1] +
                                place % options.kernel[1] * options.dilation[1];
              if (y < 0 || y >= height || x < 0 || x >= width) continue;
              visit(image(n, c, y, x), output(n, c, oy, ox), place);
            }
          }
        }
      }
    }
  }
  /// What every output of an average is divided by.
  std::vector<double> divisors() const {
    std::vector<double> counts(static_cast<size_t>(shape(out_height, out_width).numel()),
                               static_cast<double>(options.divisor));
    if (options.divisor != 0) return counts;
    if (!options.count_include_pad) {
      each([&](int64_t, int64_t out, int64_t) { counts[static_cast<size_t>(out)] += 1.0; });
      return counts;
    }
    for (int64_t nc = 0; nc < batch * channels; ++nc) {
      for (int64_t oy = 0; oy < out_height; ++oy) {
        for (int64_t ox = 0; ox < out_width; ++ox) {
          const int64_t bottom =
              oy * options.stride[0] + options.kernel[0] - height - options.padding[0] - after(options, 0);
          const int64_t right =
              ox * options.stride[1] + options.kernel[1] - width - options.padding[1] - after(options, 1);
          counts[static_cast<size_t>(output(nc / channels, nc % channels, oy, ox))] =
              static_cast<double>((options.kernel[0] - std::max<int64_t>(bottom, 0)) *
                                  (options.kernel[1] - std::max<int64_t>(right, 0)));
        }
      }
    }
    return counts;
  }
};

/// The number of windows that fit: with ceil_mode also one that overhangs, if it starts in the image or the
/// padding before.
int64_t count_windows(int64_t extent, const PoolAttributes& options, size_t axis) {
  const int64_t padded = extent + options.padding[axis] + after(options, axis);
  const int64_t span = span_of(options, axis);
  int64_t count = 0;
  for (int64_t start = 0; start < extent + options.padding[axis]; start += options.stride[axis]) {
    const bool fits = start + span <= padded;
    const bool overhangs = options.ceil_mode && start - options.stride[axis] + span < padded;
    count += fits || overhangs ? 1 : 0;
  }
  return count;
}

Windows windows_of(const PoolAttributes& options, int64_t batch, int64_t channels, int64_t height,
                   int64_t width) {
  return {
      batch,  channels, height, width, count_windows(height, options, 0), count_windows(width, options, 1),
      options};
}

Windows random_windows(SampleMaker& maker, bool is_max) {
  PoolAttributes options{.layout = maker.pick({Layout::kNCHW, Layout::kNHWC}),
                         .ceil_mode = maker.chance(0.4),
                         .count_include_pad = maker.chance(0.5),
                         .divisor = !is_max && maker.chance(0.2) ? maker.integer(1, 9) : 0};
  const bool uneven = maker.chance(0.3), dilated = is_max && maker.chance(0.3);
  std::array<int64_t, 2> extent{};
  for (size_t axis = 0; axis < 2; ++axis) {
    options.kernel[axis] = maker.chance(0.05) ? 17 : maker.integer(1, 5);
    options.stride[axis] = maker.integer(1, 4);
    if (dilated) options.dilation[axis] = maker.integer(1, 3);
    const int64_t span = span_of(options, axis);
    options.padding[axis] = maker.integer(0, span / 2);
    if (uneven) options.padding_after[axis] = maker.integer(0, span / 2);
    // So that every window has an element in the image.
    const int64_t least =
        std::max(span - options.padding[axis] - after(options, axis), options.dilation[axis]);
    extent[axis] = least + maker.integer(0, 9);
  }
  return windows_of(options, maker.chance(0.05) ? 0 : maker.integer(1, 2), maker.integer(1, 5), extent[0],
                    extent[1]);
}

Windows windows_of(const OpSample& sample) {
  const Shape& shape = sample.inputs[0].shape();
  const auto& options = sample.attributes.as<PoolAttributes>();
  const bool first = options.layout == Layout::kNCHW;
  return windows_of(options, shape[0], shape[first ? 1 : 3], shape[first ? 2 : 1], shape[first ? 3 : 2]);
}

Windows grad_windows_of(const OpSample& sample) {
  const auto& [options, height, width] = sample.attributes.as<PoolGradOptions>();
  const Shape& shape = sample.inputs[0].shape();
  return windows_of(options, shape[0], shape[options.layout == Layout::kNCHW ? 1 : 3], height, width);
}

OpSample make_max_pool(SampleMaker& maker) {
  const Windows windows = random_windows(maker, true);
  return {{maker.distinct(windows.shape(windows.height, windows.width))}, windows.options};
}

std::vector<ReferenceTensor> max_pool_reference(const OpSample& sample) {
  const Windows windows = windows_of(sample);
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  ReferenceTensor y(windows.shape(windows.out_height, windows.out_width)), indices(y.shape);
  std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
  windows.each([&](int64_t in, int64_t out, int64_t place) {
    if (x[in] > y[out]) y[out] = x[in], indices[out] = static_cast<double>(place);
  });
  return {y, indices};
}

OpSample make_max_pool_grad(SampleMaker& maker) {
  const Windows windows = random_windows(maker, true);
  const Shape shape = windows.shape(windows.out_height, windows.out_width);
  std::vector<std::vector<int64_t>> inside(static_cast<size_t>(shape.numel()));
  windows.each(
      [&](int64_t, int64_t out, int64_t place) { inside[static_cast<size_t>(out)].push_back(place); });
  std::vector<int32_t> places;
  for (const auto& choices : inside) {
    places.push_back(static_cast<int32_t>(
        choices[static_cast<size_t>(maker.integer(0, static_cast<int64_t>(choices.size()) - 1))]));
  }
  const bool small = windows.options.kernel[0] * windows.options.kernel[1] <= 255;
  const Tensor indices = small
                             ? Tensor::from_values(std::vector<uint8_t>(places.begin(), places.end()), shape)
                             : Tensor::from_values(places, shape);
  return {{maker.tensor(shape), indices}, PoolGradOptions{windows.options, windows.height, windows.width}};
}

std::vector<ReferenceTensor> max_pool_grad_reference(const OpSample& sample) {
  const Windows windows = grad_windows_of(sample);
  const ReferenceTensor dy = reference_of(sample.inputs[0]), indices = reference_of(sample.inputs[1]);
  ReferenceTensor dx(windows.shape(windows.height, windows.width));
  windows.each([&](int64_t in, int64_t out, int64_t place) {
    if (indices[out] == static_cast<double>(place)) dx[in] += dy[out];
  });
  return {dx};
}

OpSample make_avg_pool(SampleMaker& maker) {
  const Windows windows = random_windows(maker, false);
  return {{maker.tensor(windows.shape(windows.height, windows.width))}, windows.options};
}

std::vector<ReferenceTensor> avg_pool_reference(const OpSample& sample) {
  const Windows windows = windows_of(sample);
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const std::vector<double> divisors = windows.divisors();
  ReferenceTensor y(windows.shape(windows.out_height, windows.out_width));
  windows.each(
      [&](int64_t in, int64_t out, int64_t) { y[out] += x[in] / divisors[static_cast<size_t>(out)]; });
  return {y};
}

OpSample make_avg_pool_grad(SampleMaker& maker) {
  const Windows windows = random_windows(maker, false);
  return {{maker.tensor(windows.shape(windows.out_height, windows.out_width))},
          PoolGradOptions{windows.options, windows.height, windows.width}};
}

std::vector<ReferenceTensor> avg_pool_grad_reference(const OpSample& sample) {
  const Windows windows = grad_windows_of(sample);
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  const std::vector<double> divisors = windows.divisors();
  ReferenceTensor dx(windows.shape(windows.height, windows.width));
  windows.each(
      [&](int64_t in, int64_t out, int64_t) { dx[in] += dy[out] / divisors[static_cast<size_t>(out)]; });
  return {dx};
}

Windows random_global(SampleMaker& maker) {
  const PoolAttributes options{
      .kernel = {1, 1}, .stride = {1, 1}, .layout = maker.pick({Layout::kNCHW, Layout::kNHWC})};
  return windows_of(options, maker.chance(0.05) ? 0 : maker.integer(1, 3), maker.integer(1, 9),
                    maker.integer(1, 9), maker.integer(1, 9));
}

OpSample make_global_avg_pool(SampleMaker& maker) {
  const Windows windows = random_global(maker);
  return {{maker.tensor(windows.shape(windows.height, windows.width))},
          GlobalPoolOptions{.layout = windows.options.layout}};
}

std::vector<ReferenceTensor> global_avg_pool_reference(const OpSample& sample) {
  const ReferenceTensor x = reference_of(sample.inputs[0]);
  const bool first = sample.attributes.as<GlobalPoolOptions>().layout == Layout::kNCHW;
  const int64_t channels = x.shape[first ? 1 : 3];
  const int64_t pixels = first ? x.shape[2] * x.shape[3] : x.shape[1] * x.shape[2];
  ReferenceTensor y(Shape{x.shape[0], channels});
  for (int64_t i = 0; i < x.shape.numel(); ++i) {
    const int64_t out = first ? i / pixels : i / (pixels * channels) * channels + i % channels;
    y[out] += x[i] / static_cast<double>(pixels);
  }
  return {y};
}

OpSample make_global_avg_pool_grad(SampleMaker& maker) {
  const Windows windows = random_global(maker);
  return {{maker.tensor(Shape{windows.batch, windows.channels})},
          GlobalPoolOptions{windows.options.layout, windows.height, windows.width}};
}

std::vector<ReferenceTensor> global_avg_pool_grad_reference(const OpSample& sample) {
  const auto& [layout, height, width] = sample.attributes.as<GlobalPoolOptions>();
  const ReferenceTensor dy = reference_of(sample.inputs[0]);
  const int64_t batch = dy.shape[0], channels = dy.shape[1], pixels = height * width;
  const bool first = layout == Layout::kNCHW;
  ReferenceTensor dx(first ? Shape{batch, channels, height, width} : Shape{batch, height, width, channels});
  for (int64_t i = 0; i < dx.shape.numel(); ++i) {
    dx[i] = dy[first ? i / pixels : i / (pixels * channels) * channels + i % channels] /
            static_cast<double>(pixels);
  }
  return {dx};
}

}  // namespace

void register_pool_samples(SampleRegistry& registry);
void register_pool_samples(SampleRegistry& registry) {
  registry.add({.op = "max_pool2d", .make = make_max_pool, .reference = max_pool_reference});
  registry.add({.op = "max_pool2d_grad",
                .make = make_max_pool_grad,
                .reference = max_pool_grad_reference,
                .term_size = product_terms<max_pool_grad_reference>});
  registry.add({.op = "avg_pool2d",
                .make = make_avg_pool,
                .reference = avg_pool_reference,
                .term_size = product_terms<avg_pool_reference>});
  registry.add({.op = "avg_pool2d_grad",
                .make = make_avg_pool_grad,
                .reference = avg_pool_grad_reference,
                .term_size = product_terms<avg_pool_grad_reference>});
  registry.add({.op = "global_avg_pool2d",
                .make = make_global_avg_pool,
                .reference = global_avg_pool_reference,
                .term_size = product_terms<global_avg_pool_reference>});
  registry.add({.op = "global_avg_pool2d_grad",
                .make = make_global_avg_pool_grad,
                .reference = global_avg_pool_grad_reference});
}

}  // namespace sinter::ops
