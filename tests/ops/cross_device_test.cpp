// Calls whose tensors lie on different devices: errors by their exact text, and the way to do it right.
#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

class CrossDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
    there = full({2, 3}, 2.0, DType::kFloat32, Device::cuda());
  }

  Tensor here = full({2, 3}, 1.0), there;
};

TEST_F(CrossDevice, OpsNameBothDevices) {
  EXPECT_EQ(message_of<InvalidArgument>([&] { add(here, there); }),
            "[add] expected all inputs on one device but got cpu and cuda:0");
  EXPECT_EQ(message_of<InvalidArgument>([&] { add(there, here); }),
            "[add] expected all inputs on one device but got cuda:0 and cpu");
}

TEST_F(CrossDevice, VariadicOpsLookAtEveryInput) {
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              concat({there, there, here}, 0);
            }),
            "[concat] expected all inputs on one device but got cuda:0 and cpu");
}

TEST_F(CrossDevice, CopyIntoAnotherDeviceIsRefusedAndChangesNothing) {
  EXPECT_EQ(message_of<InvalidArgument>([&] { copy_(there, here); }),
            "[copy_] expected all inputs on one device but got cuda:0 and cpu");
  EXPECT_EQ(there.to_vector<float>(), std::vector<float>(6, 2.0f));
}

TEST_F(CrossDevice, HostCodeCannotReadDeviceMemory) {
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)there.data<float>(); }),
            "[tensor] data() needs a tensor on the cpu but this one is on cuda:0; use to() first");
}

TEST_F(CrossDevice, MovedTensorsComputeWhereTheyAre) {
  const Tensor sum = add(here.to(Device::cuda()), there);
  EXPECT_EQ(sum.device(), Device::cuda());
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(6, 3.0f));
  EXPECT_EQ(add(here, there.to(Device::cpu())).device(), Device::cpu());
}

TEST_F(CrossDevice, OverlappingCopiesOnTheGpuMoveLikeMemmove) {
  std::vector<float> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto part = [](const Tensor& whole, size_t first) {
    return Tensor::over(whole.storage(), first * sizeof(float), {Shape{90}, DType::kFloat32, whole.device()});
  };
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 7}, {7, 0}}) {
    const Tensor whole = Tensor::from_values(values, {100}, Device::cuda());
    std::vector<float> expected = values;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from), 90,
                expected.begin() + static_cast<std::ptrdiff_t>(to));
    copy_(part(whole, to), part(whole, from));
    EXPECT_EQ(whole.to_vector<float>(), expected) << from << " to " << to;
  }
}

TEST(WithoutGpu, TensorsOnItAreRefused) {
  if (is_available(Device::cuda())) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW((void)zeros({2}, DType::kFloat32, Device::cuda()), DeviceError);
  EXPECT_THROW((void)full({2}, 1.0).to(Device::cuda()), DeviceError);
}

}  // namespace
}  // namespace sinter::ops
