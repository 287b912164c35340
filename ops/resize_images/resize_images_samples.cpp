#include <cmath>
#include <limits>

#include <sinter/ops/common/samples/image_samples.h>
#include <sinter/ops/resize_images/resize_images.h>

namespace sinter::ops {
namespace {

OpSample make_resize_images(SampleMaker& maker) {
  const int64_t images = maker.integer(0, 4);
  ResizeImagesAttributes attributes;
  attributes.channels = maker.pick({1, 3});
  attributes.filter = maker.pick({ResizeFilter::kBilinear, ResizeFilter::kBicubic});
  attributes.output = random_output(maker, attributes.channels);
  if (maker.chance(0.1)) attributes.output.width += 60;  // more than one tile
  const Tensor extents = Tensor::empty({images, 3}, DType::kInt64);
  const Tensor boxes = Tensor::empty({images, 5}, DType::kFloat64);
  int64_t bytes = maker.integer(0, 3);
  for (int64_t n = 0; n < images; ++n) {
    int64_t* extent = extents.data<int64_t>() + 3 * n;
    double* box = boxes.data<double>() + 5 * n;
    const int64_t height = maker.integer(1, 40);
    const int64_t width = maker.chance(0.05) ? maker.integer(500, 1500) : maker.integer(1, 40);
    extent[0] = bytes;
    extent[1] = height;
    extent[2] = width;
    bytes += height * width * attributes.channels + maker.integer(0, 2);
    box[2] = maker.uniform(0.1, 1.0) * static_cast<double>(height);
    box[3] = maker.uniform(0.1, 1.0) * static_cast<double>(width);
    box[0] = maker.uniform(0.0, 1.0) * (static_cast<double>(height) - box[2]);
    box[1] = maker.uniform(0.0, 1.0) * (static_cast<double>(width) - box[3]);
    box[4] = maker.chance(0.5) ? 1.0 : 0.0;
    if (maker.chance(0.1)) box[maker.integer(0, 3)] += maker.uniform(-60, 60);
    if (maker.chance(0.05)) box[maker.integer(0, 3)] = std::numeric_limits<double>::infinity();
    if (maker.chance(0.05)) box[maker.integer(0, 3)] = std::numeric_limits<double>::quiet_NaN();
    if (maker.chance(0.03)) extent[maker.integer(0, 2)] = maker.pick<int64_t>({-1, 1 << 20, INT64_MAX});
  }
  return {{random_bytes(maker, Shape{bytes}), extents, boxes}, attributes};
}

/// Keys' cubic for a = -1/2, as his paper writes it.
double keys(double s) {
  constexpr double a = -0.5;
  if (s < 1) return (a + 2) * std::pow(s, 3) - (a + 3) * std::pow(s, 2) + 1;
  if (s < 2) return a * std::pow(s, 3) - 5 * a * std::pow(s, 2) + 8 * a * s - 4 * a;
  return 0;
}

/// The weights of all `inputs` for one output of an axis, by the definition.
std::vector<double> weights_of(ResizeFilter filter, int64_t inputs, double begin, double extent,
                               int64_t output, int64_t outputs) {
  const double last = static_cast<double>(inputs);
  const auto within = [&](double low, double value) { return !(value >= low) ? low : std::min(value, last); };
  const double start = within(0.0, begin), end = within(start, begin + extent);
  const double step = (end - start) / static_cast<double>(outputs), scale = std::max(step, 1.0);
  std::vector<double> weights(static_cast<size_t>(inputs));
  double total = 0.0;
  for (int64_t k = 0; k < inputs; ++k) {
    const double distance =
        std::abs(static_cast<double>(k) + 0.5 - start - (static_cast<double>(output) + 0.5) * step);
    weights[static_cast<size_t>(k)] =
        filter == ResizeFilter::kBicubic ? keys(distance / scale) : std::max(0.0, 1.0 - distance / scale);
    total += weights[static_cast<size_t>(k)];
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

bool lies_in(double bytes, double offset, double height, double width, double channels) {
  return offset >= 0 && height > 0 && width > 0 && offset + height * width * channels <= bytes;
}

std::vector<ReferenceTensor> resize_images_reference(const OpSample& sample) {
  const auto& [output, channels, filter] = sample.attributes.as<ResizeImagesAttributes>();
  const ReferenceTensor pixels = reference_of(sample.inputs[0]), boxes = reference_of(sample.inputs[2]);
  const int64_t images = sample.inputs[1].size(0), bytes = sample.inputs[0].numel();
  ReferenceTensor batch(output_shape(output, images, channels));
  for (int64_t n = 0; n < images; ++n) {
    const int64_t* extent = sample.inputs[1].data<int64_t>() + 3 * n;
    const int64_t offset = extent[0], height = extent[1], width = extent[2];
    const bool there =
        lies_in(static_cast<double>(bytes), static_cast<double>(offset), static_cast<double>(height),
                static_cast<double>(width), static_cast<double>(channels));
    for (int64_t y = 0; y < output.height; ++y) {
      std::vector<double> rows;
      if (there) rows = weights_of(filter, height, boxes[5 * n], boxes[5 * n + 2], y, output.height);
      for (int64_t x = 0; x < output.width; ++x) {
        const int64_t shown = boxes[5 * n + 4] != 0 ? output.width - 1 - x : x;
        std::vector<double> columns;
        if (there)
          columns = weights_of(filter, width, boxes[5 * n + 1], boxes[5 * n + 3], shown, output.width);
        for (int64_t c = 0; c < channels; ++c) {
          double value = 0.0;
          for (size_t i = 0; i < rows.size(); ++i) {
            if (rows[i] == 0.0) continue;
            for (size_t j = 0; j < columns.size(); ++j) {
              const int64_t at = (static_cast<int64_t>(i) * width + static_cast<int64_t>(j)) * channels;
              value += rows[i] * columns[j] * pixels[offset + at + c];
            }
          }
          if (filter == ResizeFilter::kBicubic) value = std::clamp(value, 0.0, 255.0);
          batch[output_index(output, channels, n, y, x, c)] = normalized(output, c, value);
        }
      }
    }
  }
  return {batch};
}

}  // namespace

void register_resize_images_samples(SampleRegistry& registry);
void register_resize_images_samples(SampleRegistry& registry) {
  registry.add({.op = "resize_images",
                .make = make_resize_images,
                .reference = resize_images_reference,
                .dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16},
                .term_size = image_terms<ResizeImagesAttributes>,
                .check_gradient = false});
}

}  // namespace sinter::ops
