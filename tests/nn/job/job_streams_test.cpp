// Jobs that run on several streams of a GPU in turn: what runs give is what they give on one.
#include <functional>
#include <vector>

#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/metrics/metrics.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/matmul/matmul.h>

#include "nn/job/small_trainer.h"

namespace sinter::nn {
namespace {

using namespace testing;

class JobStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(kGpu)) GTEST_SKIP() << "no GPU";
    own = backend_of(kGpu).create_stream(0);
    busy = Tensor::ones({4096, 4096}, DType::kFloat32, kGpu);
    synchronize(kGpu);
  }

  /// Calls run(i) for each i, every other one behind other work on a stream of its own.
  template <class F>
  void in_turn(int count, F run) const {
    for (int i = 0; i < count; ++i) {
      const StreamGuard guard(i % 2 == 0 ? own : backend_of(kGpu).default_stream(0));
      for (int slow = 0; i % 2 == 0 && slow < 5; ++slow) ops::matmul(busy, busy);
      run(i);
    }
    backend_of(kGpu).synchronize(own);
    synchronize(kGpu);
  }

  const Device kGpu = Device::cuda();
  const Deterministic deterministic;
  Stream own;
  Tensor busy;
};

TEST_F(JobStreams, ASnapshotOfAMeanComesBehindWhatItsStreamAdds) {
  const StreamGuard guard(own);
  TensorMean mean;
  std::vector<TensorMean::Snapshot> snapshots;
  for (int i = 1; i <= 8; ++i) {
    const Tensor value = Tensor::scalar(static_cast<float>(i), kGpu);
    for (int slow = 0; slow < 5; ++slow) ops::matmul(busy, busy);
    mean.add(value);
    snapshots.push_back(mean.snapshot());
  }
  for (int i = 1; i <= 8; ++i) {
    const TensorMean::Totals totals = snapshots[static_cast<size_t>(i - 1)].read();
    EXPECT_EQ(totals.values, i);
    EXPECT_DOUBLE_EQ(totals.mean, (i + 1) / 2.0);
  }
}

TEST_F(JobStreams, StepsComeOneAfterTheOther) {
  // Of one program, of one for each stream, and of two.
  const std::vector<std::function<int64_t(int)>> sizes = {
      [](int) { return 4; }, [](int i) { return 4 + i % 2; }, [](int i) { return 4 + i / 2 % 2; }};
  for (const auto& size_of : sizes) {
    constexpr int kSteps = 12;
    std::vector<Batch> batches;
    for (int i = 0; i < kSteps; ++i) {
      const Batch made = batch(size_of(i), i);
      batches.push_back({made.x.to(kGpu), made.y.to(kGpu)});
    }
    const TrainerOptions options{.device = kGpu, .averages = true};
    Trainer on_one(options), on_both(options);
    std::vector<Tensor> expected, got;
    const auto step = [&](Trainer& trainer, int i) {
      return trainer.step(batches[static_cast<size_t>(i)], true, 0.1 / (1 + i));
    };
    for (int i = 0; i < kSteps; ++i) expected.push_back(step(on_one, i));
    synchronize(kGpu);
    in_turn(kSteps, [&](int i) { got.push_back(step(on_both, i)); });
    for (size_t i = 0; i < kSteps; ++i) EXPECT_TRUE(same_bits(expected[i], got[i])) << "step " << i;
    EXPECT_EQ(differences(on_one, on_both), "");
  }
}

TEST_F(JobStreams, InferenceDrawsTheNumbersOfEachCall) {
  const ReLU model{};
  const Tensor x = Tensor::ones({64, 64}, DType::kFloat32, kGpu);
  InferJob job(model, [&](const Tensor& in) { return ops::dropout(model(in), 0.5); });
  std::vector<Tensor> expected, got;
  manual_seed(5);
  for (int i = 0; i < 8; ++i) expected.push_back(job(x));
  synchronize(kGpu);
  manual_seed(5);
  in_turn(8, [&](int) { got.push_back(job(x)); });
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(same_bits(expected[i], got[i])) << "call " << i;
}

}  // namespace
}  // namespace sinter::nn
