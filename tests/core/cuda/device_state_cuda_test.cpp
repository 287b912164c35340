// What is decided and kept for each GPU, on a GPU.
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::cuda {
namespace {

class DeviceStateCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
  }
};

/// "9.0" of "cuda:0: NVIDIA H200, 140 GiB memory, compute capability 9.0", as 90.
int capability_of(int device) {
  const std::string text = backend_of(Device::cuda()).describe(device);
  const size_t dot = text.rfind('.'), space = text.rfind(' ');
  return 10 * std::stoi(text.substr(space + 1, dot - space - 1)) + std::stoi(text.substr(dot + 1));
}

TEST_F(DeviceStateCuda, TraitsFollowTheGpuAndTheLoadedCode) {
  const int capability = capability_of(0), compiled = compiled_architecture(0);
  EXPECT_GE(compiled, 50);
  EXPECT_LE(compiled, capability) << "code for a later GPU does not run";
  EXPECT_EQ(device_traits(0).early_launch, can_launch_early(capability, compiled));
  RecordProperty("compiled_architecture", compiled);
}

/// Keeps the GPU's default stream busy for about a second.
void queue_long_work() {
  const Tensor a = ops::full({8192, 8192}, 1e-4, DType::kFloat32, Device::cuda());
  for (int i = 0; i < 50; ++i) ops::matmul(a, a);
}

// CUDA keeps "not ready" as the thread's last error, and launches are checked by asking for that.
TEST_F(DeviceStateCuda, AskingForAPendingEventLeavesNoErrorForTheNextLaunch) {
  const Tensor x = Tensor::from_values<float>({-1, 2}, {2}, Device::cuda());
  ops::relu(x);
  queue_long_work();
  const Event event(current_stream(Device::cuda()));
  ASSERT_FALSE(event.done()) << "the work was too short for this test";
  EXPECT_NO_THROW(ops::relu(x));
  ASSERT_FALSE(event.done());
  EXPECT_EQ(ops::relu(x).to_vector<float>(), (std::vector<float>{0, 2}));
  EXPECT_TRUE(event.done());
}

// The pool asks too: for a block of the busy stream on behalf of another, and for pinned memory in a copy.
TEST_F(DeviceStateCuda, ThePoolsAsksLeaveNoErrorEither) {
  const Tensor x = Tensor::from_values<float>({-1, 2}, {2}, Device::cuda());
  ops::relu(x);
  const Stream other = transfer_stream(Device::cuda());
  constexpr int64_t kBytes = 48 << 20;
  Tensor pinned = Tensor::empty_pinned({kBytes}, DType::kUInt8, Device::cuda());
  Tensor block = Tensor::empty({kBytes}, DType::kUInt8, Device::cuda());
  queue_long_work();
  Event(current_stream(Device::cuda())).make_wait(other);
  copy_async(block, pinned, other);
  pinned = block = Tensor();
  {
    const StreamGuard guard(other);
    Tensor::empty({kBytes}, DType::kUInt8, Device::cuda());
  }
  Tensor::empty_pinned({kBytes}, DType::kUInt8, Device::cuda());
  EXPECT_NO_THROW(ops::relu(x));
  synchronize(Device::cuda());
}

TEST_F(DeviceStateCuda, EventsAreUsedAgainAndAgain) {
  const Stream stream = current_stream(Device::cuda());
  RawMemory& memory = backend_of(Device::cuda()).raw_memory(0);
  void* const first = memory.record_event(stream.id);
  memory.release_event(first);
  for (int i = 0; i < 100; ++i) {
    void* const event = memory.record_event(stream.id);
    EXPECT_EQ(event, first);
    memory.wait_event(event);
    EXPECT_TRUE(memory.event_done(event));
    memory.release_event(event);
  }
}

}  // namespace
}  // namespace sinter::cuda
