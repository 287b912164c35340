// Kernels chosen by time on a GPU: on tensors of the tuner's own, beside a capture, and with what they
// compute unchanged.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/matmul/matmul.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using namespace testing_gpu;

/// A call of an op that has several kernels, and moves more than 1 MiB.
class Asked {
 public:
  Asked(const char* op, std::vector<Tensor> inputs, Attributes attributes)
      : op_(OpRegistry::instance().get(op)), inputs_(std::move(inputs)), attributes_(std::move(attributes)) {
    for (const Tensor& input : inputs_) {
      specs_.push_back(&input.spec());
      views_.push_back({input.raw_data(), input.shape(), input.dtype(), true});
    }
    outputs_ = op_.definition.infer(infer());
  }

  const Op& op() const { return op_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  std::string name() const { return op_.name(); }
  KernelChoice choose(KernelTuner& tuner) const {
    const InferContext call = infer();
    return tuner.choose(op_, Device::cuda(), KernelQuery(call, outputs_, views_));
  }
  size_t candidates() const {
    const InferContext call = infer();
    return kernel_candidates(op_, Device::cuda(), KernelQuery(call, outputs_, views_)).size();
  }
  std::vector<double> result(const std::string& kernel) const {
    const ForcedKernel forced(op_.name(), kernel);
    std::vector<Tensor> copies;  // norms change their running statistics
    for (const Tensor& input : inputs_) copies.push_back(input.to(Device::cpu()).to(Device::cuda()));
    return as_double(call(op_, copies, attributes_).front()).to_vector<double>();
  }

 private:
  InferContext infer() const { return {op_.definition, specs_, attributes_}; }

  const Op& op_;
  std::vector<Tensor> inputs_;
  Attributes attributes_;
  std::vector<const TensorSpec*> specs_;
  std::vector<TensorView> views_;
  std::vector<TensorSpec> outputs_;
};

std::vector<Asked> questions() {
  SampleMaker maker(11, DType::kFloat32);
  const auto draw = [&maker](const Shape& shape) { return on_gpu(maker.tensor(shape, -1, 1), 0); };
  std::vector<Asked> all;
  all.emplace_back("matmul", std::vector{draw({2048, 512}), draw({512, 2})}, MatmulOptions{});
  all.emplace_back("linear", std::vector{draw({3, 512}), draw({2048, 512}), draw({2048})}, Attributes{});
  const Tensor variance = on_gpu(maker.tensor({32}, 0.5, 2), 0);
  all.emplace_back("batch_norm",
                   std::vector{draw({16, 28, 28, 32}), draw({32}), draw({32}), draw({32}), variance},
                   BatchNormOptions{.layout = Layout::kNHWC});
  return all;
}

class KernelChoiceCuda : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    settings::set_autotune(true);
    settings::set_deterministic(false);
  }
  void TearDown() override {
    settings::set_autotune(autotune_);
    settings::set_deterministic(deterministic_);
    GpuTest::TearDown();
  }

 private:
  bool autotune_ = settings::autotune(), deterministic_ = settings::deterministic();
};

TEST_F(KernelChoiceCuda, IsMadeOnTensorsOfTheTuner) {
  for (const Asked& asked : questions()) {
    std::vector<std::vector<double>> before;
    for (const Tensor& input : asked.inputs()) before.push_back(as_double(input).to_vector<double>());
    KernelTuner tuner(std::nullopt);
    const KernelChoice first = asked.choose(tuner), second = asked.choose(tuner);
    EXPECT_EQ(first.kernel, second.kernel) << asked.name();
    EXPECT_EQ(first.prepared, second.prepared) << asked.name() << " is prepared once";
    EXPECT_EQ(std::ranges::count(tuner.choices(), '\n'), asked.candidates() > 1 ? 1 : 0) << asked.name();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(as_double(asked.inputs()[i]).to_vector<double>(), before[i])
          << asked.name() << ", input " << i;
  }
}

TEST_F(KernelChoiceCuda, IsForNowBesideACaptureAndLeavesItWhole) {
  for (const Asked& asked : questions()) {
    if (asked.candidates() < 2) continue;
    KernelTuner tuner(std::nullopt);
    Capture capture(Device::cuda());
    const KernelChoice choice = asked.choose(tuner);
    EXPECT_NE(choice.kernel, nullptr);
    EXPECT_EQ(tuner.choices(), "") << asked.name();
    EXPECT_NE(capture.end(), nullptr) << asked.name();
  }
}

TEST_F(KernelChoiceCuda, IsAmongKernelsThatGiveTheSame) {
  for (const Asked& asked : questions()) {
    std::vector<double> expected;
    for (const Kernel& kernel : asked.op().kernels) {
      if (kernel.device != DeviceType::kCuda) continue;
      std::vector<double> values;
      try {
        values = asked.result(kernel.name);
      } catch (const Unsupported&) {  // not of this call
        continue;
      }
      if (expected.empty()) expected = values;
      ASSERT_EQ(values.size(), expected.size());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], expected[i], 1e-3) << asked.name() << " on " << kernel.name;
    }
    EXPECT_FALSE(expected.empty()) << asked.name();
  }
}

}  // namespace
}  // namespace sinter::ops
