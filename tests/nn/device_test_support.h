// What tests that run on each device share, and comparisons bit for bit.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/nn.h>

namespace sinter::nn::testing {

/// Runs a test on the CPU and, if there is one, on a GPU.
class OnEachDevice : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!is_available(device())) GTEST_SKIP() << "no GPU";
  }
  Device device() const { return GetParam() == DeviceType::kCpu ? Device::cpu() : Device::cuda(); }
};

inline std::string device_name(const ::testing::TestParamInfo<DeviceType>& info) {
  return info.param == DeviceType::kCpu ? "Cpu" : "Cuda";
}

/// The bytes of a tensor, from any device.
inline std::string bits_of(const Tensor& tensor) {
  const Tensor here = tensor.to(Device::cpu());
  return {static_cast<const char*>(here.raw_data()), here.spec().bytes()};
}

/// Names with bytes: two states are equal bit for bit if and only if these are.
inline std::vector<std::pair<std::string, std::string>> bits_of(const State& state) {
  std::vector<std::pair<std::string, std::string>> bits;
  for (const auto& [name, tensor] : state) bits.emplace_back(name, bits_of(tensor));
  return bits;
}

/// The working copies of a model.
inline State working_copies(const Module& model) {
  State copies;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.is_mixed()) copies[parameter.name()] = parameter.working();
  }
  return copies;
}

}  // namespace sinter::nn::testing
