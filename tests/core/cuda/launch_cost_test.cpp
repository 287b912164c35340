// Estimates of a kernel's time, for GPUs of several sizes.
#include <gtest/gtest.h>

#include <sinter/core/cuda/launch_cost.h>

namespace sinter::cuda {
namespace {

DeviceTraits traits_of(int processors, double bytes_per_us) {
  DeviceTraits traits;
  traits.processors = processors;
  traits.dram_bytes_per_us = bytes_per_us;
  return traits;
}

TEST(LaunchCost, IsTheLaunchesAndTheTraffic) {
  const DeviceTraits gpu = traits_of(132, 3.3e6);
  EXPECT_DOUBLE_EQ(estimated_microseconds({}, gpu), 2.8);
  EXPECT_DOUBLE_EQ(estimated_microseconds({.bytes = 33e6}, gpu), 2.8 + 10.0);
  EXPECT_DOUBLE_EQ(estimated_microseconds({.launches = 2, .bytes = 33e6}, gpu), 5.6 + 10.0);
  EXPECT_DOUBLE_EQ(estimated_microseconds({.launches = 2, .bytes = 33e6, .split_k = true}, gpu),
                   5.6 + 10.0 + 2.5);
}

TEST(LaunchCost, AWaveThatIsNotFullTakesAsLongAsAFullOne) {
  for (const int processors : {108, 132, 148}) {
    const DeviceTraits gpu = traits_of(processors, 1e6);
    const auto time = [&](int64_t blocks, int64_t at_once) {
      return estimated_microseconds({.bytes = 100.0 * 1e6, .blocks = blocks, .blocks_at_once = at_once},
                                    gpu) -
             2.8;
    };
    EXPECT_NEAR(time(processors, 1), 100.0, 1e-9) << processors;
    EXPECT_NEAR(time(4 * processors, 2), 100.0, 1e-9) << processors;
    EXPECT_NEAR(time(1, 1), 100.0 * processors, 1e-9) << "a multiprocessor alone";
    EXPECT_NEAR(time(processors / 2, 1), 200.0, 1e-9) << processors;
    EXPECT_NEAR(time(processors + 1, 1), 200.0 * processors / (processors + 1), 1e-9) << processors;
    EXPECT_NEAR(time(1000 * processors + 1, 1), 100.0, 0.1) << "of many waves the last counts little";
  }
}

TEST(LaunchCost, TheSameBlocksFillOneGpuAndNotAnother) {
  const auto time = [](int processors) {
    return estimated_microseconds({.bytes = 132e6, .blocks = 132}, traits_of(processors, 1e6)) - 2.8;
  };
  EXPECT_NEAR(time(108), 216.0, 1e-9);
  EXPECT_NEAR(time(132), 132.0, 1e-9);
  EXPECT_NEAR(time(148), 148.0, 1e-9);
}

TEST(MemoryBandwidth, IsTwoTransfersInEachCycle) {
  EXPECT_NEAR(memory_bandwidth(1215000, 5120), 1.555e6, 1e3);  // A100, 40 GB
  EXPECT_NEAR(memory_bandwidth(2619000, 5120), 3.352e6, 1e3);  // H100
  EXPECT_NEAR(memory_bandwidth(10501000, 384), 1.008e6, 1e3);  // GeForce RTX 4090
  EXPECT_EQ(memory_bandwidth(0, 5120), 1e6) << "a driver that does not tell";
  EXPECT_EQ(memory_bandwidth(1215000, 0), 1e6);
}

}  // namespace
}  // namespace sinter::cuda
