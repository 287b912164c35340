#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/norm/group_norm.h>
#include <sinter/ops/permute/permute.h>

namespace sinter::nn {
LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& options) : shape_(shape), options_(options) {
  SINTER_CHECK(shape.rank() > 0 && shape.numel() > 0,
               "[layer_norm] expected a shape with at least one feature but got {}", shape);
  SINTER_CHECK(options.epsilon >= 0, "[layer_norm] expected epsilon >= 0 but got {}", options.epsilon);
  if (options.affine) {
    weight = parameter("weight", Tensor::full(shape, 1.0), {.keep_float32 = true});
    bias = parameter("bias", Tensor::zeros(shape), {.keep_float32 = true});
  }
  describe(fmt::format("{}", shape));
  starts_in(options.layout);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  if (x.rank() == 4 && shape_.rank() > 1 && layout() != options_.layout) {
    SINTER_CHECK(shape_.rank() == 3,
                 "[layer_norm] the last axes of images in {}, {}, are not the last ones in {}",
                 to_string(options_.layout), shape_, to_string(layout()));
    const bool is_last = layout() == Layout::kNHWC;
    const auto turned = [&](const Tensor& of_shape) {
      return of_shape.defined() ? ops::permute(of_shape, is_last ? std::vector<int64_t>{1, 2, 0}
                                                                 : std::vector<int64_t>{2, 0, 1})
                                : of_shape;
    };
    return ops::layer_norm(
        x, is_last ? Shape{shape_[1], shape_[2], shape_[0]} : Shape{shape_[2], shape_[0], shape_[1]},
        turned(weight), turned(bias), {.epsilon = options_.epsilon});
  }
  return ops::layer_norm(x, shape_, weight, bias, {.epsilon = options_.epsilon});
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& options)
    : groups_(groups), channels_(channels), options_(options) {
  SINTER_CHECK(groups > 0 && channels > 0 && channels % groups == 0,
               "[group_norm] expected channels that are a positive multiple of the groups but got {} and {}",
               channels, groups);
  SINTER_CHECK(options.epsilon >= 0, "[group_norm] expected epsilon >= 0 but got {}", options.epsilon);
  if (options.affine) {
    weight = parameter("weight", Tensor::full({channels}, 1.0), {.keep_float32 = true});
    bias = parameter("bias", Tensor::zeros({channels}), {.keep_float32 = true});
  }
  works_in(options.layout);
  describe(fmt::format("{}, {}", groups, channels));
}

Tensor GroupNorm::forward(const Tensor& x) const {
  check_channels("group_norm", x, channels_, layout());
  const bool is_last = layout() == Layout::kNHWC || x.rank() == 2;
  SINTER_CHECK((x.rank() == 2 || x.rank() == 4) && x.shape()[is_last ? x.rank() - 1 : 1] == channels_,
               "[group_norm] expected (N, C) or images of {} channels in {} but got shape {}", channels_,
               to_string(layout()), x.shape());
  return ops::group_norm(x, groups_, weight, bias, {.epsilon = options_.epsilon, .layout = layout()});
}

InstanceNorm2d::InstanceNorm2d(int64_t channels, const InstanceNormOptions& options)
    : channels_(channels), options_(options) {
  SINTER_CHECK(channels > 0, "[instance_norm] expected at least one channel but got {}", channels);
  SINTER_CHECK(options.epsilon >= 0, "[instance_norm] expected epsilon >= 0 but got {}", options.epsilon);
  if (options.affine) {
    weight = parameter("weight", Tensor::full({channels}, 1.0), {.keep_float32 = true});
    bias = parameter("bias", Tensor::zeros({channels}), {.keep_float32 = true});
  }
  works_in(options.layout);
  describe(fmt::format("{}", channels));
}

Tensor InstanceNorm2d::forward(const Tensor& x) const {
  check_batch("instance_norm", x);
  check_channels("instance_norm", x, channels_, layout());
  SINTER_CHECK(x.rank() == 4 && x.size(layout() == Layout::kNHWC ? 3 : 1) == channels_,
               "[instance_norm] expected images of {} channels in {} but got shape {}", channels_,
               to_string(layout()), x.shape());
  return ops::instance_norm(x, weight, bias, {.epsilon = options_.epsilon, .layout = layout()});
}

}  // namespace sinter::nn
