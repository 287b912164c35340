// Ops on the right GPU of several, and the profile of ops on a GPU.
#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {
namespace {

/// Small whole numbers: float32 multiplies and sums them exactly, in any order.
Tensor pattern(const Shape& shape, size_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7 + seed) % 5) - 2.0f;
  return Tensor::from_values(values, shape);
}

/// Loss and gradients of a small network: elementwise kernels, cuBLASLt, cuDNN, reductions, the pool.
std::vector<std::vector<float>> run_network(Device device) {
  const Tensor x = pattern({2, 3, 8, 8}, 0).to(device);
  const Tensor filter = pattern({4, 3, 3, 3}, 1).to(device).set_requires_grad(true);
  const Tensor weight = pattern({5, 4 * 6 * 6}, 2).to(device).set_requires_grad(true);
  const Tensor bias = pattern({5}, 3).to(device).set_requires_grad(true);
  const Tensor loss = sum(relu(linear(flatten(relu(conv2d(x, filter)), 1), weight, bias)));
  backward(loss);
  return {loss.to_vector<float>(), filter.grad().to_vector<float>(), weight.grad().to_vector<float>(),
          bias.grad().to_vector<float>()};
}

int gpu_count() {
  int count = 0;
  while (is_available(Device::cuda(count))) ++count;
  return count;
}

TEST(SeveralGpus, EachComputesWhereItsTensorsAre) {
  const int gpus = gpu_count();
  if (gpus < 2) GTEST_SKIP() << "fewer than two GPUs";
  const auto expected = run_network(Device::cpu());
  // The last first, so that a kernel on the thread's initial GPU would be noticed; then in turns.
  for (int turn = 0; turn < 2; ++turn) {
    for (int gpu = gpus - 1; gpu >= 0; --gpu) EXPECT_EQ(run_network(Device::cuda(gpu)), expected) << gpu;
  }
  std::thread([&] { EXPECT_EQ(run_network(Device::cuda(1)), expected); }).join();
}

TEST(SeveralGpus, CopiesAndStreamsBelongToTheirGpu) {
  if (gpu_count() < 2) GTEST_SKIP() << "fewer than two GPUs";
  const Device first = Device::cuda(0), second = Device::cuda(1);
  const Tensor x = pattern({1000}, 4);
  EXPECT_EQ(x.to(second).to(first).to_vector<float>(), x.to_vector<float>());
  EXPECT_THROW(add(x.to(first), x.to(second)), InvalidArgument);
  const Tensor here = x.to(first);
  const StreamGuard guard(backend_of(second).create_stream(second.index));
  const Tensor there = x.to(second);
  EXPECT_EQ(add(there, there).to_vector<float>(), add(x, x).to_vector<float>());
  EXPECT_EQ(add(here, here).to_vector<float>(), add(x, x).to_vector<float>());
}

TEST(SeveralGpus, CopiesRunOnTheStreamOfTheirTarget) {
  if (gpu_count() < 2) GTEST_SKIP() << "fewer than two GPUs";
  const Device first = Device::cuda(0), second = Device::cuda(1);
  const int64_t many = int64_t{4} << 20;
  for (const auto& [source, target] : {std::pair{first, second}, std::pair{second, first}}) {
    const Stream transfers = transfer_stream(target);
    std::vector<Tensor> there;
    for (int round = 0; round < 20; ++round) {
      const Tensor from = full({many}, round, DType::kInt32, source);
      there.push_back(Tensor::empty({many}, DType::kInt32, target));
      Event(current_stream(source)).make_wait(transfers);  // the copy reads what `full` writes
      copy_async(there.back(), from, transfers);
      // `from` goes here: the next round must not write into its memory before the copy has run.
    }
    Event(transfers).synchronize();
    for (int round = 0; round < 20; ++round) {
      const auto values = there[static_cast<size_t>(round)].to_vector<int32_t>();
      EXPECT_EQ(std::count(values.begin(), values.end(), round), many) << round;
    }
  }
  const Tensor here = full({2}, 1.0, DType::kFloat32, first);
  EXPECT_THROW(copy_async(Tensor::empty({2}, DType::kFloat32, second), here, transfer_stream(first)),
               InvalidArgument);
}

// Eight, as CUDA has it, let the decoding of images wait for whole training steps.
TEST(GpuStreams, HaveQueuesOfTheirOwn) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  ASSERT_NE(queues, nullptr);
  EXPECT_STREQ(queues, "32") << "unless the environment of the test said otherwise";
}

TEST(GpuProfile, TimesKernelsOnTheDevice) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Tensor large = full({16 << 20}, 1.0, DType::kFloat32, Device::cuda());
  const Tensor small = full({16}, 1.0, DType::kFloat32, Device::cuda());
  add(large, large), mul(small, small);  // what is done at the first call only
  synchronize(Device::cuda());
  OpProfile profile;
  for (int i = 0; i < 20; ++i) add(large, large), mul(small, small);
  profile.stop();
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].op, "add");
  EXPECT_EQ(rows[1].op, "mul");
  for (const auto& row : rows) {
    EXPECT_EQ(row.device, Device::cuda());
    EXPECT_EQ(row.calls, 20u);
    EXPECT_GT(row.device_us, 0.0);
    EXPECT_LT(row.device_us, 20 * 1e4);
  }
  // 192 MiB are moved by each of the large ones: no GPU does that in less than 10 us.
  EXPECT_GT(rows[0].device_us, 20 * 10.0);
}

}  // namespace
}  // namespace sinter::ops
