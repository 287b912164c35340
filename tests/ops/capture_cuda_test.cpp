// Every op on a GPU as captured work: launches compute, to the bit, what the same kernel computes outside of
// a capture, for the values that its inputs hold at each launch. SINTER_TEST_CASES changes the number of
// cases.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/settings.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "common/prepared_call.h"
#include "common/test_cases.h"
#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using test::PreparedCall;
using testing_gpu::on_gpu;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const Tensor& tensor) {
  Bytes bytes(tensor.spec().bytes());
  copy_bytes(bytes.data(), Device::cpu(), tensor.raw_data(), tensor.device(), bytes.size());
  return bytes;
}

void set_bytes(const Tensor& tensor, const Bytes& bytes) {
  copy_bytes(tensor.raw_data(), tensor.device(), bytes.data(), Device::cpu(), bytes.size());
}

/// The elements from the last to the first.
Bytes reversed(const Bytes& bytes, size_t element) {
  Bytes result(bytes.size());
  for (size_t i = 0; i < bytes.size(); i += element) {
    std::memcpy(&result[bytes.size() - element - i], &bytes[i], element);
  }
  return result;
}

/// Values for all tensors of a call.
using Values = std::vector<Bytes>;

class CapturedOp : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
    settings::set_autotune(false);
    settings::set_deterministic(true);
  }
  void TearDown() override {
    settings::set_autotune(autotune_);
    settings::set_deterministic(deterministic_);
  }

 private:
  bool autotune_ = settings::autotune(), deterministic_ = settings::deterministic();
};

/// The inputs of a call that are there, and its outputs.
std::vector<Tensor> tensors_of(const PreparedCall& call) {
  std::vector<Tensor> tensors;
  for (const auto* list : {&call.inputs(), &call.outputs()}) {
    for (const Tensor& tensor : *list) {
      if (tensor.defined()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

/// What the tensors hold after `run`, if they held `before`.
template <class Run>
Values after(const std::vector<Tensor>& tensors, const Values& before, const Run& run) {
  for (size_t i = 0; i < tensors.size(); ++i) set_bytes(tensors[i], before[i]);
  run();
  Values values;
  for (const Tensor& tensor : tensors) values.push_back(bytes_of(tensor));
  return values;
}

void check_launches(const Op& op, const std::vector<Tensor>& inputs, const Attributes& attributes) {
  const PreparedCall call(op, inputs, attributes, Device::cuda());
  const std::vector<Tensor> tensors = tensors_of(call);
  // Integers choose and count, so only floating-point values change.
  Values first, second;
  for (const Tensor& tensor : tensors) {
    first.push_back(bytes_of(tensor));
    const bool changes = is_float(tensor.dtype());
    second.push_back(changes ? reversed(first.back(), size_of(tensor.dtype())) : first.back());
  }
  const Stream stream = current_stream(Device::cuda());
  const auto run = [&] { call.run(stream); };
  const Values of_first = after(tensors, first, run), of_second = after(tensors, second, run);
  ASSERT_EQ(after(tensors, first, run), of_first) << "the kernel does not repeat itself outside of a capture";

  Capture capture(Device::cuda());
  call.run(capture.stream());
  const auto work = capture.end();
  work->keep(call.choice().prepared);
  const auto launch = [&] { work->launch(stream); };
  EXPECT_EQ(after(tensors, second, launch), of_second);
  EXPECT_EQ(after(tensors, first, launch), of_first);
  EXPECT_EQ(after(tensors, second, launch), of_second);
}

TEST_P(CapturedOp, LaunchesComputeWhatTheKernelDoes) {
  const Op& op = OpRegistry::instance().get(GetParam());
  const bool has_kernel = std::any_of(op.kernels.begin(), op.kernels.end(), [](const Kernel& kernel) {
    return kernel.device == DeviceType::kCuda;
  });
  if (!has_kernel) GTEST_SKIP() << "the op gives views only";
  const OpSamples* const samples = SampleRegistry::builtin().find(GetParam());
  ASSERT_NE(samples, nullptr);
  const uint64_t seed = std::random_device{}();
  for (int i = 0; i < test::share_of_cases(24); ++i) {
    const DType dtype = samples->dtypes[static_cast<size_t>(i) % samples->dtypes.size()];
    SampleMaker maker(seed + static_cast<uint64_t>(i), dtype);
    const OpSample sample = samples->make(maker);
    const int64_t offset = i % 5 == 4 ? 1 : 0;  // 5 has no factor in common with the number of dtypes
    SCOPED_TRACE(fmt::format("seed {} case {} {} {}{}", seed, i, dtype, to_string(sample.attributes),
                             offset > 0 ? " (inputs not aligned)" : ""));
    std::vector<Tensor> inputs;
    for (const Tensor& input : sample.inputs) {
      inputs.push_back(input.defined() ? on_gpu(input, offset) : Tensor());
    }
    // Ops without inputs say in an attribute where they run.
    const Attributes attributes = sample.attributes.find<Device>("device") != nullptr
                                      ? sample.attributes.with("device", Device::cuda())
                                      : sample.attributes;
    check_launches(op, inputs, attributes);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Builtin, CapturedOp, ::testing::ValuesIn(OpRegistry::instance().names()),
                         [](const auto& of_op) { return of_op.param; });

}  // namespace
}  // namespace sinter::ops
