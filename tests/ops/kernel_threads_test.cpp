// What a kernel decided for a number of threads when it was chosen holds for all its runs: prepared with one
// number and run with another, each kernel on the CPU gives the same bits and keeps to its scratch. Walks the
// registry for small calls, and the ops whose threads have scratch of their own for calls that occupy many.
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/adaptive_pool/adaptive_pool.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/topk/topk.h>
#include <sinter/ops/upsample/upsample.h>

#include "common/prepared_call.h"
#include "common/test_cases.h"
#include "common/threads.h"

namespace sinter::ops {
namespace {

using test::Threads;

std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : tensors) copies.push_back(tensor.defined() ? copy(tensor) : Tensor());
  return copies;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()) == 0;
}

/// A call of an op, on the CPU.
struct OpCall {
  std::string op;
  std::vector<Tensor> inputs;
  Attributes attributes;
};

/// A call on one kernel, prepared once and run several times.
class RepeatedCall {
 public:
  /// Throws Unsupported where the kernel cannot run it.
  RepeatedCall(const OpCall& call, const std::string& kernel)
      : inputs_(call.inputs),
        name_(fmt::format("{} on '{}' with {}, prepared with {} threads", call.op, kernel,
                          to_string(call.attributes), num_threads())) {
    const ForcedKernel forced(call.op, kernel);
    prepared_ =
        std::make_unique<test::PreparedCall>(call.op, copies_of(inputs_), call.attributes, Device::cpu());
  }

  const std::string& name() const { return name_; }

  /// The outputs, and the inputs, which may be changed, after one run from the beginning.
  std::vector<Tensor> run() const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].defined()) continue;
      std::memcpy(prepared_->inputs()[i].raw_data(), inputs_[i].raw_data(), inputs_[i].spec().bytes());
    }
    prepared_->run(current_stream({}));
    EXPECT_TRUE(prepared_->kept_to_scratch()) << name_;
    std::vector<Tensor> results = copies_of(prepared_->outputs());
    for (const Tensor& input : copies_of(prepared_->inputs())) results.push_back(input);
    return results;
  }

 private:
  std::vector<Tensor> inputs_;
  std::string name_;
  std::unique_ptr<test::PreparedCall> prepared_;
};

void expect_same(const std::vector<Tensor>& results, const std::vector<Tensor>& expected,
                 const std::string& what) {
  ASSERT_EQ(results.size(), expected.size()) << what;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    EXPECT_TRUE(same_bytes(results[i], expected[i])) << what << ", result " << i;
  }
}

/// Prepares each call with some numbers of threads on every kernel that can run it, and runs it with others.
/// The results of the first number are those that all others must give. Says how many ran.
int expect_decided_once(const std::vector<OpCall>& calls) {
  const NoGrad no_grad;
  struct Prepared {
    RepeatedCall call;
    size_t expected;  // which results
  };
  std::vector<Prepared> prepared;
  std::vector<std::vector<Tensor>> expected;
  for (const int threads : {1, 2, 3, 16}) {
    const Threads guard(threads);
    size_t index = 0;
    for (const OpCall& call : calls) {
      for (const Kernel& kernel : OpRegistry::instance().get(call.op).kernels) {
        if (kernel.device != DeviceType::kCpu) continue;
        try {
          prepared.push_back({RepeatedCall(call, kernel.name), index});
        } catch (const Unsupported&) {
          continue;
        }
        std::vector<Tensor> results = prepared.back().call.run();
        if (index == expected.size())
          expected.push_back(std::move(results));
        else
          expect_same(results, expected[index], prepared.back().call.name());
        ++index;
      }
    }
  }
  for (const int threads : {16, 1}) {
    const Threads guard(threads);
    for (const auto& [call, index] : prepared)
      expect_same(call.run(), expected[index], fmt::format("{}, run with {}", call.name(), threads));
  }
  return static_cast<int>(prepared.size());
}

class KernelThreads : public testing::TestWithParam<std::string> {};

TEST_P(KernelThreads, AreThoseThatTheKernelWasChosenFor) {
  const OpSamples* const samples = SampleRegistry::builtin().find(GetParam());
  ASSERT_NE(samples, nullptr);
  std::vector<OpCall> calls;
  for (int i = 0; i < test::share_of_cases(8); ++i) {
    SampleMaker maker(20261126 + static_cast<uint64_t>(i),
                      samples->dtypes[static_cast<size_t>(i) % samples->dtypes.size()]);
    OpSample sample = samples->make(maker);
    calls.push_back({GetParam(), std::move(sample.inputs), std::move(sample.attributes)});
  }
  EXPECT_GT(expect_decided_once(calls), 0);
}

std::vector<std::string> ops_with_cpu_kernels() {
  std::vector<std::string> names;
  for (const std::string& name : OpRegistry::instance().names()) {
    for (const Kernel& kernel : OpRegistry::instance().get(name).kernels) {
      if (kernel.device != DeviceType::kCpu) continue;
      names.push_back(name);
      break;
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Ops, KernelThreads, testing::ValuesIn(ops_with_cpu_kernels()),
                         [](const auto& parameter) { return parameter.param; });

/// Keeps all calls that run while it lives.
class Recorder final : public CallObserver {
 public:
  Recorder() : previous_(set_call_observer(this)) {}
  ~Recorder() override { set_call_observer(previous_); }

  void before(const Op& op, const Kernel&, const KernelQuery& query, const Stream&) override {
    OpCall call{op.name(), {}, query.attributes()};
    for (const TensorView& view : query.inputs()) {
      call.inputs.emplace_back();
      if (!view.present) continue;
      call.inputs.back() = Tensor::empty(view.shape, view.dtype);
      std::memcpy(call.inputs.back().raw_data(), view.data, call.inputs.back().spec().bytes());
    }
    calls.push_back(std::move(call));
  }
  void after(const Stream&) override {}

  std::vector<OpCall> calls;

 private:
  CallObserver* previous_;
};

/// The calls, forward and backward, of everything that gives threads scratch of their own.
std::vector<OpCall> large_calls(DType dtype, Layout layout) {
  SampleMaker maker(7, dtype);
  const auto images = [&](int64_t channels) {
    return maker.tensor(image_shape(layout, 4, channels, 48, 50)).set_requires_grad(true);
  };
  const Recorder recorder;
  const auto differentiate = [](const Tensor& y) { backward(sum(y)); };
  for (const int64_t channels : {3, 16, 20}) {
    const Tensor filters =
        maker.tensor(image_shape(layout, channels, channels, 3, 3)).set_requires_grad(true);
    differentiate(
        conv2d(images(channels), filters, maker.tensor({channels}), {.padding = {1, 1}, .layout = layout}));
    differentiate(
        max_pool2d(images(channels), {3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .layout = layout}));
    differentiate(avg_pool2d(images(channels), {3, 3}, {.stride = {2, 2}, .layout = layout}));
    differentiate(adaptive_avg_pool2d(images(channels), {13, 9}, {.layout = layout}));
    differentiate(upsample(images(channels),
                           {.size = Size2d(70, 61), .mode = UpsampleMode::kBilinear, .layout = layout}));
  }
  topk(images(3), 5, 2);
  return recorder.calls;
}

TEST(KernelThreadsOfLargeCalls, AreThoseThatTheKernelsWereChosenFor) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, to_string(layout)));
      EXPECT_GT(expect_decided_once(large_calls(dtype, layout)), 100);
    }
  }
}

}  // namespace
}  // namespace sinter::ops
