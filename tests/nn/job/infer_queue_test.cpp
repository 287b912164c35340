// InferQueue: requests of many threads give what the job gives alone; batches, errors and the end.
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/nn/job/infer_queue.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/matmul/matmul.h>

#include "common/error_message.h"
#include "nn/device_test_support.h"

namespace sinter::nn {
namespace {

class InferQueueTest : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(, InferQueueTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

TEST_P(InferQueueTest, ManyThreadsGetTheirOwnRows) {
  manual_seed(3);
  const Sequential model(Linear(6, 16), ReLU(), Linear(16, 3));
  model.to(device());
  std::vector<Tensor> inputs;
  std::vector<std::vector<float>> expected;
  const NoGrad no_grad;
  for (int64_t i = 0; i < 24; ++i) {
    inputs.push_back(Tensor::randn({1 + i % 3, 6}).to(device()));
    expected.push_back(model(inputs.back()).to_vector<float>());
  }
  InferJob job(model);
  std::atomic<int> right = 0;
  {
    InferQueue queue(job, {.max_batch = 8, .max_wait_ms = 1});
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t round = 0; round < inputs.size(); ++round) {
          const size_t at = (round * 5 + thread) % inputs.size();
          const std::vector<float> got = queue.submit(inputs[at]).get().to_vector<float>();
          bool equal = got.size() == expected[at].size();
          for (size_t i = 0; equal && i < got.size(); ++i)
            equal = std::abs(got[i] - expected[at][i]) < (device().is_cuda() ? 1e-2f : 1e-5f);
          right += equal ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(right, 8 * 24);
  EXPECT_LE(job.compilations(), 4) << "of batches of 1, 2, 4 and 8";
}

TEST(InferQueue, AnswersStayUntilAStreamOfTheClientHasReadThem) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu)) GTEST_SKIP() << "no GPU";
  const NoGrad no_grad;
  const ReLU model{};
  InferJob job(model);
  InferQueue queue(job, {.max_batch = 1, .max_wait_ms = 0});
  const Stream own = backend_of(gpu).create_stream(0);
  const Tensor busy = Tensor::ones({4096, 4096}, DType::kFloat32, gpu);
  const auto request = [&](double value) { return Tensor::full({1, 1 << 16}, value, DType::kFloat32, gpu); };
  std::vector<Tensor> read;
  for (int i = 1; i <= 10; ++i) {
    const Tensor x = request(i), other = request(-1.0);
    synchronize(gpu);
    {
      const StreamGuard guard(own);
      const Tensor answer = queue.submit(x).get();
      for (int slow = 0; slow < 5; ++slow) ops::matmul(busy, busy);
      read.push_back(ops::copy(answer));
    }
    queue.submit(other).get();  // of another client, whose answer must lie elsewhere
  }
  backend_of(gpu).synchronize(own);
  for (int i = 1; i <= 10; ++i) {
    const Tensor values = read[static_cast<size_t>(i - 1)];
    EXPECT_EQ(values.min().item(), i);
    EXPECT_EQ(values.max().item(), i);
  }
}

TEST(InferQueue, GathersWhatComesTogether) {
  const Sequential model(Linear(2, 1));
  int calls = 0;
  InferJob job(model, [&](std::span<const Tensor> inputs) {
    ++calls;  // of traces
    return std::vector<Tensor>{model(inputs[0])};
  });
  InferQueue queue(job, {.max_batch = 4, .max_wait_ms = 60'000, .batch_sizes = {4}});
  std::vector<std::future<Tensor>> answers;
  for (int i = 0; i < 4; ++i)
    answers.push_back(queue.submit(Tensor::full({1, 2}, i)));  // the fourth fills it
  for (auto& answer : answers) EXPECT_EQ(answer.get().shape(), (Shape{1, 1}));
  EXPECT_EQ(calls, 1);
}

TEST(InferQueue, ErrorsGoToThoseWhoAsked) {
  const Sequential model(Linear(2, 1));
  InferJob job(model);
  InferQueue queue(job, {.max_batch = 4, .max_wait_ms = 5});
  std::future<Tensor> wrong = queue.submit(Tensor::zeros({1, 3}));
  std::future<Tensor> sound = queue.submit(Tensor::zeros({1, 2}));
  EXPECT_THROW(wrong.get(), InvalidArgument);
  EXPECT_EQ(sound.get().shape(), (Shape{1, 1}));
  EXPECT_THROW(queue.submit(Tensor()), InvalidArgument);
  EXPECT_THROW(queue.submit(Tensor::zeros({5, 2})), InvalidArgument);
  EXPECT_THROW(queue.submit(Tensor::zeros({0, 2})), InvalidArgument);
  EXPECT_THROW(InferQueue(job, {.max_batch = 0}), InvalidArgument);
  EXPECT_THROW(InferQueue(job, {.max_batch = 4, .batch_sizes = {1, 2}}), InvalidArgument);
  EXPECT_THROW(InferQueue(job, {.max_batch = 4, .batch_sizes = {4, 4}}), InvalidArgument);
  EXPECT_THROW(InferQueue(job, {.max_wait_ms = -1}), InvalidArgument);
}

TEST(InferQueue, AnswersWhatWasSubmittedBeforeItEnds) {
  const Sequential model(Linear(2, 1));
  InferJob job(model);
  std::vector<std::future<Tensor>> answers;
  {
    InferQueue queue(job, {.max_batch = 2, .max_wait_ms = 60'000});
    for (int i = 0; i < 5; ++i) answers.push_back(queue.submit(Tensor::zeros({1, 2})));
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get().shape(), (Shape{1, 1}));
}

}  // namespace
}  // namespace sinter::nn
