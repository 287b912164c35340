// Pinned memory, copies beside other work, and events between streams.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/transfer.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

void fill(const Tensor& tensor, int32_t value) {
  std::fill_n(tensor.data<int32_t>(), tensor.numel(), value);
}

TEST(Pinned, IsOrdinaryMemoryForTheCpu) {
  const Tensor tensor = Tensor::empty_pinned({3, 4}, DType::kInt32, Device::cpu());
  EXPECT_EQ(tensor.spec(), (TensorSpec{{3, 4}, DType::kInt32, Device::cpu()}));
  EXPECT_FALSE(tensor.storage()->pinned());
  fill(tensor, 7);
  EXPECT_EQ(tensor.to_vector<int32_t>(), std::vector<int32_t>(12, 7));
  EXPECT_EQ(Tensor::empty_pinned({0}, DType::kInt32, Device::cpu()).numel(), 0);
}

TEST(Pinned, NeedsTheDeviceItIsFor) {
  const Device missing = is_available(Device::cuda()) ? Device::cuda(999) : Device::cuda();
  const std::string message =
      message_of<DeviceError>([&] { Tensor::empty_pinned({1}, DType::kInt32, missing); });
  EXPECT_EQ(message.rfind("[device] " + to_string(missing) + " asked for, but ", 0), 0u) << message;
}

TEST(CopyAsync, CopiesOnTheCpu) {
  const Tensor from = Tensor::from_values(std::vector<int32_t>{1, 2, 3}, {3});
  const Tensor to = Tensor::empty({3}, DType::kInt32);
  const uint64_t version = to.version();
  copy_async(to, from, transfer_stream(Device::cpu()));
  EXPECT_EQ(to.to_vector<int32_t>(), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_GT(to.version(), version);
}

TEST(CopyAsync, IsNotNeededOnTheCpu) {
  const Tensor from = Tensor::from_values(std::vector<int32_t>{1, 2, 3}, {3});
  EXPECT_TRUE(to_async(from, Device::cpu()).is_same(from));
}

TEST(CopyAsync, RefusesWhatDoesNotFit) {
  const Tensor a = Tensor::empty({3}, DType::kInt32), b = Tensor::empty({2}, DType::kInt32);
  const Stream stream = transfer_stream(Device::cpu());
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { copy_async(a, b, stream); }),
      "[copy_async] expected two tensors of one shape and dtype but got int32 (3,) on cpu and int32 (2,) on "
      "cpu");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              copy_async(a, a, Stream{Device::cuda(), 0, nullptr});
            }),
            "[copy_async] expected a stream of cpu but got one of cuda:0");
}

TEST(EventTest, HasAlwaysPassedOnTheCpu) {
  Event none;
  EXPECT_TRUE(none.done());
  none.synchronize();
  Event event{current_stream(Device::cpu())};
  Event moved = std::move(event);
  EXPECT_TRUE(moved.done());
  moved.synchronize();
  moved.make_wait(current_stream(Device::cpu()));
  none = std::move(moved);
  EXPECT_TRUE(none.done());
}

class CudaTransfer : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(gpu)) GTEST_SKIP() << "no GPU";
  }
  const Device gpu = Device::cuda();
  static constexpr int64_t kMany = int64_t{4} << 20;  // 16 MiB: a third of a millisecond on the way
};

TEST_F(CudaTransfer, GoesThereAndBack) {
  const Tensor out = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  EXPECT_TRUE(out.storage()->pinned());
  EXPECT_EQ(out.device(), Device::cpu());
  for (int64_t i = 0; i < kMany; ++i) out.data<int32_t>()[i] = static_cast<int32_t>(i * 7);
  const Tensor there = Tensor::empty({kMany}, DType::kInt32, gpu);
  const Tensor back = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  fill(back, -1);
  const Stream stream = transfer_stream(gpu);
  copy_async(there, out, stream);
  copy_async(back, there, stream);
  Event(stream).synchronize();
  EXPECT_EQ(back.to_vector<int32_t>(), out.to_vector<int32_t>());
}

TEST_F(CudaTransfer, OneStreamIsSharedByAll) {
  EXPECT_EQ(transfer_stream(gpu).id, transfer_stream(gpu).id);
  EXPECT_NE(transfer_stream(gpu).id, current_stream(gpu).id);
}

TEST_F(CudaTransfer, MemoryIsNotReusedBeforeTheCopyHasRun) {
  const Stream stream = transfer_stream(gpu);
  std::vector<Tensor> there;
  for (int32_t i = 0; i < 40; ++i) {
    const Tensor from = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
    fill(from, i);
    there.push_back(Tensor::empty({kMany}, DType::kInt32, gpu));
    copy_async(there.back(), from, stream);
    // `from` goes here, the copy behind the others still to run; the next one must not get its memory yet.
  }
  Event(stream).synchronize();
  for (int32_t i = 0; i < 40; ++i) {
    const auto values = there[static_cast<size_t>(i)].to_vector<int32_t>();
    EXPECT_EQ(std::count(values.begin(), values.end(), i), kMany) << i;
  }
}

TEST_F(CudaTransfer, ToAsyncKeepsPinnedMemoryForItsCopy) {
  std::vector<Tensor> there;
  for (int32_t i = 0; i < 40; ++i) {
    const Tensor from = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
    fill(from, i);
    there.push_back(to_async(from, gpu));
  }
  for (int32_t i = 0; i < 40; ++i) {
    const auto values = there[static_cast<size_t>(i)].to_vector<int32_t>();
    EXPECT_EQ(std::count(values.begin(), values.end(), i), kMany) << i;
  }
}

TEST_F(CudaTransfer, PinnedMemoryMayBeFilledAgainBehindTo) {
  const Tensor from = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  std::vector<Tensor> there;
  for (int32_t i = 0; i < 10; ++i) {
    fill(from, i);
    there.push_back(from.to(gpu));
    fill(from, -1);
  }
  for (int32_t i = 0; i < 10; ++i) {
    const auto values = there[static_cast<size_t>(i)].to_vector<int32_t>();
    EXPECT_EQ(std::count(values.begin(), values.end(), i), kMany) << i;
  }
}

TEST_F(CudaTransfer, StreamsWaitForEvents) {
  const Stream transfers = transfer_stream(gpu), compute = current_stream(gpu);
  const Tensor from = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  const Tensor there = Tensor::empty({kMany}, DType::kInt32, gpu);
  const Tensor back = Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  for (int32_t round = 1; round <= 20; ++round) {
    fill(from, round);
    fill(back, -1);
    copy_async(there, from, transfers);
    Event copied(transfers);
    copied.make_wait(compute);
    copy_async(back, there, compute);  // without the wait this would read the round before
    Event read(compute);
    read.make_wait(transfers);
    read.synchronize();
    EXPECT_TRUE(read.done());
    EXPECT_TRUE(copied.done());
    const auto values = back.to_vector<int32_t>();
    ASSERT_EQ(std::count(values.begin(), values.end(), round), kMany) << round;
  }
}

TEST_F(CudaTransfer, PinnedMemoryIsCached) {
  MemoryPool& pool = backend_of(gpu).pinned_pool(0);
  pool.trim();
  { const Tensor first = Tensor::empty_pinned({kMany}, DType::kInt32, gpu); }
  const uint64_t taken = pool.stats().device_allocations;
  for (int i = 0; i < 10; ++i) Tensor::empty_pinned({kMany}, DType::kInt32, gpu);
  if (pool_mode_from_environment() != PoolMode::kPassThrough) {
    EXPECT_EQ(pool.stats().device_allocations, taken);
  }
  EXPECT_EQ(pool.stats().live_bytes, 0u);
}

}  // namespace
}  // namespace sinter
