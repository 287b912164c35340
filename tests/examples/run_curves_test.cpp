// What pictures show of runs: losses at their epochs, and time without pauses.
#include "curves/run_curves.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "common/temporary_folder.h"

namespace sinter::examples {
namespace {

using Points = std::vector<std::pair<double, double>>;

/// Two epochs of ten steps, a loss in the middle of each.
RunCurves a_run(const std::string& name, std::vector<double> starts = {}) {
  RunCurves run{.name = name, .starts = std::move(starts), .tags = {}, .epochs = {}, .time = {}};
  run.add({.step = 5, .time = 105, .values = {{"train/loss", 2}, {"train/learning_rate", 0.1}}});
  run.add({.step = 10, .time = 110, .values = {{"epoch", 1}, {"train/epoch_loss", 1.5}, {"test/loss", 1.8}}});
  run.add({.step = 15, .time = 1005, .values = {{"train/loss", 1}, {"train/learning_rate", 0.05}}});
  run.add(
      {.step = 20,
       .time = 1010,
       .values = {{"epoch", 2}, {"train/epoch_loss", 0.5}, {"test/loss", 0.8}, {"memory/peak_bytes", 1}}});
  return run;
}

TEST(RunCurves, StandOverEpochsStepsAndSeconds) {
  const RunCurves run = a_run("a", {100, 1000});
  const std::vector<nn::Chart> epochs = charts_of({&run, 1}, Over::kEpochs);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0].title, "Loss");
  EXPECT_EQ(epochs[0].x_label, "epoch (20 seconds in all)");
  ASSERT_EQ(epochs[0].curves.size(), 2u);
  EXPECT_EQ(epochs[0].curves[0].name, "train");
  EXPECT_EQ(epochs[0].curves[0].points, (Points{{1, 1.5}, {2, 0.5}}));
  EXPECT_EQ(epochs[0].curves[1].name, "test");
  EXPECT_EQ(epochs[1].title, "Learning rate");
  EXPECT_EQ(epochs[1].curves[0].points, (Points{{0.5, 0.1}, {1.5, 0.05}})) << "between epochs";
  EXPECT_EQ(charts_of({&run, 1}, Over::kSteps)[0].curves[0].points, (Points{{5, 2}, {15, 1}}));
  EXPECT_EQ(charts_of({&run, 1}, Over::kSeconds)[0].curves[0].points, (Points{{5, 2}, {15, 1}}))
      << "without the pause from 110 to 1000";
  EXPECT_EQ(a_run("a").seconds, 905.0) << "from the first record on, where no start was told";
}

TEST(RunCurves, OfSeveralRunsEachHasAColour) {
  const RunCurves runs[] = {a_run("one"), a_run("two")};
  const std::vector<nn::Chart> charts = charts_of(runs, Over::kEpochs);
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0].title, "Loss (training dashed)");
  ASSERT_EQ(charts[0].curves.size(), 4u);
  for (const nn::Curve& curve : charts[0].curves)
    EXPECT_EQ(curve.dashed, curve.points[0].second == 1.5) << curve.name;
  ASSERT_EQ(charts[1].curves.size(), 2u);
  EXPECT_EQ(charts[1].curves[0].name, "one");
  EXPECT_EQ(charts[1].curves[1].name, "two");
  EXPECT_FALSE(charts[1].curves[0].dashed);
}

TEST(RunCurves, OfFacesEachSetHasItsChartOrCurve) {
  RunCurves run{.name = "a", .starts = {}, .tags = {}, .epochs = {}, .time = {}};
  run.add({.step = 9, .time = 1, .values = {{"verify/lfw/accuracy", 0.9}, {"verify/lfw/auc", 1}}});
  run.add({.step = 9, .time = 2, .values = {{"verify/a/b/accuracy", 0.8}}});
  const std::vector<nn::Chart> one = charts_of({&run, 1}, Over::kSteps);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].title, "Verification accuracy");
  EXPECT_TRUE(one[0].percent);
  EXPECT_EQ(one[0].curves[0].name, "a/b");
  EXPECT_EQ(one[0].curves[1].name, "lfw");
  const RunCurves runs[] = {run, run};
  EXPECT_EQ(charts_of(runs, Over::kSteps)[1].title, "Verification accuracy: lfw");
  EXPECT_TRUE(std::isnan(charts_of({&run, 1}, Over::kEpochs)[0].curves[0].points[0].first)) << "no epoch yet";
}

TEST(RunCurves, AreReadWithTheirStarts) {
  const sinter::testing::TemporaryFolder folder;
  std::ofstream(folder / "scalars.jsonl") << R"({"step":1,"time":1763818200.0,"train/loss":1.0})"
                                          << "\n";
  for (const char* damaged :
       {"", "{", "[]", R"({"starts":7})", R"({"starts":[7,{"time":7},{"time":"noon"}]})"}) {
    std::ofstream(folder / "run.json") << damaged;
    EXPECT_EQ(read_curves(folder.path()).seconds, 0.0) << damaged;
  }
  std::ofstream(folder / "run.json") << R"({"starts":[{"time":"2025-11-22T13:29:54Z","step":0}]})";
  EXPECT_EQ(read_curves(folder.path()).seconds, 6.0);
}

}  // namespace
}  // namespace sinter::examples
