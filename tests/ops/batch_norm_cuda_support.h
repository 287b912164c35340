// What the tests of batch normalisation on a GPU share.
#pragma once

#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

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

}  // namespace sinter::ops::testing_batch_norm
