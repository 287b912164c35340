// GpuMeter: without a GPU it has nothing to tell, and no error; with one, readings that can be.
#include "run/gpu_meter.h"

#include <map>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::examples {
namespace {

TEST(GpuMeter, TellsNothingOfACpu) {
  const GpuMeter meter(Device::cpu());
  EXPECT_FALSE(meter.joules());
  EXPECT_TRUE(meter.readings().empty());
}

TEST(GpuMeter, NeedsNeitherDriverNorGpu) {
  if (is_available(Device::cuda())) GTEST_SKIP() << "there is a GPU";
  const GpuMeter meter(Device::cuda());
  EXPECT_FALSE(meter.joules());
  EXPECT_TRUE(meter.readings().empty());
}

TEST(GpuMeter, TellsOfTheGpuThatComputes) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const GpuMeter meter(Device::cuda());
  auto values = meter.readings();
  if (values.empty()) GTEST_SKIP() << "no libnvidia-ml";
  // Other programs take and give memory meanwhile, so that nothing is known but that this block is in use.
  const Tensor block = Tensor::zeros({int64_t{1} << 30}, DType::kUInt8, Device::cuda());
  synchronize(Device::cuda());
  values = meter.readings();
  const std::map<std::string, double> told(values.begin(), values.end());
  EXPECT_GE(told.at("gpu/memory_used_bytes"), 0x1p30);
  EXPECT_GT(told.at("gpu/temperature_celsius"), 5);
  EXPECT_LT(told.at("gpu/temperature_celsius"), 120);
  EXPECT_GT(told.at("gpu/power_watts"), 5);
  EXPECT_LT(told.at("gpu/power_watts"), 2000);
}

}  // namespace
}  // namespace sinter::examples
