// SINTER_VERIFY=deep in jobs: sound networks raise no alarm, and the report shows every call.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/temporary_folder.h"
#include "nn/job/random_job_support.h"
#include "passes/damaged_call.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// "  calls in float64: 0 wrong of 57, 3 not checked" of a report.
struct Counts {
  size_t wrong = 0, calls = 0, unchecked = 0;
};
Counts counts_of(const std::string& report) {
  const size_t at = report.find("calls in float64: ");
  Counts counts;
  if (at == std::string::npos ||
      std::sscanf(report.c_str() + at, "calls in float64: %zu wrong of %zu, %zu not checked", &counts.wrong,
                  &counts.calls, &counts.unchecked) != 3)
    ADD_FAILURE() << "no call was checked\n" << report;
  return counts;
}

class DeepVerify : public RandomJob {};

TEST_P(DeepVerify, SoundRandomNetworksRaiseNoAlarm) {
  Counts all;
  std::string alarms;  // of all networks: one does not hide those behind it
  for_cases(test::random_cases(12), DType::kFloat32, [&](const Case& c) {
    std::optional<DType> precision;
    if (c.seed % 2 == 0) precision = DType::kBFloat16;
    const Outcome outcome = train_by_job(c, any_training(c.seed),
                                         {.precision = precision,
                                          .layout = layout_of_case(c.seed),
                                          .passes = {.verify = false, .verify_calls = true}});
    const Counts counts = counts_of(outcome.report);
    if (counts.wrong > 0) alarms += fmt::format("seed {}\n{}\n", c.seed, outcome.report);
    all.wrong += counts.wrong;
    all.calls += counts.calls;
    all.unchecked += counts.unchecked;
    EXPECT_GT(counts.calls, 0u);
  });
  EXPECT_EQ(all.wrong, 0u) << alarms;
  EXPECT_LE(all.unchecked, all.calls / 20);
}

TEST_P(DeepVerify, FindsSeededFaultsInRandomNetworks) {
  using namespace passes::testing;
  int seeded = 0, found = 0;
  std::string missed;
  for_cases(test::random_cases(12), DType::kFloat32, [&](const Case& c) {
    const RandomNetwork network = make_network(c);
    const auto optimizer = plain_training().make_optimizer(network.parameters());
    TrainJob job(network, *optimizer,
                 [&](std::span<const Tensor> inputs) { return network(inputs[0], inputs[1]); });
    const std::vector<Tensor> batch = network.batch(c.seed);
    job.step(batch, 0.01);
    const Graph& graph = job.program().graph();
    ops::SampleMaker maker(c.seed + 5, DType::kFloat64);
    for (int i = 0; i < 4; ++i) {
      Program program(graph.clone(), c.device);
      passes::CallVerifier verifier(c.device);
      const auto call =
          static_cast<size_t>(maker.integer(0, static_cast<int64_t>(program.stats().calls) - 1));
      Damaged damaged(verifier, c.device, call, static_cast<Fault>(maker.integer(1, 4)));
      program.watch(&damaged);
      program.run(batch);
      if (!damaged.shows()) continue;
      ++seeded;
      const passes::CallCheck* const wrong = verifier.first_wrong();
      const bool is_it = wrong != nullptr && wrong->call == call;
      found += is_it ? 1 : 0;
      if (is_it) continue;
      missed += fmt::format("seed {}: {}\n", c.seed, passes::to_string(verifier.checks()[call]));
      if (wrong != nullptr) missed += fmt::format("  found {}\n", passes::to_string(*wrong));
    }
  });
  EXPECT_GT(seeded, 0);
  EXPECT_GE(found, 0.99 * seeded) << found << " of " << seeded << "\n" << missed;
  RecordProperty("seeded", seeded);
  RecordProperty("found", found);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeepVerify, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& given) {
                           return std::string(given.param == DeviceType::kCpu ? "cpu" : "cuda");
                         });

TEST(DeepVerifyJob, ChangesNothingAndIsShownInTheReport) {
  const auto train = [](const passes::PipelineOptions& passes, const std::filesystem::path& page) {
    manual_seed(5);
    const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8});
    SGD sgd(model.parameters(), {.momentum = 0.9});
    TrainJob job(model, CrossEntropyLoss{}, sgd, {.passes = passes});
    const Tensor x = floats({4, 3, 16, 16}, 1), y = labels(4, 10, 1);
    for (int i = 0; i < 2; ++i) job.step(x, y, 0.1);
    job.write_report(page);
    if (passes.verify_calls) {
      const Counts counts = counts_of(job.report());
      EXPECT_EQ(counts.wrong, 0u) << job.report();
      EXPECT_EQ(counts.unchecked, 0u) << job.report();
      EXPECT_EQ(counts.calls, job.program().stats().calls);
    }
    return model.state();
  };
  const sinter::testing::TemporaryFolder folder;
  const State plain = train({}, folder / "plain.html");
  const State checked = train({.verify_calls = true}, folder / "checked.html");
  EXPECT_EQ(differences(plain, checked), "");
  const auto has_section = [&](const char* name) {
    std::ifstream file(folder / name);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.find("<section id=\"checks\">") != std::string::npos;
  };
  EXPECT_FALSE(has_section("plain.html"));
  EXPECT_TRUE(has_section("checked.html"));
}

}  // namespace
}  // namespace sinter::nn
