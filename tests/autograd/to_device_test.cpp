// Tensor::to(Device) within a graph. Needs a GPU: the CPU is one device.
#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter {
namespace {

class ToDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  }
};

Tensor leaf() {
  return Tensor::from_values<float>({1, 2, 3}, {3}).set_requires_grad(true);
}

TEST_F(ToDeviceTest, TheGradientComesBackToTheSource) {
  const Tensor x = leaf();
  const Tensor there = x.to(Device::cuda());
  EXPECT_TRUE(there.requires_grad());
  EXPECT_FALSE(there.is_leaf());
  backward(ops::sum(there * there));
  ASSERT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().device(), Device::cpu());
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 4, 6}));
}

TEST_F(ToDeviceTest, AResultMayGoForthAndBack) {
  const Tensor x = leaf();
  const Tensor back = ((x * 3.0).to(Device::cuda()) * 2.0).to(Device::cpu());
  backward(ops::sum(back * x));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{12, 24, 36}));
}

TEST_F(ToDeviceTest, SeveralUsesAddUp) {
  const Tensor x = leaf();
  backward(ops::sum(x.to(Device::cuda())) + ops::sum(x.to(Device::cuda()) * 2.0));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{3, 3, 3}));
}

TEST_F(ToDeviceTest, NothingIsRecordedUnderNoGradOrWithoutNeed) {
  const NoGrad no_grad;
  EXPECT_FALSE(leaf().to(Device::cuda()).requires_grad());
  EXPECT_FALSE(Tensor::full({2}, 1.0).to(Device::cuda()).requires_grad());
}

}  // namespace
}  // namespace sinter
