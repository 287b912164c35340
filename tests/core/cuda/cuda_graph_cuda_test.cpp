// Captured work on a GPU: what launches of it compute, what goes on beside a capture, and what refuses or
// breaks one.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/optimizer/optimizer.h>

#include "common/error_message.h"
#include "common/prepared_call.h"

namespace sinter {
namespace {

using test::message_of;
using test::PreparedCall;

using Floats = std::vector<float>;

const Device kGpu = Device::cuda();

class CudaGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(kGpu)) GTEST_SKIP() << "needs a GPU";
    settings::set_autotune(false);
    settings::set_deterministic(true);
  }
  void TearDown() override {
    settings::set_autotune(autotune_);
    settings::set_deterministic(deterministic_);
  }

  Backend& backend() const { return backend_of(kGpu); }
  Stream stream() const { return current_stream(kGpu); }

 private:
  bool autotune_ = settings::autotune(), deterministic_ = settings::deterministic();
};

/// relu(x) -> y, over fixed memory; run once, so that its code is there.
class Relu {
 public:
  explicit Relu(int64_t count) : call("relu", {Tensor::zeros({count}, DType::kFloat32, kGpu)}, {}, kGpu) {
    call.run(current_stream(kGpu));
  }
  /// Whether a launch on the current stream computes what it should.
  bool works_in(CapturedWork& work, float value) const {
    const Tensor& x = call.inputs()[0];
    const Floats values(static_cast<size_t>(x.numel()), value);
    copy_bytes(x.raw_data(), kGpu, values.data(), Device::cpu(), x.spec().bytes());
    work.launch(current_stream(kGpu));
    return call.outputs()[0].to_vector<float>() == Floats(values.size(), std::max(value, 0.0F));
  }

  PreparedCall call;
};

/// A capture of one relu, and a launch of it, work.
::testing::AssertionResult capturing_works() {
  const Relu relu(1000);
  Capture capture(kGpu);
  relu.call.run(capture.stream());
  const auto work = capture.end();
  if (work->node_count() != 1) return ::testing::AssertionFailure() << work->node_count() << " nodes";
  if (!relu.works_in(*work, 3) || !relu.works_in(*work, -2)) {
    return ::testing::AssertionFailure() << "a launch computed something else";
  }
  if (ops::relu(Tensor::from_values<float>({-1, 2}, {2}, kGpu)).to_vector<float>() != Floats{0, 2}) {
    return ::testing::AssertionFailure() << "eager code computes something else";
  }
  return ::testing::AssertionSuccess();
}

// ---- what launches compute

/// The state of a small network in training.
struct TinyNet {
  Tensor x, filters, weight, bias, target, dloss, rate, momentum;

  explicit TinyNet(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto uniform = [&](const Shape& shape) {
      Floats values(static_cast<size_t>(shape.numel()));
      for (float& value : values) value = std::uniform_real_distribution<float>(-0.5F, 0.5F)(random);
      return Tensor::from_values(values, shape, kGpu);
    };
    x = uniform({kBatch, 3, 16, 16});
    filters = uniform({8, 3, 3, 3});
    weight = uniform({kClasses, 8 * 16 * 16});
    bias = uniform({kClasses});
    target = Tensor::from_values(std::vector<int64_t>{0, 1, 2, 3}, {kBatch}, kGpu);
    dloss = Tensor::from_values<float>({1}, Shape{}, kGpu);
    rate = Tensor::from_values<double>({0.1}, Shape{}, kGpu);
    momentum = Tensor::zeros(weight.shape(), DType::kFloat32, kGpu);
  }

  /// New values for what changes from step to step.
  void feed(uint64_t seed, double learning_rate) const {
    copy_bytes(x.raw_data(), kGpu, TinyNet(seed).x.raw_data(), kGpu, x.spec().bytes());
    copy_bytes(rate.raw_data(), kGpu, &learning_rate, Device::cpu(), sizeof(learning_rate));
  }

  static constexpr int64_t kBatch = 4, kClasses = 10;
};

constexpr double kMomentum = 0.9;

float eager_step(const TinyNet& net) {
  const NoGrad no_grad;
  const Tensor features = ops::relu(ops::conv2d(net.x, net.filters, {}, {.padding = {1, 1}}));
  const Tensor rows = Tensor::over(features.storage(), features.offset_bytes(),
                                   {Shape{TinyNet::kBatch, net.weight.shape()[1]}, DType::kFloat32, kGpu});
  const Tensor logits = ops::linear(rows, net.weight, net.bias);
  const auto loss =
      call(OpRegistry::instance().get("cross_entropy"), {logits, net.target}, ops::CrossEntropyOptions{});
  const Tensor dlogits = ops::vjp::cross_entropy(net.dloss, logits, net.target, loss[1], {}).logits;
  const ops::UpdateSlot slot{
      .parameter = net.weight, .gradient = ops::vjp::linear_weight(dlogits, rows), .buffers = {net.momentum}};
  ops::update::sgd_step({&slot, 1}, net.rate, {.momentum = kMomentum});
  return loss[0].to_vector<float>()[0];
}

/// The same step as a list of prepared calls.
class PreparedStep {
 public:
  explicit PreparedStep(const TinyNet& net) {
    const Tensor map = add(
        "relu", {add("conv2d", {net.x, net.filters, {}}, ops::Conv2dAttributes{.padding = {1, 1}})[0]})[0];
    const Tensor rows = Tensor::over(map.storage(), map.offset_bytes(),
                                     {Shape{TinyNet::kBatch, net.weight.shape()[1]}, DType::kFloat32, kGpu});
    const Tensor logits = add("linear", {rows, net.weight, net.bias})[0];
    const auto outputs = add("cross_entropy", {logits, net.target}, ops::CrossEntropyOptions{});
    loss = outputs[0];
    const Tensor dlogits = add("cross_entropy_grad", {logits, net.target, outputs[1], net.dloss},
                               ops::CrossEntropyGradAttributes{})[0];
    const Tensor dweight = add("linear_grad_weight", {dlogits, rows})[0];
    add("sgd_step", {net.weight, dweight, net.momentum, {}, net.rate, {}, {}},
        ops::update::SGDStep{.momentum = kMomentum});
  }
  void run(const Stream& stream) const {
    for (const PreparedCall& call : calls_) call.run(stream);
  }
  void keep_alive_with(CapturedWork& work) const {
    for (const PreparedCall& call : calls_) work.keep(call.choice().prepared);
  }

  Tensor loss;

 private:
  const std::vector<Tensor>& add(const char* op, std::vector<Tensor> inputs, Attributes attributes = {}) {
    return calls_.emplace_back(op, std::move(inputs), std::move(attributes), kGpu).outputs();
  }

  std::deque<PreparedCall> calls_;
};

TEST_F(CudaGraphTest, AHundredLaunchesTrainAsEagerStepsDo) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const TinyNet eager(seed), captured(seed), warm(seed);
  PreparedStep(warm).run(stream());
  const PreparedStep step(captured);
  Capture capture(kGpu);
  step.run(capture.stream());
  const auto work = capture.end();
  step.keep_alive_with(*work);
  EXPECT_GE(work->node_count(), 7u);
  for (uint64_t i = 0; i < 100; ++i) {
    const double rate = 0.1 / static_cast<double>(i + 1);
    eager.feed(seed + i, rate);
    captured.feed(seed + i, rate);
    work->launch(stream());
    ASSERT_EQ(step.loss.to_vector<float>()[0], eager_step(eager)) << "launch " << i;
  }
  EXPECT_EQ(captured.weight.to_vector<float>(), eager.weight.to_vector<float>());
  EXPECT_EQ(captured.momentum.to_vector<float>(), eager.momentum.to_vector<float>());
  EXPECT_NE(captured.weight.to_vector<float>(), warm.weight.to_vector<float>());
}

TEST_F(CudaGraphTest, WhatIsCapturedRunsOnlyWhenItIsLaunched) {
  const Relu relu(8);
  const Floats ones(8, 1.0F);
  copy_bytes(relu.call.inputs()[0].raw_data(), kGpu, ones.data(), Device::cpu(), 32);
  std::shared_ptr<CapturedWork> work;
  {
    Capture capture(kGpu);
    EXPECT_EQ(current_stream(kGpu).id, capture.stream().id);
    EXPECT_NE(capture.stream().id, backend().default_stream(0).id);
    relu.call.run(capture.stream());
    relu.call.run(capture.stream());
    work = capture.end();
    EXPECT_NE(current_stream(kGpu).id, capture.stream().id) << "the capture has ended";
  }
  EXPECT_EQ(work->node_count(), 2u);
  synchronize(kGpu);
  EXPECT_EQ(relu.call.outputs()[0].to_vector<float>(), Floats(8, 0.0F));
  work->launch(stream());
  EXPECT_EQ(relu.call.outputs()[0].to_vector<float>(), ones);
}

TEST_F(CudaGraphTest, LaunchesRunInTheOrderOfTheirStream) {
  const Relu relu(1 << 20);
  Capture capture(kGpu);
  relu.call.run(capture.stream());
  const auto work = capture.end();
  for (const Stream& on : {stream(), backend().create_stream(0)}) {
    const StreamGuard guard(on);
    for (int i = 1; i <= 20; ++i) EXPECT_TRUE(relu.works_in(*work, static_cast<float>(i))) << i;
  }
  EXPECT_THROW(work->launch(Stream{}), InvalidArgument);
}

TEST_F(CudaGraphTest, KeepsWhatItIsGiven) {
  const auto object = std::make_shared<int>(1);
  {
    Capture capture(kGpu);
    const auto work = capture.end();
    EXPECT_EQ(work->node_count(), 0u);
    work->keep(object);
    EXPECT_EQ(object.use_count(), 2);
  }
  EXPECT_EQ(object.use_count(), 1);
}

// ---- what goes on beside a capture

/// Runs `work` again and again on a thread of its own until it ends.
class Beside {
 public:
  explicit Beside(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          try {
            while (!stop_) {
              work();
              ++rounds_;
            }
          } catch (const std::exception& error) {
            failure_ = error.what();
            failed_ = true;
          }
        }) {}
  ~Beside() { finish(); }
  void wait_for_rounds(int more) const {
    const int until = rounds_ + more;
    while (rounds_ < until && !failed_) std::this_thread::yield();
  }
  std::string finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return failure_;
  }

 private:
  std::atomic<bool> stop_ = false, failed_ = false;
  std::atomic<int> rounds_ = 0;
  std::string failure_;
  std::thread thread_;
};

TEST_F(CudaGraphTest, OtherThreadsAllocateCopyAndWait) {
  std::mt19937_64 random(std::random_device{}());
  const Stream loader = transfer_stream(kGpu);
  Beside beside([&] {
    const auto bytes = static_cast<int64_t>(1 + random() % (16 << 20));
    const Tensor pinned = Tensor::empty_pinned({bytes}, DType::kUInt8, kGpu);
    {
      const StreamGuard guard(loader);
      const Tensor batch = Tensor::empty({bytes}, DType::kUInt8, kGpu);
      copy_async(batch, pinned, loader);
      const Event ready(loader);
      if (!ready.done()) ready.synchronize();
      ready.make_wait(backend_of(kGpu).default_stream(0));
    }
    if (random() % 4 == 0) backend_of(kGpu).memory_pool(0).trim();
    if (random() % 4 == 0) backend_of(kGpu).pinned_pool(0).trim();
  });
  const Relu relu(1000);
  for (int i = 0; i < 50; ++i) {
    beside.wait_for_rounds(1);
    Capture capture(kGpu);
    for (int j = 0; j < 20; ++j) relu.call.run(capture.stream());
    beside.wait_for_rounds(2);
    const auto work = capture.end();
    ASSERT_EQ(work->node_count(), 20u);
    ASSERT_TRUE(relu.works_in(*work, static_cast<float>(i) - 20.0F));
  }
  EXPECT_EQ(beside.finish(), "");
}

TEST_F(CudaGraphTest, AnotherThreadLooksForConvolutionPlans) {
  setenv("SINTER_CACHE_DIR", "", 1);  // nothing on disk, and nothing from it
  settings::set_autotune(true);
  const Relu relu(1000);
  Capture capture(kGpu);
  relu.call.run(capture.stream());
  const auto height = static_cast<int64_t>(16 + std::random_device{}() % 256);
  std::string failure;
  std::thread([&] {
    try {  // a new problem, so that plans are looked for now; timing them would wait for the device
      const Tensor x = Tensor::zeros({3, 5, height, 29}, DType::kFloat32, kGpu);
      const Tensor y = ops::conv2d(x, Tensor::zeros({7, 5, 3, 3}, DType::kFloat32, kGpu));
      synchronize(kGpu);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }).join();
  EXPECT_EQ(failure, "");
  EXPECT_TRUE(relu.works_in(*capture.end(), 2));
}

TEST_F(CudaGraphTest, TheThreadThatCapturesMayWorkOnOtherStreams) {
  const Relu relu(1000);
  constexpr int64_t kBytes = 96 << 20;
  const Stream other = stream();
  const Tensor used_before = Tensor::empty({kBytes}, DType::kUInt8, kGpu);
  Tensor freed_inside = Tensor::empty({kBytes}, DType::kUInt8, kGpu);
  freed_inside.storage()->record_stream(transfer_stream(kGpu));
  Capture capture(kGpu);
  relu.call.run(capture.stream());
  {
    const StreamGuard guard(other);
    freed_inside = Tensor();
    const Tensor fresh = Tensor::empty({2 * kBytes}, DType::kUInt8, kGpu);
    const Tensor pinned = Tensor::empty_pinned({kBytes}, DType::kUInt8, kGpu);
    copy_async(used_before, pinned, other);
    const Event event(other);
    while (!event.done()) std::this_thread::yield();
    synchronize(kGpu);
  }
  backend().memory_pool(0).trim();
  backend().pinned_pool(0).trim();
  EXPECT_TRUE(relu.works_in(*capture.end(), 2));
}

TEST_F(CudaGraphTest, ACaptureInsideACaptureIsItsOwn) {
  const Relu first(100), second(200);
  Capture outer(kGpu);
  first.call.run(outer.stream());
  std::shared_ptr<CapturedWork> inner_work;
  {
    Capture inner(kGpu);
    second.call.run(inner.stream());
    inner_work = inner.end();
  }
  first.call.run(outer.stream());
  const auto outer_work = outer.end();
  EXPECT_EQ(outer_work->node_count(), 2u);
  EXPECT_EQ(inner_work->node_count(), 1u);
  EXPECT_TRUE(first.works_in(*outer_work, 5));
  EXPECT_TRUE(second.works_in(*inner_work, 6));
}

// ---- what a capture refuses, and what breaks it

TEST_F(CudaGraphTest, WhatNeedsTheHostIsRefusedAndBreaksNothing) {
  const Relu relu(1000);
  const Tensor plain = Tensor::zeros({1000});
  const Tensor pinned = Tensor::empty_pinned({1000}, DType::kFloat32, kGpu);
  const Event before(stream());
  const PoolStats stats = backend().memory_pool(0).stats();
  Capture capture(kGpu);
  relu.call.run(capture.stream());
  const Tensor& x = relu.call.inputs()[0];
  const auto refused = [](const std::function<void()>& action) {
    const std::string message = message_of<Unsupported>(action);
    return message.rfind("[cuda] ", 0) == 0 || message.rfind("[memory] ", 0) == 0 ? "" : message;
  };
  EXPECT_EQ(refused([&] { ops::relu(x); }), "") << "it allocates its result";
  EXPECT_EQ(refused([&] { backend().workspace(capture.stream()).lease(1000); }), "");
  EXPECT_EQ(refused([&] { synchronize(kGpu); }), "");
  EXPECT_EQ(refused([&] { Event{capture.stream()}; }), "");
  EXPECT_EQ(refused([&] { before.make_wait(capture.stream()); }), "");
  EXPECT_EQ(refused([&] { backend().mark_time(capture.stream()); }), "");
  EXPECT_EQ(refused([&] { copy_bytes(x.raw_data(), kGpu, plain.raw_data(), Device::cpu(), 4000); }), "");
  EXPECT_EQ(refused([&] { copy_bytes(plain.raw_data(), Device::cpu(), x.raw_data(), kGpu, 4000); }), "");
  EXPECT_EQ(refused([&] { copy_async(x, pinned, capture.stream()); }), "") << "the memory could be reused";
  const auto work = capture.end();
  EXPECT_EQ(work->node_count(), 1u);
  EXPECT_TRUE(relu.works_in(*work, 4));
  EXPECT_EQ(backend().memory_pool(0).stats().live_blocks, stats.live_blocks);
  EXPECT_TRUE(capturing_works());
}

TEST_F(CudaGraphTest, CopiesWithPinnedMemoryAreCaptured) {
  const Relu relu(100);
  const Tensor in = Tensor::empty_pinned({100}, DType::kFloat32, kGpu);
  const Tensor out = Tensor::empty_pinned({100}, DType::kFloat32, kGpu);
  Capture capture(kGpu);
  const Stream& on = capture.stream();
  backend().copy(relu.call.inputs()[0].raw_data(), kGpu, in.raw_data(), Device::cpu(), 400, on);
  relu.call.run(on);
  backend().copy(out.raw_data(), Device::cpu(), relu.call.outputs()[0].raw_data(), kGpu, 400, on);
  const auto work = capture.end();
  EXPECT_EQ(work->node_count(), 3u);
  for (int i = 0; i < 10; ++i) {
    std::fill_n(in.data<float>(), 100, static_cast<float>(i - 3));
    work->launch(stream());
    synchronize(kGpu);
    EXPECT_EQ(out.to_vector<float>(), Floats(100, static_cast<float>(std::max(i - 3, 0))));
  }
}

TEST_F(CudaGraphTest, AnErrorInBetweenLeavesNothingBehind) {
  for (int i = 0; i < 3; ++i) {
    const PoolStats before = backend().memory_pool(0).stats();
    EXPECT_THROW(
        {
          const Relu relu(1000);
          Capture capture(kGpu);
          relu.call.run(capture.stream());
          throw Unsupported("[test] something else went wrong");
        },
        Unsupported);
    EXPECT_EQ(current_stream(kGpu).id, backend().default_stream(0).id);
    EXPECT_EQ(backend().memory_pool(0).stats().live_blocks, before.live_blocks);
    EXPECT_TRUE(capturing_works());
  }
}

TEST_F(CudaGraphTest, ACallThatCudaForbidsBreaksTheCaptureAndNothingElse) {
  // Such as other code on the thread may make: straight to the runtime, which this library has loaded.
  using Synchronize = int (*)(void*);
  const auto synchronize_stream = reinterpret_cast<Synchronize>(dlsym(RTLD_DEFAULT, "cudaStreamSynchronize"));
  ASSERT_NE(synchronize_stream, nullptr);
  const Relu relu(1000);
  for (const bool ends : {true, false}) {
    const StreamId before = current_stream(kGpu).id;
    {
      Capture capture(kGpu);
      relu.call.run(capture.stream());
      EXPECT_NE(synchronize_stream(capture.stream().native), 0);
      const std::string launch = message_of<DeviceError>([&] { relu.call.run(capture.stream()); });
      EXPECT_NE(launch.find("kernel launch failed"), std::string::npos) << launch;
      if (ends) {
        const std::string message = message_of<DeviceError>([&] { capture.end(); });
        EXPECT_EQ(message.rfind("[cuda] cudaStreamEndCapture failed: ", 0), 0u) << message;
        EXPECT_NE(message.find("(cudaErrorStreamCaptureInvalidated)"), std::string::npos) << message;
        EXPECT_THROW(capture.end(), InvalidArgument) << "it has ended";
      }
    }
    EXPECT_EQ(current_stream(kGpu).id, before);
    EXPECT_TRUE(capturing_works());
  }
}

}  // namespace
}  // namespace sinter
