// Calls of a program against float64: kernels that are wrong on purpose, and sound ones.
#include <gtest/gtest.h>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/passes/calls/call_verifier.h>

#include "passes/damaged_call.h"
#include "passes/function_graph.h"

namespace sinter::passes {
namespace {

using namespace testing;

/// Convolution, sum, ReLU, mean, product and softplus in a dtype.
std::unique_ptr<Graph> network(DType dtype, Device device, int64_t channels) {
  const Tensor weight = ops::cast(random({channels, 3, 3, 3}), dtype).to(device);
  const Tensor last = ops::cast(random({channels, 7}), dtype).to(device);
  return graph_of({{{4, 3, 9, 9}, dtype, device}}, {{"weight", weight}, {"last", last}},
                  [&](const std::vector<Tensor>& x) {
                    const Tensor y = ops::conv2d(x[0], weight, {}, {.padding = {1, 1}});
                    const Tensor z = ops::relu(y * 0.5 + 0.125);
                    return std::vector<Tensor>{ops::softplus(ops::matmul(ops::mean(z, {2, 3}), last))};
                  });
}

std::vector<CallCheck> checks_of(const Graph& graph, const Tensor& x, size_t call, Fault fault) {
  Program program(graph.clone(), x.device());
  CallVerifier verifier(x.device());
  Damaged damaged(verifier, x.device(), call, fault);
  program.watch(&damaged);
  program.run({&x, 1});
  program.watch(nullptr);
  return verifier.checks();
}

class CallVerifierTest : public ::testing::TestWithParam<std::tuple<DeviceType, DType>> {
 protected:
  void SetUp() override {
    if (device().is_cuda() && !is_available(device())) GTEST_SKIP() << "no GPU";
  }
  Device device() const { return {std::get<0>(GetParam()), 0}; }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(CallVerifierTest, NamesTheCallThatIsWrongAndNoOther) {
  int found = 0, seeded = 0;
  for (const int64_t channels : {4, 6, 12}) {
    const std::unique_ptr<Graph> graph = network(dtype(), device(), channels);
    const Tensor x = ops::cast(random({4, 3, 9, 9}), dtype()).to(device());
    const std::vector<CallCheck> sound = checks_of(*graph, x, 0, Fault::kNone);
    ASSERT_GE(sound.size(), 5u);
    for (const CallCheck& check : sound) {
      EXPECT_FALSE(check.is_wrong()) << to_string(check);
      EXPECT_EQ(check.why_not, "") << check.op;
    }
    for (size_t call = 0; call < sound.size(); ++call) {
      for (const Fault fault : {Fault::kLastRow, Fault::kChannel, Fault::kScale, Fault::kRelative}) {
        const std::vector<CallCheck> checks = checks_of(*graph, x, call, fault);
        ++seeded;
        found += checks[call].is_wrong() ? 1 : 0;
        EXPECT_TRUE(checks[call].is_wrong())
            << "fault " << static_cast<int>(fault) << ": " << to_string(checks[call]);
        for (size_t i = 0; i < checks.size(); ++i) {
          EXPECT_EQ(checks[i].is_wrong(), i == call) << to_string(checks[i]);
        }
      }
    }
  }
  EXPECT_EQ(found, seeded);
}

INSTANTIATE_TEST_SUITE_P(Devices, CallVerifierTest,
                         ::testing::Combine(::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                                            ::testing::Values(DType::kFloat64, DType::kFloat32,
                                                              DType::kFloat16, DType::kBFloat16)),
                         [](const auto& given) {
                           return fmt::format("{}_{}",
                                              std::get<0>(given.param) == DeviceType::kCpu ? "cpu" : "cuda",
                                              std::get<1>(given.param));
                         });

}  // namespace
}  // namespace sinter::passes
