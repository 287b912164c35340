// GPUs that are not there, and GPUs that are lost: what is said, how often, and that the rest still works.
// Each case is a process of its own.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>

#include "common/error_message.h"

namespace sinter {
namespace {

/// The message of the DeviceError that `action` throws, or what happened instead.
template <class F>
std::string device_error_of(F action) {
  return test::message_of<DeviceError>(action);
}

bool cpu_works() {
  return ops::relu(Tensor::from_values<float>({-1, 2}, {2})).to_vector<float>() == std::vector<float>{0, 2};
}

bool has_cuda_backend() {
  return device_error_of([] { backend_of(Device::cuda()); }).find("has no cuda backend") == std::string::npos;
}

class CudaDeviceDeathTest : public testing::Test {
 protected:
  // Processes start afresh and come to the statement by themselves: CUDA does not survive a fork.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// Ends the process; what it says on standard error is all that it may say.
[[noreturn]] void end_with(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(0);
}

// ---- no driver, no GPU

TEST(CudaDevice, WithoutADriverOnlyAskingForItFails) {
  if (is_available(Device::cuda())) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_TRUE(cpu_works());
  const std::string message = device_error_of([] { Tensor::empty({1}, DType::kFloat32, Device::cuda()); });
  EXPECT_EQ(message.find("[device] cuda:0 asked for, but "), 0u) << message;
  if (!has_cuda_backend()) {
    EXPECT_EQ(message, "[device] cuda:0 asked for, but this build of Sinter has no cuda backend");
    return;
  }
  // Which one is missing, and which is needed.
  EXPECT_NE(message.find("driver"), std::string::npos) << message;
  if (message.find("no NVIDIA driver is installed") != std::string::npos) {
    EXPECT_NE(message.find("this build needs one for CUDA "), std::string::npos) << message;
    EXPECT_NE(message.find(" or later)"), std::string::npos) << message;
  }
  // It stays so, and the CPU stays usable.
  EXPECT_EQ(device_error_of([] { Tensor::empty({1}, DType::kFloat32, Device::cuda()); }), message);
  EXPECT_NE(device_error_of([] { synchronize(Device::cuda()); }), "no error");
  EXPECT_TRUE(cpu_works());
}

TEST_F(CudaDeviceDeathTest, HiddenGpusAreSaidToBeMissing) {
  // The process of the statement comes by here too, and then sees no GPU.
  constexpr const char* kHidden = "SINTER_TEST_HIDDEN_GPUS";
  if (std::getenv(kHidden) == nullptr && !is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  setenv(kHidden, "1", 1);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EXIT(
      {
        const std::string message = device_error_of([] { backend_of(Device::cuda()); });
        end_with((cpu_works() ? "cpu works; " : "cpu broken; ") + message);
      },
      testing::ExitedWithCode(0), "cpu works; .*the NVIDIA driver found no usable GPU");
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv(kHidden);
}

TEST(CudaDevice, AnIndexBeyondTheLastIsRefused) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const int count = backend_of(Device::cuda()).device_count();
  EXPECT_EQ(
      device_error_of([&] { backend_of(Device::cuda(count)); }),
      fmt::format("[device] cuda:{} asked for, but there are only {} devices of that type", count, count));
}

// ---- a lost GPU

/// Reads where nothing is: an error after which CUDA refuses everything in this process.
void lose_device() {
  const auto storage = Storage::wrap(reinterpret_cast<void*>(0x1000), 1024, Device::cuda(), {});
  const Tensor nowhere = Tensor::over(storage, 0, {Shape{256}, DType::kFloat32, Device::cuda()});
  const Tensor y = ops::relu(nowhere);
  synchronize(Device::cuda());
}

void run_lost_device() {
  const Tensor kept = Tensor::from_values<float>({-1, 2}, {2}, Device::cuda());
  const std::string first = device_error_of(lose_device);
  std::string later;
  for (const auto& action : std::initializer_list<std::function<void()>>{
           [&] { ops::relu(kept); }, [&] { kept.to_vector<float>(); },
           [] { Tensor::empty({int64_t{1} << 28}, DType::kFloat32, Device::cuda()); },
           [] { synchronize(Device::cuda()); }, [] { backend_of(Device::cuda()).create_stream(0); }}) {
    later += device_error_of(action) + "; ";
  }
  end_with(fmt::format("{} | {} | {}", first, later, cpu_works() ? "cpu works" : "cpu broken"));
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Who waits for a GPU leaves the core to those who decode its next batch.
TEST(CudaDevice, ALongWaitForAnEventTakesNoTimeOfTheCpu) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const Tensor block = ops::zeros({int64_t{64} << 20}, DType::kFloat32, Device::cuda());
  synchronize(Device::cuda());
  for (int i = 0; i < 400; ++i) ops::fill_(block, i);  // a tenth of a millisecond each
  const Event end(current_stream(Device::cuda()));
  const double wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  end.synchronize();
  const double waited = seconds_of(CLOCK_MONOTONIC) - wall,
               computed = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
  EXPECT_TRUE(end.done());
  if (waited < 0.004) GTEST_SKIP() << "the GPU was done after " << waited << " s";
  EXPECT_LT(computed, 0.5 * waited);
}

TEST_F(CudaDeviceDeathTest, ALostGpuIsReportedOnceAndTheCpuWorksOn) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  // Nothing else may be on standard error: tensors that are freed and the end of the process say nothing.
  const std::string lost =
      "\\[cuda\\] the device was lost by an earlier error \\(cudaErrorIllegalAddress in [^;]*\\); restart "
      "the "
      "program";
  EXPECT_EXIT(run_lost_device(), testing::ExitedWithCode(0),
              "^\\[cuda\\] .* failed: an illegal memory access was encountered .*The device is lost to this "
              "process: restart the program.* \\| (" +
                  lost + "; )+ \\| cpu works\n$");
}

// ---- one of several GPUs is lost

/// How an event of cuda:1 looks after cuda:0 is lost: the work before it goes on for seconds.
void run_beside_lost_device() {
  const Tensor a = ops::full({8192, 8192}, 1e-4, DType::kFloat32, Device::cuda(1));
  Tensor y = ops::matmul(a, a);
  synchronize(Device::cuda(1));
  for (int i = 0; i < 300; ++i) y = ops::matmul(a, a);
  const Event event(current_stream(Device::cuda(1)));
  const std::string lost = device_error_of(lose_device);
  std::string state;
  const std::string refused = device_error_of([&] { state = event.done() ? "passed" : "pending"; });
  if (state.empty()) end_with(lost + " | refused: " + refused);
  const std::string after = device_error_of([&] {
    synchronize(Device::cuda(1));
    state += event.done() ? ", then passed" : ", then pending";
    state += ops::relu(a).spec().device == Device::cuda(1) ? ", cuda:1 works" : "";
  });
  end_with(lost + " | " + state + " | " + after);
}

TEST_F(CudaDeviceDeathTest, EventsOfOtherGpusDoNotPassWithALostOne) {
  if (!is_available(Device::cuda(1))) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EXIT(run_beside_lost_device(), testing::ExitedWithCode(0),
              "The device is lost .* \\| (pending, then passed, cuda:1 works|refused: .*lost)");
}

}  // namespace
}  // namespace sinter
