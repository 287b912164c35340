// Program on a GPU: stretches of calls are captured, those that put work on other streams stand between them.
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/operators.h>

namespace sinter {
namespace {

/// y = relu(x + 1) * 3, with a sum over the ranks of a job begun behind the first op and ended before the
/// last.
std::unique_ptr<Program> make_program(const TensorSpec& spec, const Communicator& ranks, bool capture) {
  auto graph = std::make_unique<Graph>();
  Tracer tracer(*graph);
  const Tensor x = tracer.tensor(graph->add_input(spec, "x"));
  const Tensor moved = x + 1.0;
  const std::vector<Tensor> parts = {moved};
  const Tensor begun = ops::update::begin_all_reduce(parts, ranks);
  const Tensor beside = ops::relu(x);
  const Tensor sums = ops::update::end_all_reduce(begun, parts, ranks);
  graph->add_output(tracer.use_of(ops::relu(sums) * 3.0));
  graph->add_output(tracer.use_of(beside));
  return std::make_unique<Program>(std::move(graph), spec.device, ProgramOptions{.capture = capture});
}

TEST(ProgramCuda, SumsOverRanksStandBetweenCapturedStretches) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu)) GTEST_SKIP() << "needs a GPU";
  const auto ranks = Communicator::join(ProcessEnvironment{}, {.device = gpu});
  const TensorSpec spec{Shape{64}, DType::kFloat32, gpu};
  const auto captured = make_program(spec, *ranks, true), plain = make_program(spec, *ranks, false);
  for (int run = 0; run < 5; ++run) {
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) values.push_back(static_cast<float>((i * 7 + run * 13) % 19) - 9.0f);
    const Tensor x = Tensor::from_values(values, spec.shape, gpu);
    const std::vector<Tensor> got = captured->run({&x, 1}), expected = plain->run({&x, 1});
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i].to_vector<float>(), expected[i].to_vector<float>())
          << "output " << i << ", run " << run;
    EXPECT_EQ(got[0].to_vector<float>()[3], 3.0f * std::max(values[3] + 1.0f, 0.0f));
  }
  EXPECT_EQ(captured->stats().launches, 3u);  // x + 1; relu(x); the rest
  EXPECT_EQ(plain->stats().launches, 0u);
  EXPECT_EQ(captured->progress().done.size(), captured->stats().calls);
}

// What ranks exchange on the way is made between two graphs too: captured, NCCL would make branches of them.
TEST(ProgramCuda, ExchangesStandBetweenCapturedStretches) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu)) GTEST_SKIP() << "needs a GPU";
  const auto ranks = Communicator::join(ProcessEnvironment{}, {.device = gpu});
  auto graph = std::make_unique<Graph>();
  Tracer tracer(*graph);
  const TensorSpec spec{Shape{64}, DType::kFloat32, gpu};
  const Tensor all = ops::all_gather(tracer.tensor(graph->add_input(spec, "x")) + 1.0, *ranks);
  graph->add_output(tracer.use_of(ops::reduce_scatter(ops::relu(all), *ranks) * 3.0));
  Program program(std::move(graph), gpu);
  std::vector<float> values, expected;
  for (int i = 0; i < 64; ++i) {
    values.push_back(static_cast<float>(i % 19) - 9.0f);
    expected.push_back(3.0f * std::max(values.back() + 1.0f, 0.0f));
  }
  const Tensor x = Tensor::from_values(values, spec.shape, gpu);
  for (int run = 0; run < 4; ++run) EXPECT_EQ(program.run({&x, 1})[0].to_vector<float>(), expected) << run;
  EXPECT_EQ(program.stats().launches, 3u);  // x + 1; relu; the product
  EXPECT_FALSE(program.is_launched_alone()) << "other ranks would wait for a run that was not asked for";
}

}  // namespace
}  // namespace sinter
