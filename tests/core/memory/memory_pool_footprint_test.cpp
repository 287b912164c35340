// How much the pool holds beyond what is live, and how seldom it asks the device, when it is used as training
// does.
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/memory/memory_pool.h>

#include "fake_memory.h"

namespace sinter {
namespace {

using testing::FakeMemory;

constexpr size_t kMiB = size_t{1} << 20;

// A device whose work ends `lag` pieces behind the host, as a GPU's does; 0: at once, as a CPU's.
class Device {
 public:
  explicit Device(uint64_t lag = 0) : lag_(lag) {}

  void* allocate(size_t bytes) {
    queue();
    return pool.allocate(bytes);
  }
  void deallocate(void* block) {
    queue();
    pool.deallocate(block);
  }

  FakeMemory memory;
  MemoryPool pool{memory};

 private:
  void queue() {
    const uint64_t issued = memory.work(0);
    if (issued > lag_) memory.finish(0, issued - lag_);
  }

  uint64_t lag_;
};

// The blocks of a training step of a small residual network: activations that live until the backward pass
// needs them, short-lived scratch, and small statistics between them.
void training_step(Device& pool, size_t batch) {
  std::vector<std::pair<void*, size_t>> saved;
  std::vector<void*> statistics;
  for (size_t stage = 0, channels = 16, side = 32; stage < 3; ++stage, channels *= 2, side /= 2) {
    for (int layer = 0; layer < 9; ++layer) {
      const size_t bytes = batch * channels * side * side * sizeof(float);
      void* const scratch = pool.allocate(bytes * 3 / 2);
      saved.emplace_back(pool.allocate(bytes), bytes);
      pool.deallocate(scratch);
      for (int i = 0; i < 2; ++i) statistics.push_back(pool.allocate(channels * sizeof(float)));
      saved.emplace_back(pool.allocate(bytes), bytes);
      saved.emplace_back(pool.allocate(bytes / 32), bytes / 32);
    }
  }
  void* gradient = pool.allocate(saved.back().second);
  for (; !saved.empty(); saved.pop_back()) {
    void* const next = pool.allocate(saved.back().second);
    pool.deallocate(gradient);
    pool.deallocate(saved.back().first);
    gradient = next;
  }
  pool.deallocate(gradient);
  for (void* block : statistics) pool.deallocate(block);
}

// Lags of none, of a few ops, and of several steps.
class MemoryPoolFootprintTest : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Lags, MemoryPoolFootprintTest, ::testing::Values(0u, 20u, 1000u));

TEST_P(MemoryPoolFootprintTest, HoldsLittleMoreThanThePeakWithChangingBatches) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    Device device(GetParam());
    std::mt19937 random(seed);
    for (int step = 0; step < 200; ++step) training_step(device, 1 + random() % 256);
    const PoolStats stats = device.pool.stats();
    EXPECT_GT(stats.peak_live_bytes, 200 * kMiB);
    EXPECT_LE(static_cast<double>(stats.peak_reserved_bytes),
              1.2 * static_cast<double>(stats.peak_live_bytes));
  }
}

// What a process did before, such as filling the device, entitles it to nothing once the pool was trimmed.
TEST_P(MemoryPoolFootprintTest, TrimForgetsThePeak) {
  Device device(GetParam());
  device.deallocate(device.allocate(4096 * kMiB));
  device.pool.trim();
  device.pool.reset_peaks();
  for (size_t size = 50; size <= 100; ++size) device.deallocate(device.allocate(size * kMiB));
  const PoolStats stats = device.pool.stats();
  EXPECT_EQ(stats.peak_live_bytes, 100 * kMiB);
  EXPECT_LE(stats.peak_reserved_bytes, 120 * kMiB);
}

TEST_P(MemoryPoolFootprintTest, SteadyTrainingAsksTheDeviceForNothing) {
  Device device(GetParam());
  for (int step = 0; step < 5; ++step) {
    training_step(device, 128);
    training_step(device, 37);
  }
  const PoolStats before = device.pool.stats();
  for (int step = 0; step < 20; ++step) {
    training_step(device, 128);
    training_step(device, 37);
  }
  EXPECT_EQ(device.pool.stats().device_allocations, before.device_allocations);
  EXPECT_EQ(device.pool.stats().device_deallocations, before.device_deallocations);
}

}  // namespace
}  // namespace sinter
