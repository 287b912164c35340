// Every device in every dtype of floats: the parameters of tests of what holds on all of them.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct FloatPlace {
  Device device;
  DType dtype;
};

inline std::vector<FloatPlace> float_places() {
  std::vector<FloatPlace> all;
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      all.push_back({device, dtype});
    }
  }
  return all;
}

inline std::string float_place_name(const testing::TestParamInfo<FloatPlace>& place) {
  return std::string(place.param.device.is_cpu() ? "cpu_" : "cuda_") +
         std::string(to_string(place.param.dtype));
}

/// Skipped where its device is missing.
class FloatPlaceTest : public testing::TestWithParam<FloatPlace> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam().device)) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace sinter::ops
