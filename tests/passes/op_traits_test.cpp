// Walks the registry: every op through which gradients flow says how it takes part in rewrites, or is listed
// here as one that does not; and what ops say of themselves is tried out on their samples, on every device.
// SINTER_TEST_SEED changes the samples.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reshape/reshape.h>

#include "common/test_cases.h"

namespace sinter::ops {
namespace {

constexpr int kCases = 200;

uint64_t base_seed() {
  return test::random_seed(20261122);
}

/// Without the ops of gradients: passes meet them in front of the differentiation only where the traced code
/// calls grad(), and then they may compute as they were written.
std::set<std::string> differentiable_ops(bool (*chosen)(const OpDef&)) {
  std::set<std::string> names;
  for (const std::string& name : OpRegistry::instance().names()) {
    const OpDef& def = OpRegistry::instance().get(name).definition;
    if (def.gradient != nullptr && !name.ends_with("_grad") && chosen(def)) names.insert(name);
  }
  return names;
}

TEST(OpTraits, EveryDifferentiableOpSaysItsPrecision) {
  // A cast's is its attribute.
  const std::set<std::string> says_nothing{"cast"};
  EXPECT_EQ(
      differentiable_ops([](const OpDef& def) { return def.traits.precision == Precision::kUnchanged; }),
      says_nothing);
}

TEST(OpTraits, EveryDifferentiableOpSaysItsLayout) {
  const std::set<std::string> fixed{// Their axes have meanings of their own, or their elements are numbered.
                                    "all_gather",
                                    "broadcast_to",
                                    "combined_margin",
                                    "cross_entropy",
                                    "dropout",
                                    "embedding",
                                    "gather",
                                    "linear",
                                    "linear_grad_weight",
                                    "linear_grad_weight_bias",
                                    "matmul",
                                    "matvec",
                                    "outer",
                                    "permute",
                                    "reduce_scatter",
                                    "reshape",
                                    "shard_cross_entropy",
                                    "sum_to"};
  EXPECT_EQ(
      differentiable_ops([](const OpDef& def) { return def.traits.layout.kind == LayoutRule::Kind::kFixed; }),
      fixed);
}

TEST(OpTraits, RolesFitTheOps) {
  for (const std::string& name : OpRegistry::instance().names()) {
    const OpDef& def = OpRegistry::instance().get(name).definition;
    const LayoutRule& rule = def.traits.layout;
    EXPECT_TRUE(rule.reordered == nullptr || rule.kind == LayoutRule::Kind::kAnyOrder) << name;
    EXPECT_EQ(rule.images != 0, rule.kind == LayoutRule::Kind::kAttribute) << name;
    if (def.traits.role == Role::kCast || def.traits.role == Role::kPermutation) {
      EXPECT_EQ(def.inputs.size(), 1u) << name;
      EXPECT_EQ(def.outputs.size(), 1u) << name;
    }
  }
}

class OpTraitsOf : public testing::TestWithParam<std::string> {
 protected:
  const Op& op() const { return OpRegistry::instance().get(GetParam()); }
  const OpDef& def() const { return op().definition; }
  const OpTraits& traits() const { return def().traits; }
  const OpSamples& samples() const { return *SampleRegistry::builtin().find(GetParam()); }

  OpSample sample(int i, const std::vector<DType>& dtypes) {
    const DType dtype = dtypes[static_cast<size_t>(i) % dtypes.size()];
    SampleMaker maker(base_seed() + static_cast<uint64_t>(i), dtype);
    return samples().make(maker);
  }
};

std::vector<Tensor> copies_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& input : inputs) copies.push_back(input.defined() ? copy(input) : Tensor());
  return copies;
}

/// Outputs, and behind them what became of inputs that are changed.
std::vector<Tensor> results_of(const Op& op, const std::vector<Tensor>& given, const Attributes& attributes) {
  const NoGrad no_grad;
  const std::vector<Tensor> inputs = copies_of(given);
  std::vector<Tensor> results = call(op, inputs, attributes);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (op.definition.input_def(i).mutated && inputs[i].defined()) results.push_back(inputs[i]);
  }
  return results;
}

bool is_in(uint64_t mask, size_t i) {
  return i < 64 && (mask >> i & 1) != 0;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

void expect_close(const Tensor& actual, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const ReferenceTensor a = reference_of(actual), e = reference_of(expected);
  for (int64_t i = 0; i < actual.numel(); ++i) {
    if (std::isnan(e[i]) && std::isnan(a[i])) continue;
    if (std::isinf(e[i])) {
      ASSERT_EQ(a[i], e[i]) << what << ", element " << i;
      continue;
    }
    ASSERT_LE(std::abs(a[i] - e[i]), tolerance) << what << ", element " << i;
  }
}

double largest_finite(const Tensor& tensor) {
  double largest = 0.0;
  for (const double value : reference_of(tensor).values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// Both results are within the tolerance of the reference, so that they are within twice that of each other.
void compare(const OpSamples& samples, const OpSample& sample, const std::vector<Tensor>& actual,
             const std::vector<Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t k = 0; k < actual.size(); ++k) {
    const double tolerance =
        2 * tolerance_of(expected[k].dtype(), largest_finite(expected[k]), samples, sample, k);
    expect_close(actual[k], expected[k], tolerance, fmt::format("output {}", k));
    if (testing::Test::HasFatalFailure()) return;
  }
}

class OpsWithLayout : public OpTraitsOf {};
class OpsInAnyOrder : public OpTraitsOf {};
class OpsIn16Bit : public OpTraitsOf {};
class OpsInPlace : public OpTraitsOf {};

TEST_P(OpsWithLayout, TurnByTheirAttribute) {
  const LayoutRule& rule = traits().layout;
  int turned = 0;
  for (int i = 0; i < kCases; ++i) {
    const OpSample sample = this->sample(i, {DType::kFloat32, DType::kFloat64});
    SCOPED_TRACE(fmt::format("seed {} case {} ({})", base_seed(), i, to_string(sample.attributes)));
    const auto* const layout = sample.attributes.find<Layout>("layout");
    ASSERT_NE(layout, nullptr);
    const bool is_first = *layout == Layout::kNCHW;
    const std::vector<int64_t> order =
        is_first ? std::vector<int64_t>{0, 2, 3, 1} : std::vector<int64_t>{0, 3, 1, 2};
    std::vector<Tensor> inputs = sample.inputs;
    bool is_image = true;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (!inputs[k].defined() || !is_in(rule.images | rule.filters, k)) continue;
      is_image = is_image && inputs[k].rank() == 4;
      if (is_image) inputs[k] = permute(inputs[k], order);
    }
    if (!is_image) continue;
    const std::vector<Tensor> expected = results_of(op(), sample.inputs, sample.attributes);
    std::vector<Tensor> actual =
        results_of(op(), inputs, sample.attributes.with("layout", is_first ? Layout::kNHWC : Layout::kNCHW));
    for (size_t k = 0; k < def().outputs.size() && k < actual.size(); ++k) {
      if (actual[k].rank() == 4 && is_in(rule.image_outputs, k))
        actual[k] = permute(actual[k], inverse(order));
    }
    // What is not differentiable and no image is the op's own, in an order of its own: bits of a mask.
    size_t kept = 0;
    std::vector<Tensor> wanted;
    for (size_t k = 0; k < actual.size(); ++k) {
      if (actual[k].dtype() == DType::kUInt8 && actual[k].rank() == 1) break;
      ++kept;
    }
    actual.resize(kept);
    wanted.assign(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(kept));
    compare(samples(), sample, actual, wanted);
    if (HasFatalFailure()) return;
    ++turned;
  }
  EXPECT_GE(turned, 10);
}

TEST_P(OpsInAnyOrder, GiveTheSameInAnyOrderOfAxes) {
  const LayoutRule& rule = traits().layout;
  int reordered = 0;
  for (int i = 0; i < kCases; ++i) {
    const OpSample sample = this->sample(i, {DType::kFloat32, DType::kFloat64});
    SCOPED_TRACE(fmt::format("seed {} case {} ({})", base_seed(), i, to_string(sample.attributes)));
    const std::vector<Tensor> expected = results_of(op(), sample.inputs, sample.attributes);
    const int rank = rule.reordered != nullptr ? sample.inputs[0].rank() : expected[0].rank();
    if (rank < 2) continue;
    SampleMaker maker(base_seed() + static_cast<uint64_t>(i), DType::kFloat32);
    std::vector<int64_t> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    for (size_t k = order.size() - 1; k > 0; --k) {
      std::swap(order[k], order[static_cast<size_t>(maker.integer(0, static_cast<int64_t>(k)))]);
    }
    Attributes attributes = sample.attributes;
    if (rule.reordered != nullptr) {
      const auto changed = rule.reordered(attributes, order);
      if (!changed) continue;
      attributes = *changed;
    }
    std::vector<Tensor> inputs;
    for (const Tensor& input : sample.inputs) {
      Tensor wide = input;
      while (wide.defined() && wide.rank() < rank) wide = unsqueeze(wide, 0);
      inputs.push_back(wide.defined() ? permute(wide, order) : wide);
    }
    std::vector<Tensor> actual = results_of(op(), inputs, attributes);
    for (Tensor& output : actual) {
      if (output.rank() == rank) output = permute(output, inverse(order));
    }
    compare(samples(), sample, actual, expected);
    if (HasFatalFailure()) return;
    ++reordered;
  }
  EXPECT_GE(reordered, 5);
}

TEST_P(OpsIn16Bit, TakeIt) {
  for (int i = 0; i < kCases; ++i) {
    const OpSample sample = this->sample(i, {DType::kFloat32});
    std::vector<TensorSpec> specs(sample.inputs.size());
    std::vector<const TensorSpec*> pointers(sample.inputs.size());
    bool any = false;
    for (size_t k = 0; k < specs.size(); ++k) {
      if (!sample.inputs[k].defined()) continue;
      specs[k] = sample.inputs[k].spec();
      pointers[k] = &specs[k];
      if (specs[k].dtype != DType::kFloat32 || is_in(traits().float32_inputs, k)) continue;
      specs[k].dtype = DType::kBFloat16;
      any = true;
    }
    if (!any) continue;
    SCOPED_TRACE(fmt::format("seed {} case {} ({})", base_seed(), i, to_string(sample.attributes)));
    const std::vector<TensorSpec> outputs = def().infer(InferContext(def(), pointers, sample.attributes));
    const std::set<std::string> gives_float32{"combined_margin", "rank_statistics"};
    const bool gives_16_bit = !gives_float32.contains(GetParam()) && is_float(outputs.at(0).dtype);
    EXPECT_TRUE(outputs[0].dtype == DType::kBFloat16 || !gives_16_bit);
  }
}

/// The sample with everything that has the output's axes of data repeated along the first one, so that a call
/// is spread over threads and blocks.
OpSample enlarged(const OpSample& sample, const TensorSpec& output) {
  OpSample large = sample;
  const int64_t times = 40000 / std::max<int64_t>(output.shape.numel(), 1) + 1;
  for (Tensor& input : large.inputs) {
    const bool is_data = input.defined() && (input.dtype() == output.dtype || input.dtype() == DType::kBool);
    if (!is_data || input.rank() != output.shape.rank() || input.shape()[0] != output.shape[0]) continue;
    input = concat(std::vector<Tensor>(static_cast<size_t>(times), input), 0);
  }
  return large;
}

std::vector<Device> devices_here() {
  std::vector<Device> devices{Device::cpu()};
  if (is_available(Device::cuda())) devices.push_back(Device::cuda());
  return devices;
}

/// Runs the op with the memory of input `over` as that of its output; gives that.
Tensor run_over(const Op& op, const std::vector<Tensor>& given, const Attributes& attributes, size_t over) {
  const std::vector<Tensor> inputs = copies_of(given);
  std::vector<const TensorSpec*> specs;
  std::vector<TensorView> views;
  for (const Tensor& input : inputs) {
    specs.push_back(input.defined() ? &input.spec() : nullptr);
    views.push_back(input.defined() ? TensorView{input.raw_data(), input.shape(), input.dtype(), true}
                                    : TensorView{});
  }
  const InferContext call(op.definition, specs, attributes);
  const std::vector<TensorSpec> outputs = op.definition.infer(call);
  dispatch(op, inputs[over].device(), call, outputs, views, {&views[over], 1});
  return inputs[over];
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(Device::cpu()), y = b.to(Device::cpu());
  const size_t bytes = x.spec().bytes();
  return x.spec() == y.spec() && (bytes == 0 || std::memcmp(x.raw_data(), y.raw_data(), bytes) == 0);
}

TEST_P(OpsInPlace, WriteOverAnyInputOfTheirShape) {
  ASSERT_EQ(def().outputs.size(), 1u);
  const NoGrad no_grad;
  for (const Device device : devices_here()) {
    int written = 0, large = 0;
    for (int i = 0; i < kCases; ++i) {
      OpSample sample = this->sample(i, samples().dtypes);
      const bool enlarge = i % 4 == 3;
      if (enlarge) {
        const TensorSpec output = results_of(op(), sample.inputs, sample.attributes)[0].spec();
        if (output.shape.rank() < 2 || output.shape.numel() == 0) continue;
        sample = enlarged(sample, output);
      }
      SCOPED_TRACE(
          fmt::format("seed {} case {} on {} ({})", base_seed(), i, device, to_string(sample.attributes)));
      for (Tensor& input : sample.inputs) {
        if (input.defined()) input = input.to(device);
      }
      const Tensor expected = results_of(op(), sample.inputs, sample.attributes)[0];
      for (size_t k = 0; k < sample.inputs.size(); ++k) {
        if (!sample.inputs[k].defined() || sample.inputs[k].spec() != expected.spec()) continue;
        ASSERT_TRUE(same_bytes(run_over(op(), sample.inputs, sample.attributes, k), expected))
            << "written over input " << k;
        ++written;
        large += enlarge ? 1 : 0;
      }
    }
    const std::set<std::string> give_bool{"equal",       "not_equal",  "less",
                                          "less_equal",  "greater",    "greater_equal",
                                          "logical_and", "logical_or", "logical_xor"};
    // ... of what hardly ever is bool
    EXPECT_TRUE(written >= 10 || give_bool.contains(GetParam())) << written;
    const std::set<std::string> of_rank_one{"end_all_reduce"};  // which is not enlarged
    EXPECT_TRUE(large >= 3 || give_bool.contains(GetParam()) || of_rank_one.contains(GetParam())) << large;
  }
}

std::vector<std::string> ops_that(bool (*say)(const OpTraits&)) {
  std::vector<std::string> names = OpRegistry::instance().names();
  std::erase_if(names, [say](const std::string& name) {
    return !say(OpRegistry::instance().get(name).definition.traits);
  });
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

INSTANTIATE_TEST_SUITE_P(Registry, OpsWithLayout, testing::ValuesIn(ops_that([](const OpTraits& traits) {
                           return traits.layout.kind == LayoutRule::Kind::kAttribute;
                         })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Registry, OpsInAnyOrder, testing::ValuesIn(ops_that([](const OpTraits& traits) {
                           return traits.layout.kind == LayoutRule::Kind::kAnyOrder;
                         })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Registry, OpsIn16Bit, testing::ValuesIn(ops_that([](const OpTraits& traits) {
                           return traits.precision == Precision::kReduced ||
                                  traits.precision == Precision::kFollow;
                         })),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Registry, OpsInPlace, testing::ValuesIn(ops_that([](const OpTraits& traits) {
                           return traits.elementwise;
                         })),
                         name_of);

}  // namespace
}  // namespace sinter::ops
