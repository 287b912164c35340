#include <algorithm>

#include <sinter/ops/common/samples/image_samples.h>
#include <sinter/ops/crop_images/crop_images.h>

namespace sinter::ops {
namespace {

OpSample make_crop_images(SampleMaker& maker) {
  const Shape base = maker.shape(4);
  const Shape images{base[0], base[1], base[2], maker.chance(0.6) ? 3 : base[3]};
  CropImagesAttributes attributes;
  attributes.output = random_output(maker, images[3]);
  attributes.border = maker.pick({PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate});
  const Tensor windows = Tensor::empty({images[0], 3}, DType::kInt32);
  for (int64_t n = 0; n < images[0]; ++n) {
    int32_t* window = windows.data<int32_t>() + 3 * n;
    const bool wild = maker.chance(0.1);  // far beyond every border, to the ends of the type
    for (int axis = 0; axis < 2; ++axis) {
      window[axis] = static_cast<int32_t>(wild ? maker.integer(INT32_MIN, INT32_MAX) : maker.integer(-5, 5));
    }
    window[2] = maker.chance(0.5) ? 1 : 0;
  }
  return {{random_bytes(maker, images), windows}, attributes};
}

/// Walks from the window's edge step by step instead of folding: slow, and unlike the kernel.
int64_t seen_at(int64_t at, int64_t extent, PadMode border) {
  if (at >= 0 && at < extent) return at;
  if (border == PadMode::kConstant || extent == 0) return -1;
  if (border == PadMode::kReplicate || extent == 1) return std::clamp<int64_t>(at, 0, extent - 1);
  const int64_t turn = 2 * extent - 2;  // a walk to the far end and back
  int64_t phase = ((at % turn) + turn) % turn, position = 0;
  for (int64_t step = 0; step < phase; ++step) position += step < extent - 1 ? 1 : -1;
  return position;
}

std::vector<ReferenceTensor> crop_images_reference(const OpSample& sample) {
  const auto& attributes = sample.attributes.as<CropImagesAttributes>();
  const ImageOutput& output = attributes.output;
  const Shape& images = sample.inputs[0].shape();
  const ReferenceTensor bytes = reference_of(sample.inputs[0]), windows = reference_of(sample.inputs[1]);
  ReferenceTensor batch(output_shape(output, images[0], images[3]));
  for (int64_t n = 0; n < images[0]; ++n) {
    for (int64_t y = 0; y < output.height; ++y) {
      for (int64_t x = 0; x < output.width; ++x) {
        const int64_t shown = windows[3 * n + 2] != 0 ? output.width - 1 - x : x;
        const int64_t row = seen_at(static_cast<int64_t>(windows[3 * n]) + y, images[1], attributes.border);
        const int64_t column =
            seen_at(static_cast<int64_t>(windows[3 * n + 1]) + shown, images[2], attributes.border);
        for (int64_t c = 0; c < images[3]; ++c) {
          const double value = row < 0 || column < 0
                                   ? 0.0
                                   : bytes[((n * images[1] + row) * images[2] + column) * images[3] + c];
          batch[output_index(output, images[3], n, y, x, c)] = shown_value(output, c, value);
        }
      }
    }
  }
  return {batch};
}

}  // namespace

void register_crop_images_samples(SampleRegistry& registry);
void register_crop_images_samples(SampleRegistry& registry) {
  registry.add({.op = "crop_images",
                .make = make_crop_images,
                .reference = crop_images_reference,
                .dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kUInt8},
                .term_size = image_terms<CropImagesAttributes>,
                .check_gradient = false});
}

}  // namespace sinter::ops
