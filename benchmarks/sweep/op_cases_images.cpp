// Ops on images and products of matrices.
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/erase_images/erase_images.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/mix_images/mix_images.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/resize_images/resize_images.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>
#include <sinter/ops/upsample/upsample.h>

#include "op_cases.h"

namespace sinter::bench {
namespace {

constexpr int64_t kPooled = 7;  // height and width after adaptive pooling

OpInput image(const OpSize& s) {
  return {s.image(), s.dtype};
}
OpInput channels(const OpSize& s, DType dtype = DType::kFloat32) {
  return {{s.channels}, dtype};
}
/// Positive, as deviations are.
OpInput ones(const OpSize& s) {
  return {{s.channels}, DType::kFloat32, 0, {1.0}};
}

ops::PoolAttributes pool(const OpSize& s) {
  return {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .layout = s.layout};
}
ops::PoolGradOptions pool_grad(const OpSize& s) {
  return {.pool = pool(s), .height = s.height, .width = s.width};
}
Shape pooled(const OpSize& s) {
  return s.image(s.images, s.channels, (s.height + 1) / 2, (s.width + 1) / 2);
}

void add_pools(OpCaseTable& table) {
  table["max_pool2d"] = table["avg_pool2d"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s)}, pool(s)}};
  };
  table["max_pool2d_grad"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{OpInput{pooled(s), s.dtype}, OpInput{pooled(s), DType::kUInt8, 9}}, pool_grad(s)}};
  };
  table["avg_pool2d_grad"] = [](const OpSize& s) {
    return std::vector{OpCase{{OpInput{pooled(s), s.dtype}}, pool_grad(s)}};
  };
  table["global_avg_pool2d"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s)}, ops::GlobalPoolOptions{.layout = s.layout}}};
  };
  table["global_avg_pool2d_grad"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{OpInput{{s.images, s.channels}, s.dtype}},
               ops::GlobalPoolOptions{.layout = s.layout, .height = s.height, .width = s.width}}};
  };
  table["adaptive_avg_pool2d"] = table["adaptive_max_pool2d"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{image(s)}, ops::AdaptivePoolAttributes{.size = {kPooled, kPooled}, .layout = s.layout}}};
  };
  table["adaptive_avg_pool2d_grad"] = [](const OpSize& s) {
    return std::vector{OpCase{{OpInput{s.image(s.images, s.channels, kPooled, kPooled), s.dtype}},
                              ops::AdaptivePoolAttributes{.size = {s.height, s.width}, .layout = s.layout}}};
  };
}

ops::UpsampleAttributes upsampled(const OpSize& s, ops::UpsampleMode mode, int64_t height, int64_t width) {
  ops::UpsampleAttributes attributes;
  attributes.mode = mode;
  attributes.layout = s.layout;
  attributes.size = {height, width};
  return attributes;
}

void add_upsampling(OpCaseTable& table) {
  using enum ops::UpsampleMode;
  table["upsample"] = [](const OpSize& s) {
    const OpInput small{s.image(s.images, s.channels, s.height / 2, s.width / 2), s.dtype};
    return std::vector{OpCase{{small}, upsampled(s, kNearest, s.height, s.width), "nearest"},
                       OpCase{{small}, upsampled(s, kBilinear, s.height, s.width), "bilinear"}};
  };
  table["upsample_grad"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s)}, upsampled(s, kNearest, s.height / 2, s.width / 2), "nearest"},
                       OpCase{{image(s)}, upsampled(s, kBilinear, s.height / 2, s.width / 2), "bilinear"}};
  };
}

ops::Conv2dAttributes conv(const OpSize& s) {
  return {.padding = {1, 1}, .layout = s.layout};
}

void add_convolutions(OpCaseTable& table) {
  const auto filters = [](const OpSize& s) {
    return OpInput{s.image(s.channels, s.channels, 3, 3), s.dtype};
  };
  static constexpr auto kFilters = filters;
  table["conv2d"] = table["conv2d_sums"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), kFilters(s), std::nullopt}, conv(s)}};
  };
  table["conv2d_bias_act"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), kFilters(s), OpInput{{s.channels}, s.dtype}, image(s), std::nullopt},
                              ops::Conv2dActOptions{conv(s), ops::fused::Activation::kRelu}}};
  };
  table["conv2d_grad_input"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{image(s), kFilters(s)}, ops::Conv2dGradInputAttributes{conv(s), {s.height, s.width}}}};
  };
  table["conv2d_grad_weight"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), image(s)}, ops::Conv2dGradWeightAttributes{conv(s), {3, 3}}}};
  };
}

void add_norms(OpCaseTable& table) {
  table["batch_norm"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), channels(s), channels(s), channels(s), ones(s)},
                              ops::BatchNormOptions{.layout = s.layout}}};
  };
  table["batch_norm_grad"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), image(s), channels(s), channels(s), ones(s)},
                              ops::BatchNormGradOptions{.layout = s.layout}}};
  };
  table["batch_norm_act"] = [](const OpSize& s) {
    OpCase one{{image(s), channels(s), channels(s), channels(s), ones(s)},
               ops::BatchNormActOptions{.layout = s.layout}};
    one.inputs.resize(18);
    return std::vector{one};
  };
  table["batch_norm_act_grad"] = [](const OpSize& s) {
    const OpInput mask{{(s.image().numel() + 7) / 8}, DType::kUInt8, 256};
    OpCase one{{image(s), image(s), std::nullopt, mask, channels(s), channels(s), channels(s), ones(s)},
               ops::BatchNormActGradOptions{.layout = s.layout}};
    one.inputs.resize(14);
    return std::vector{one};
  };
  table["rank_statistics"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{image(s), channels(s), ones(s)}, ops::RankStatisticsAttributes{.layout = s.layout}}};
  };
  table["prelu"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), channels(s, s.dtype)}, ops::PReluAttributes{s.layout}}};
  };
  table["prelu_grad"] = table["prelu_grad_x"] = [](const OpSize& s) {
    return std::vector{OpCase{{image(s), channels(s, s.dtype), image(s)}, ops::PReluAttributes{s.layout}}};
  };
}

void add_products(OpCaseTable& table) {
  table["matmul"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{OpInput{{s.m, s.k}, s.dtype}, OpInput{{s.k, s.n}, s.dtype}}, ops::MatmulOptions{}}};
  };
  table["linear"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{OpInput{{s.m, s.k}, s.dtype}, OpInput{{s.n, s.k}, s.dtype}, OpInput{{s.n}, s.dtype}}}};
  };
  table["linear_grad_weight"] = table["linear_grad_weight_bias"] = [](const OpSize& s) {
    return std::vector{OpCase{{OpInput{{s.m, s.n}, s.dtype}, OpInput{{s.m, s.k}, s.dtype}}}};
  };
  table["matvec"] = [](const OpSize& s) {
    return std::vector{
        OpCase{{OpInput{{s.rows, s.columns}, s.dtype}, OpInput{{s.columns}, s.dtype}}, ops::MatvecOptions{}}};
  };
  table["outer"] = [](const OpSize& s) {
    return std::vector{OpCase{{OpInput{{s.rows}, s.dtype}, OpInput{{s.columns}, s.dtype}}}};
  };
}

/// One size of pictures each: many small ones, and photographs.
void add_pictures(OpCaseTable& table) {
  table["crop_images"] = [](const OpSize& s) {
    const int64_t count = s.rows * 4, side = s.name == "odd" ? 33 : 32;
    return std::vector{OpCase{
        {OpInput{{count, side + 8, side + 8, 3}, DType::kUInt8, 256}, OpInput{{count, 3}, DType::kInt32, 8}},
        ops::CropImagesAttributes{
            .output = {.height = side, .width = side, .dtype = s.dtype, .layout = s.layout}}}};
  };
  table["resize_images"] = [](const OpSize& s) {
    const int64_t count = s.images, side = s.name == "odd" ? 223 : 224;
    const auto height = static_cast<double>(s.name == "odd" ? 375 : 384), width = 500.0;
    std::vector<double> extents;
    for (int64_t i = 0; i < count; ++i) {
      const double bytes = height * width * 3;
      extents.insert(extents.end(), {static_cast<double>(i) * bytes, height, width});
    }
    const auto pixels = static_cast<int64_t>(height * width * 3) * count;
    return std::vector{
        OpCase{{OpInput{{pixels}, DType::kUInt8, 256}, OpInput{{count, 3}, DType::kInt64, 0, extents},
                OpInput{{count, 5}, DType::kFloat64, 0, {10, 20, height - 20, width - 40, 0}}},
               ops::ResizeImagesAttributes{
                   .output = {.height = side, .width = side, .dtype = s.dtype, .layout = s.layout}}}};
  };
}

/// One step for all images; they differ in their cost.
OpCase augmented(const Shape& images, ops::ImageStep step, const std::string& variant) {
  const auto one = static_cast<double>(ops::kStepOne), half = one / 2;
  std::vector<double> row = {static_cast<double>(step), half, 0, 0, 0, 0, 0, 0};
  if (step == ops::ImageStep::kAffine) row = {row[0], one, half, -half, 0, one, half, 0};
  return {
      {OpInput{images, DType::kUInt8, 256}, OpInput{{images[0], ops::kStepFields}, DType::kInt32, 0, row}},
      {},
      variant};
}

void add_augmentation(OpCaseTable& table) {
  table["augment_images"] = [](const OpSize& s) {
    using enum ops::ImageStep;
    const int64_t side = s.name == "odd" ? 223 : 224;
    const Shape images{s.images, side, side, 3};
    return std::vector{augmented(images, kAffine, "affine"), augmented(images, kEqualize, "equalize"),
                       augmented(images, kHue, "hue")};
  };
  table["mix_images"] = [](const OpSize& s) {
    const auto mixed = [&](bool boxed, double share, const char* variant) {
      return OpCase{{image(s)},
                    ops::MixImagesOptions{share, boxed, 1, 1, s.height / 2, s.width / 2, s.layout},
                    variant};
    };
    return std::vector{mixed(false, 0.3, "mixup"), mixed(true, 0.0, "cutmix")};
  };
  table["erase_images"] = [](const OpSize& s) {
    const OpInput boxes{{s.images, 4},
                        DType::kInt32,
                        0,
                        {1, 1, static_cast<double>(s.height) / 2, static_cast<double>(s.width) / 2}};
    return std::vector{OpCase{{image(s), boxes}, ops::EraseImagesOptions{.layout = s.layout}}};
  };
}

}  // namespace

void add_image_cases(OpCaseTable& table) {
  add_pools(table);
  add_upsampling(table);
  add_convolutions(table);
  add_norms(table);
  add_products(table);
  add_pictures(table);
  add_augmentation(table);
}

}  // namespace sinter::bench
