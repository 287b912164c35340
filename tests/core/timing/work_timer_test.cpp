// Times of work: on the CPU, and on a GPU where there is one.
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/float16.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/timing/work_timer.h>

#include "common/error_message.h"

namespace sinter {
namespace {

std::vector<Device> devices() {
  std::vector<Device> all{Device::cpu()};
  if (is_available(Device::cuda())) all.push_back(Device::cuda());
  return all;
}

TEST(WorkTimer, RunsOnceAndThenAsOftenAsItNeeds) {
  for (const Device device : devices()) {
    const auto timer = make_work_timer(device);
    int runs = 0;
    TimeBudget budget;
    EXPECT_GE(timer->measure([&] { ++runs; }, budget), 0.0) << to_string(device);
    EXPECT_EQ(runs, 6) << to_string(device);
  }
}

template <class T>
void expect_finite(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  for (const T value : values) {
    ASSERT_TRUE(std::isfinite(static_cast<double>(value)));
    ASSERT_NE(static_cast<double>(value), 0.0);
  }
}

TEST(WorkTimer, GivesMemoryOfFiniteValuesThatAreNotZero) {
  for (const Device device : devices()) {
    const auto timer = make_work_timer(device);
    EXPECT_EQ(timer->scratch(0), nullptr);
    constexpr size_t kBytes = 4096;
    std::vector<std::byte> bytes(kBytes);
    void* const block = timer->scratch(kBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    Backend& backend = backend_of(device);
    backend.copy(bytes.data(), Device::cpu(), block, device, kBytes, timer->stream());
    backend.synchronize(timer->stream());
    expect_finite<float>(bytes);
    expect_finite<double>(bytes);
    expect_finite<float16>(bytes);
    expect_finite<bfloat16>(bytes);
  }
}

TEST(WorkTimer, ThrowsWhereThereIsNoRoom) {
  for (const Device device : devices()) {
    const auto timer = make_work_timer(device);
    EXPECT_THROW(timer->scratch(size_t{1} << 60), OutOfMemory) << to_string(device);
    TimeBudget budget;
    EXPECT_GE(timer->measure([] {}, budget), 0.0) << to_string(device);
  }
}

TEST(WorkTimer, RefusesWhileWorkIsCaptured) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu)) GTEST_SKIP() << "needs a GPU";
  Capture capture(gpu);
  EXPECT_EQ(test::message_of<Unsupported>([&] { make_work_timer(gpu); }),
            "[timing] work on cuda:0 cannot be timed while work is being captured");
  EXPECT_NE(capture.end(), nullptr) << "the capture goes on";
}

}  // namespace
}  // namespace sinter
