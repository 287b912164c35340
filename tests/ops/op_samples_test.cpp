// Walks the registry: every op must have samples; its outputs on random calls are compared with the float64
// reference, on the CPU and on a GPU if there is one, and its gradient with finite differences.
// SINTER_TEST_CASES changes the number of cases per op.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/copy/copy.h>

#include "common/test_cases.h"

namespace sinter::ops {
namespace {

int cases_per_op() {
  return test::random_cases(200);
}

uint64_t base_seed() {
  return test::random_seed(20261120);
}

// Fresh memory reads as NaN in this program, so that an element which a kernel forgot to write is seen. Pools
// read the variable when they are made, which is after this; a value from outside has precedence.
[[maybe_unused]] const int memory_is_poisoned = setenv("SINTER_MEMORY", "poison", 0);

/// A copy of the inputs, so that ops with mutated inputs leave the sample as the reference must see it.
std::vector<Tensor> fresh_inputs(const OpSample& sample) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : sample.inputs) inputs.push_back(input.defined() ? copy(input) : Tensor());
  return inputs;
}

/// `tensor` on the first GPU. With an offset it begins one element into its memory, as the views that ops
/// make do, so that wide accesses are not aligned.
Tensor on_gpu(const Tensor& tensor, bool offset) {
  const TensorSpec spec{tensor.shape(), tensor.dtype(), Device::cuda()};
  if (!offset) return tensor.to(spec.device);
  const Tensor memory = Tensor::empty(Shape{tensor.numel() + 1}, spec.dtype, spec.device);
  const Tensor view = Tensor::over(memory.storage(), size_of(spec.dtype), spec);
  copy_bytes(view.raw_data(), spec.device, tensor.raw_data(), tensor.device(), spec.bytes());
  return view;
}

bool has_kernel(const Op& op, DeviceType device) {
  return std::any_of(op.kernels.begin(), op.kernels.end(),
                     [&](const Kernel& kernel) { return kernel.device == device; });
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto *first = static_cast<const std::byte*>(a.raw_data()),
             *second = static_cast<const std::byte*>(b.raw_data());
  return std::equal(first, first + a.spec().bytes(), second);
}

std::vector<std::string> registered_ops() {
  return OpRegistry::instance().names();
}

class OpSamplesTest : public testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return OpRegistry::instance().get(GetParam()); }
  const OpSamples& samples() const {
    const OpSamples* found = SampleRegistry::builtin().find(GetParam());
    if (found == nullptr) throw_error<InternalError>("op '{}' has no samples", GetParam());
    return *found;
  }
};

double largest_finite(const ReferenceTensor& tensor) {
  double largest = 0.0;
  for (double value : tensor.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

void compare(const Tensor& value, const ReferenceTensor& reference, const OpSamples& samples,
             const OpSample& sample, size_t output) {
  const std::string what = "output " + std::to_string(output);
  ASSERT_EQ(value.shape(), reference.shape)
      << what << ": shape " << to_string(value.shape()) << " expected " << to_string(reference.shape);
  const double tolerance = tolerance_of(value.dtype(), largest_finite(reference), samples, sample, output);
  const ReferenceTensor got = reference_of(value);
  for (int64_t i = 0; i < value.numel(); ++i) {
    if (std::isnan(reference[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " element " << i << ": " << got[i] << " expected NaN";
    } else if (std::isinf(reference[i])) {
      ASSERT_EQ(got[i], reference[i]) << what << " element " << i;
    } else {
      ASSERT_LE(std::abs(got[i] - reference[i]), tolerance)
          << what << " element " << i << ": " << got[i] << " expected " << reference[i];
    }
  }
}

TEST_P(OpSamplesTest, MatchesReference) {
  const OpSamples& samples = this->samples();
  const uint64_t seed = base_seed();
  for (int i = 0; i < cases_per_op(); ++i) {
    const DType dtype = samples.dtypes[static_cast<size_t>(i) % samples.dtypes.size()];
    SampleMaker maker(seed + static_cast<uint64_t>(i), dtype);
    const OpSample sample = samples.make(maker);
    SCOPED_TRACE(fmt::format("seed {} case {} {} {}", seed, i, dtype, to_string(sample.attributes)));
    const std::vector<ReferenceTensor> expected = samples.reference(sample);
    const std::vector<Tensor> inputs = fresh_inputs(sample);
    const NoGrad no_grad;
    std::vector<Tensor> results = call(op(), inputs, sample.attributes);
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (!inputs[j].defined()) continue;
      if (op().definition.input_def(j).mutated) results.push_back(inputs[j]);
      if (!op().definition.mutates(j, sample.attributes)) {
        ASSERT_TRUE(same_bytes(inputs[j], sample.inputs[j]))
            << "input " << j << " was changed, but the schema does not say so";
      }
    }
    ASSERT_EQ(results.size(), expected.size());
    for (size_t j = 0; j < results.size(); ++j) {
      compare(results[j], expected[j], samples, sample, j);
      if (HasFatalFailure()) return;
    }
  }
}

// What the comparison is worth: a kernel that writes zeros does not pass.
TEST_P(OpSamplesTest, ToleranceTellsResultsFromZeros) {
  const OpSamples& samples = this->samples();
  for (int i = 0; i < cases_per_op(); ++i) {
    const DType dtype = samples.dtypes[static_cast<size_t>(i) % samples.dtypes.size()];
    SampleMaker maker(base_seed() + static_cast<uint64_t>(i), dtype);
    const OpSample sample = samples.make(maker);
    SCOPED_TRACE(fmt::format("case {} {} {}", i, dtype, to_string(sample.attributes)));
    const std::vector<ReferenceTensor> expected = samples.reference(sample);
    const NoGrad no_grad;
    const std::vector<Tensor> outputs = call(op(), fresh_inputs(sample), sample.attributes);
    for (size_t j = 0; j < outputs.size(); ++j) {
      const double largest = largest_finite(expected[j]);
      // What rounding leaves of a zero in the reference, and float16's last digits.
      const double nothing = outputs[j].dtype() == DType::kFloat16 ? 0x1p-23 : 1e-15;
      if (!is_float(outputs[j].dtype()) || largest < nothing) continue;
      EXPECT_LT(tolerance_of(outputs[j].dtype(), largest, samples, sample, j), largest) << "output " << j;
    }
  }
}

TEST_P(OpSamplesTest, MatchesReferenceOnCuda) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  // Ops that only ever give views have no kernel on any device.
  if (!has_kernel(op(), DeviceType::kCpu)) GTEST_SKIP() << "the op has no kernels";
  ASSERT_TRUE(has_kernel(op(), DeviceType::kCuda))
      << "op '" << GetParam() << "' has a kernel for the CPU but none for CUDA";
  const OpSamples& samples = this->samples();
  const uint64_t seed = base_seed();
  for (int i = 0; i < cases_per_op(); ++i) {
    const DType dtype = samples.dtypes[static_cast<size_t>(i) % samples.dtypes.size()];
    SampleMaker maker(seed + static_cast<uint64_t>(i), dtype);
    const OpSample sample = samples.make(maker);
    const bool offset = i % 5 == 4;  // 5 has no factor in common with the number of dtypes
    SCOPED_TRACE(fmt::format("seed {} case {} {} {}{}", seed, i, dtype, to_string(sample.attributes),
                             offset ? " (inputs not aligned)" : ""));
    const std::vector<ReferenceTensor> expected = samples.reference(sample);
    std::vector<Tensor> inputs;
    for (const Tensor& input : sample.inputs) {
      inputs.push_back(input.defined() ? on_gpu(input, offset) : Tensor());
    }
    const NoGrad no_grad;
    // Ops without inputs say in an attribute where they run.
    const Attributes attributes = sample.attributes.find<Device>("device") != nullptr
                                      ? sample.attributes.with("device", Device::cuda())
                                      : sample.attributes;
    std::vector<Tensor> results = call(op(), inputs, attributes);
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (!inputs[j].defined()) continue;
      if (op().definition.input_def(j).mutated) results.push_back(inputs[j]);
      if (!op().definition.mutates(j, sample.attributes)) {
        ASSERT_TRUE(same_bytes(inputs[j].to(Device::cpu()), sample.inputs[j]))
            << "input " << j << " was changed, but the schema does not say so";
      }
    }
    ASSERT_EQ(results.size(), expected.size());
    for (size_t j = 0; j < results.size(); ++j) {
      ASSERT_EQ(results[j].device(), Device::cuda()) << "output " << j;
      compare(results[j].to(Device::cpu()), expected[j], samples, sample, j);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OpSamplesTest, GradientMatchesFiniteDifferences) {
  const OpSamples& samples = this->samples();
  if (!samples.check_gradient) {
    // What goes back through what the ranks have exchanged is tested with them (tests/processes).
    EXPECT_TRUE(op().definition.gradient == nullptr || GetParam() == "shard_cross_entropy")
        << "the op has a gradient, but its samples do not check it";
    return;
  }
  ASSERT_NE(op().definition.gradient, nullptr);
  const int cases = std::max(1, cases_per_op() / 8);
  const int least = (cases + 3) / 4;  // of them must have elements, and few enough
  int checked_cases = 0;
  for (int i = 0; i < cases || (checked_cases < least && i < 10 * cases); ++i) {
    SampleMaker maker(base_seed() + static_cast<uint64_t>(i), DType::kFloat64);
    const OpSample sample = samples.make(maker);
    SCOPED_TRACE(fmt::format("seed {} case {} {}", base_seed(), i, to_string(sample.attributes)));
    std::vector<Tensor> inputs;
    int64_t elements = 0;
    for (size_t j = 0; j < sample.inputs.size(); ++j) {
      const Tensor& input = sample.inputs[j];
      const bool checked =
          input.defined() && input.dtype() == DType::kFloat64 && !op().definition.input_def(j).mutated;
      inputs.push_back(checked ? copy(input).set_requires_grad(true) : input);
      elements += checked ? input.numel() : 0;
    }
    if (elements > 3000) continue;  // finite differences cost two calls an element
    if (elements > 0) ++checked_cases;
    const auto run = [&](const std::vector<Tensor>& tensors) {
      std::vector<Tensor> call_inputs = tensors;
      for (size_t j = 0; j < tensors.size(); ++j) {
        if (tensors[j].defined() && op().definition.input_def(j).mutated) call_inputs[j] = copy(tensors[j]);
      }
      std::vector<Tensor> outputs = call(op(), call_inputs, sample.attributes);
      for (size_t j = 0; j < outputs.size(); ++j) {
        if (!op().definition.outputs[j].differentiable) outputs[j] = Tensor();
      }
      return outputs;
    };
    const GradcheckResult result = gradcheck(run, inputs, {.seed = base_seed() + static_cast<uint64_t>(i)});
    ASSERT_TRUE(result.passed) << result.message;
  }
  EXPECT_GE(checked_cases, least) << "too many samples are empty or too large to check their gradient";
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSamplesTest, testing::ValuesIn(registered_ops()),
                         [](const auto& parameter) { return parameter.param; });

TEST(OpSamples, NameNoUnknownOp) {
  for (const auto& [name, samples] : SampleRegistry::builtin().all()) {
    EXPECT_NE(OpRegistry::instance().find(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace sinter::ops
