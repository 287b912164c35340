// Several threads: a job of its own for each gives right results beside the others, also of one model, and
// whatever serves one thread at a time notices a second one.
#include <barrier>
#include <future>
#include <thread>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/job/infer_job.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// What `second` throws while `first`, which calls its argument once in the middle, runs.
std::string message_amid(const std::function<void(const std::function<void()>&)>& first,
                         const std::function<void()>& second) {
  std::string message;
  bool called = false;
  first([&] {
    if (std::exchange(called, true)) return;
    std::thread([&] { message = message_of(second); }).join();
  });
  EXPECT_TRUE(called);
  return message;
}

std::string refusal(const std::string& tag, const std::string& advice) {
  return "[" + tag +
         "] expected calls one after the other but got one while another runs, which would spoil " +
         "both: " + advice;
}

TEST(SharedJob, InferJobNoticesASecondThread) {
  const Linear model(4, 3);
  std::function<void()> amid;
  InferJob job(model, [&](std::span<const Tensor> inputs) {
    amid();
    return std::vector<Tensor>{model(inputs[0])};
  });
  const Tensor x = floats({2, 4}, 1);
  EXPECT_EQ(message_amid(
                [&](const std::function<void()>& middle) {
                  amid = middle;
                  job(x);
                },
                [&] { job(x); }),
            refusal("infer_job", "give each thread an InferJob of its own, of the same model"));
  std::thread([&] { expect_near(job(x), model(x).to_vector<float>(), 1e-6); }).join();  // one after the other
}

TEST(SharedJob, TrainJobNoticesASecondThread) {
  const Linear model(4, 3);
  SGD sgd(model.parameters());
  std::function<void()> amid;
  const CrossEntropyLoss loss;
  TrainJob job(model, sgd, [&](std::span<const Tensor> inputs) {
    amid();
    return std::vector<Tensor>{loss(model(inputs[0]), inputs[1])};
  });
  const Tensor x = floats({2, 4}, 1), y = labels(2, 3, 1);
  for (const bool prepares : {false, true}) {
    EXPECT_EQ(
        message_amid(
            [&](const std::function<void()>& middle) {
              amid = middle;
              const Tensor other = floats({prepares ? 5 : 2, 4}, 1);  // traced anew
              job.step(other, labels(prepares ? 5 : 2, 3, 1), 0.1);
            },
            [&] {
              if (prepares)
                job.prepare(std::array{x.spec(), y.spec()});
              else
                job.step(x, y, 0.1);
            }),
        refusal("train_job", "each thread that trains needs a model, an optimiser and a job of its own"));
  }
}

/// An optimiser that calls a function in the middle of its step.
class Interrupted final : public Optimizer {
 public:
  explicit Interrupted(const std::vector<Parameter>& parameters)
      : Optimizer("interrupted", {{.parameters = parameters}}, 0.0, {}) {}
  std::function<void()> amid;

 protected:
  void update(std::span<Slot* const>, const UpdateOptions&) override { amid(); }
};

TEST(SharedJob, OptimisersNoticeASecondThread) {
  const Linear model(4, 3);
  Interrupted optimizer(model.parameters());
  for (const Parameter& parameter : model.parameters())
    parameter.tensor().set_grad(Tensor::zeros(parameter.tensor().shape()));
  const std::string expected =
      refusal("interrupted", "each thread that trains needs a model and an optimiser of its own");
  const auto step = [&](const std::function<void()>& middle) {
    optimizer.amid = middle;
    optimizer.step(0.1);
  };
  EXPECT_EQ(message_amid(step, [&] { optimizer.step(0.1); }), expected);
  EXPECT_EQ(message_amid(step, [&] { optimizer.set_learning_rate(0.1); }), expected);
  EXPECT_EQ(message_amid(step, [&] { optimizer.load_state({}); }), expected);
  EXPECT_EQ(message_amid(step, [&] { optimizer.reset(); }), expected);
}

/// Images of one pixel; reading one calls a function.
class Interrupting final : public data::Dataset {
 public:
  int64_t size() const override { return 4; }
  void read(int64_t index, data::Sample& sample, const data::DecodeHintFunction&) const override {
    amid();
    sample.image = {.height = 1, .width = 1, .channels = 1, .pixels = {7}};
    sample.label = index % 2;
  }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::function<void()> amid;

 private:
  std::vector<std::string> names_ = {"even", "odd"};
};

TEST(SharedJob, LoadersNoticeASecondThread) {
  const auto dataset = std::make_shared<Interrupting>();
  data::DataLoader loader(dataset, {.batch_size = 2});
  const std::string expected =
      refusal("data_loader", "let one thread take the batches, or give each a loader with its own shard");
  const auto next = [&](const std::function<void()>& middle) {
    dataset->amid = middle;
    loader.next();
  };
  EXPECT_EQ(message_amid(next, [&] { loader.next(); }), expected);
  EXPECT_EQ(message_amid(next, [&] { loader.load_state({.batch_size = 2, .dataset_size = 4}); }), expected);
}

Sequential small_network() {
  manual_seed(1);
  return Sequential(Conv2d(3, 8, 3, {.padding = 1}), BatchNorm2d(8), ReLU(), Dropout(0.5),
                    Conv2d(8, 8, 3, {.padding = 1}), BatchNorm2d(8), GlobalAvgPool2d(), Linear(8, 6));
}

// The model is in training mode, and each thread's job compiles while others do.
TEST(SharedJob, ThreadsWithAJobEachOfOneModelGetRightResults) {
  const Sequential model = small_network();
  const auto input = [](int thread, int call) { return floats({2, 3, 8, 8}, 100 * thread + call); };
  std::vector<std::vector<std::vector<float>>> expected(4);
  {
    const NoGrad no_grad;
    const EvalMode eval(model);
    for (int thread = 0; thread < 4; ++thread) {
      for (int call = 0; call < 25; ++call)
        expected[static_cast<size_t>(thread)].push_back(model(input(thread, call)).to_vector<float>());
    }
  }
  std::atomic<int> right = 0;
  std::barrier start(4);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      InferJob job(model);
      start.arrive_and_wait();
      for (int call = 0; call < 25; ++call) {
        const std::vector<float> result = job(input(thread, call)).to_vector<float>();
        const std::vector<float>& want = expected[static_cast<size_t>(thread)][static_cast<size_t>(call)];
        bool near = result.size() == want.size();
        for (size_t i = 0; near && i < want.size(); ++i) near = std::abs(result[i] - want[i]) < 1e-4f;
        if (near) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
  EXPECT_TRUE(model.training());
}

TEST(SharedJob, AJobThatThreadsShareThrowsRatherThanGivingWrongResults) {
  const Sequential model = small_network();
  InferJob job(model);
  std::vector<Tensor> inputs;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(floats({2, 3, 8, 8}, i));
    expected.push_back(job(inputs.back()).to_vector<float>());
  }
  std::atomic<int> right = 0, refused = 0;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int call = 0; call < 25; ++call) {
        try {
          if (job(inputs[thread]).to_vector<float>() == expected[thread]) ++right;
        } catch (const InvalidArgument&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right + refused, 100);
}

TEST(EvalMode, IsThatOfItsThread) {
  const Sequential model(Dropout(0.5));
  const EvalMode eval(model);
  EXPECT_FALSE(model[0].training());
  EXPECT_TRUE(std::async(std::launch::async, [&] { return model[0].training(); }).get());
}

// More slots than scratch was made for gave wrong results, and writes behind it.
TEST(JobThreads, MayChangeAfterAJobWasCompiled) {
  const int before = num_threads();
  manual_seed(1);
  const Sequential model(Conv2d(3, 64, 3, {.padding = 1}), ReLU(), Conv2d(64, 64, 3, {.padding = 1}));
  const Tensor x = floats({8, 3, 16, 16}, 1);
  set_num_threads(1);
  const std::vector<float> expected = InferJob(model)(x).to_vector<float>();
  for (const auto& [first, second] : {std::pair{1, 16}, {16, 1}, {1, 2}, {2, 3}}) {
    set_num_threads(first);
    InferJob job(model);
    expect_near(job(x), expected, 1e-5);
    set_num_threads(second);
    for (int i = 0; i < 3; ++i) expect_near(job(x), expected, 1e-5);
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace sinter::nn
