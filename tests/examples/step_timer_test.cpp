// The time that a device spends on steps, apart from what lies between them and from when the host queued
// them.

#include "run/step_timer.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/matmul/matmul.h>

namespace {

using namespace sinter;
using examples::StepTimer;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(StepTimer, LeavesOutWhatLiesBetweenSteps) {
  StepTimer timer{Device::cpu()};
  double inside = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    timer.begin();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    timer.end();
    inside += seconds_since(start);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const double timed = timer.take_seconds();
  EXPECT_GE(timed, 0.015);
  EXPECT_LE(timed, inside);
  EXPECT_EQ(timer.take_seconds(), 0.0) << "each step counts once";
  EXPECT_FALSE(timer.is_busy()) << "a CPU's work is done when its call returns";
}

TEST(StepTimer, CountsAGpusWorkAndNotItsQueue) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu)) GTEST_SKIP() << "no GPU";
  const Tensor a = Tensor::full({4096, 4096}, 1e-3, DType::kFloat32, gpu);
  Tensor product = ops::matmul(a, a);  // plans are made
  synchronize(gpu);
  StepTimer timer{gpu};
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < 20; ++step) {
    timer.begin();
    for (int i = 0; i < 5; ++i) product = ops::matmul(a, a);
    timer.end();
  }
  const double queued = seconds_since(start);
  EXPECT_TRUE(timer.is_busy());
  synchronize(gpu);
  EXPECT_FALSE(timer.is_busy());
  const double whole = seconds_since(start), timed = timer.take_seconds();
  // The GPU is busy from the first step to the last, long after the host has queued them.
  EXPECT_LT(queued, 0.5 * whole);
  EXPECT_GT(timed, 0.8 * whole);
  EXPECT_LT(timed, 1.05 * whole);
}

}  // namespace
