// What the tests of batch normalisation on a GPU share.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/attributes.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops::testing_batch_norm {

inline const Device kGpu = Device::cuda();

/// On the GPU; with an offset, one element into its memory, so that wide accesses are not aligned.
inline Tensor on_gpu(const Tensor& tensor, bool offset = false) {
  if (!tensor.defined() || !offset) return tensor.defined() ? tensor.to(kGpu) : tensor;
  const TensorSpec spec{tensor.shape(), tensor.dtype(), kGpu};
  const Tensor memory = Tensor::empty(Shape{tensor.numel() + 1}, spec.dtype, kGpu);
  const Tensor view = Tensor::over(memory.storage(), size_of(spec.dtype), spec);
  copy_bytes(view.raw_data(), kGpu, tensor.raw_data(), tensor.device(), spec.bytes());
  return view;
}

inline Tensor normal(const Shape& shape, double mean, double deviation, uint64_t seed = 7) {
  Generator generator(seed);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(mean + deviation * generator.normal());
  return Tensor::from_values(values, shape);
}

struct Case {
  Shape shape;
  Layout layout;
};

/// Every way through a tensor: columns in packs and one by one, planes likewise, images as rows, one channel,
/// packs that straddle channels, images or planes, and blocks with threads to spare.
inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{16, 12, 24, 24}, Layout::kNCHW},  {{40, 16, 7, 7}, Layout::kNCHW},
      {{40, 12, 14, 14}, Layout::kNCHW},  {{2, 3, 75, 77}, Layout::kNCHW},
      {{9, 24, 24, 64}, Layout::kNHWC},   {{33, 5, 5, 96}, Layout::kNHWC},
      {{7, 13, 11, 2056}, Layout::kNHWC}, {{16, 32, 32, 3}, Layout::kNHWC},
      {{64, 5, 3, 3}, Layout::kNCHW},     {{4099, 3}, Layout::kNCHW},
      {{4099, 40}, Layout::kNCHW},        {{100, 1, 20, 20}, Layout::kNCHW},
      {{100, 20, 20, 1}, Layout::kNHWC},  {{2, 50000}, Layout::kNCHW},
      {{3, 4000, 2, 2}, Layout::kNCHW},   {{7, 23, 29, 67}, Layout::kNHWC},
      {{5, 37, 41, 5}, Layout::kNHWC},    {{3, 19, 17, 359}, Layout::kNHWC},
      {{300, 3, 9, 9}, Layout::kNCHW},    {{300, 3, 7, 7}, Layout::kNCHW},
      {{2, 5, 131, 3}, Layout::kNCHW},    {{1, 2, 211, 307}, Layout::kNCHW},
      {{1031, 13}, Layout::kNCHW},        {{9, 24, 24, 304}, Layout::kNHWC},
      {{2, 17, 19, 328}, Layout::kNHWC},  {{64, 23, 23, 23}, Layout::kNHWC},
      {{33, 3, 23, 31}, Layout::kNCHW},   {{34, 8, 25, 27}, Layout::kNCHW},
      {{8, 15, 17, 19}, Layout::kNHWC},   {{5, 20, 21, 24}, Layout::kNHWC},
      {{16, 13, 11, 127}, Layout::kNHWC}, {{8, 12, 13, 2}, Layout::kNHWC},
      {{8, 31, 33, 752}, Layout::kNHWC},  {{13, 31, 33, 16}, Layout::kNHWC},
      {{13, 31, 33, 8}, Layout::kNHWC},   {{9, 31, 33, 128}, Layout::kNHWC}};
  return all;
}

inline int axis_of(const Case& c) {
  return c.layout == Layout::kNCHW ? 1 : 3;
}

class BatchNormOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(kGpu)) GTEST_SKIP() << "no GPU";
  }
};

/// All inputs of a fused call, on the CPU.
struct Call {
  std::vector<Tensor> inputs = std::vector<Tensor>(18);
  BatchNormActOptions options;
  Tensor dy, dy2;

  Call(const Case& c, DType dtype, fused::Activation activation, bool adds, bool normalizes, uint64_t seed) {
    const int64_t channels = c.shape[axis_of(c)];
    options = {.layout = c.layout, .activation = activation, .normalize_addend = normalizes};
    const auto image = [&](uint64_t i) { return cast(normal(c.shape, 0.3, 1.0, seed * 10 + i), dtype); };
    const DType computes = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    const auto vector = [&](uint64_t i, double mean) {
      return cast(normal(Shape{channels}, mean, 0.2, seed * 10 + i), computes);
    };
    inputs[0] = image(0);
    inputs[1] = vector(1, 1.0);
    inputs[2] = vector(2, 0.0);
    if (activation == fused::Activation::kPRelu)
      inputs[6] = seed % 2 == 0 ? vector(3, 0.25) : Tensor::full({1}, 0.25, computes);
    if (adds || normalizes) inputs[7] = image(4);
    if (normalizes) inputs[8] = vector(5, 1.0), inputs[9] = vector(6, 0.0);
    dy = image(7);
    if (seed % 3 == 0) dy2 = image(8);
  }

  struct Results {
    std::vector<Tensor> outputs;
    BatchNormActGrads grads;

    std::vector<Tensor> all() const {
      std::vector<Tensor> tensors = outputs;
      for (const Tensor& grad : {grads.dx, grads.daddend, grads.dweight, grads.dbias, grads.dalpha,
                                 grads.daddend_weight, grads.daddend_bias}) {
        if (grad.defined()) tensors.push_back(grad);
      }
      return tensors;
    }
  };

  /// Forward and gradient on a device. The gradient takes the mask and statistics of `forward`, if given:
  /// else an argument close to 0 could fall on another side.
  Results run(bool gpu, bool offset, const std::vector<Tensor>* forward = nullptr) const {
    const auto there = [&](const Tensor& tensor) { return gpu ? on_gpu(tensor, offset) : tensor; };
    std::vector<Tensor> moved;
    for (const Tensor& input : inputs) moved.push_back(there(input));
    Results results{call(builtin("batch_norm_act"), moved, options), {}};
    std::vector<Tensor> saved = results.outputs;
    if (forward != nullptr) {
      for (size_t i = 0; i < saved.size(); ++i) saved[i] = there((*forward)[i]);
    }
    saved.resize(6);
    const bool masked = options.activation != fused::Activation::kNone, two = options.normalize_addend;
    const BatchNormActGradOptions grad_options{.training = options.training,
                                               .addend_grad = moved[7].defined(),
                                               .layout = options.layout,
                                               .activation = options.activation,
                                               .normalize_addend = two};
    results.grads =
        vjp::batch_norm_act(there(dy), there(dy2), moved[0], {moved[1], moved[2], saved[1], saved[2]},
                            moved[7], two ? NormState{moved[8], moved[9], saved[4], saved[5]} : NormState{},
                            moved[6], masked ? saved[3] : Tensor(), grad_options);
    return results;
  }
};

inline void expect_close(const Tensor& there, const Tensor& here, const std::string& what) {
  ASSERT_EQ(there.shape(), here.shape()) << what;
  const ReferenceTensor got = reference_of(there.to(Device::cpu())), expected = reference_of(here);
  if (here.dtype() == DType::kUInt8) {
    // Bits may differ where the argument is within rounding of 0.
    int64_t differing = 0;
    for (int64_t i = 0; i < here.numel(); ++i) differing += got[i] != expected[i] ? 1 : 0;
    ASSERT_LE(differing, 1 + here.numel() / 10000) << what;
    return;
  }
  double largest = 0.0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  const double tolerance = default_tolerance(here.dtype()) * (1.0 + largest);
  for (int64_t i = 0; i < here.numel(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance) << what << " element " << i;
}

}  // namespace sinter::ops::testing_batch_norm
