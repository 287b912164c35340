#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/erase_images/erase_images.h>

namespace sinter::ops {
namespace {

OpSample make_erase_images(SampleMaker& maker) {
  EraseImagesOptions options;
  options.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  const Tensor images = maker.tensor(maker.shape(4));
  const int64_t channels = images.shape()[options.layout == Layout::kNHWC ? 3 : 1];
  options.values.resize(maker.chance(0.5) ? 1 : static_cast<size_t>(channels));
  for (float& value : options.values) value = static_cast<float>(maker.uniform(-2, 2));
  const Tensor boxes = Tensor::empty({images.shape()[0], 4}, DType::kInt32);
  for (int64_t n = 0; n < images.shape()[0]; ++n) {
    int32_t* box = boxes.data<int32_t>() + 4 * n;
    const bool wild = maker.chance(0.1);
    for (int i = 0; i < 4; ++i) {
      box[i] = static_cast<int32_t>(wild ? maker.integer(INT32_MIN, INT32_MAX) : maker.integer(-2, 7));
    }
  }
  return {{images, boxes}, options};
}

std::vector<ReferenceTensor> erase_images_reference(const OpSample& sample) {
  const auto& [colours, layout] = sample.attributes.as<EraseImagesOptions>();
  ReferenceTensor images = reference_of(sample.inputs[0]);
  const ReferenceTensor boxes = reference_of(sample.inputs[1]);
  const bool last = layout == Layout::kNHWC;
  const Shape& shape = images.shape;
  const Shape sizes = last ? Shape{shape[3], shape[1], shape[2]} : Shape{shape[1], shape[2], shape[3]};
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < sizes[0]; ++c) {
      for (int64_t y = 0; y < sizes[1]; ++y) {
        for (int64_t x = 0; x < sizes[2]; ++x) {
          const double down = static_cast<double>(y) - boxes[4 * n],
                       right = static_cast<double>(x) - boxes[4 * n + 1];
          if (down < 0 || right < 0 || down >= boxes[4 * n + 2] || right >= boxes[4 * n + 3]) continue;
          const int64_t at = last ? (y * sizes[2] + x) * sizes[0] + c : (c * sizes[1] + y) * sizes[2] + x;
          images[n * sizes.numel() + at] = colours[colours.size() == 1 ? 0 : static_cast<size_t>(c)];
        }
      }
    }
  }
  return {images};
}

}  // namespace

void register_erase_images_samples(SampleRegistry& registry);
void register_erase_images_samples(SampleRegistry& registry) {
  registry.add({.op = "erase_images",
                .make = make_erase_images,
                .reference = erase_images_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
