// Random networks, trained eagerly and by jobs: without passes bit for bit alike, and with each pass; on the
// CPU mostly in float64, on a GPU, whose convolutions have no such kernels, in float32. SINTER_TEST_CASES and
// SINTER_TEST_SEED say how many and from which seed on.
#include "nn/job/random_job_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

INSTANTIATE_TEST_SUITE_P(Devices, RandomJob, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& given) { return given.param == DeviceType::kCpu ? "Cpu" : "Cuda"; });

TEST_P(RandomJob, WithoutPassesHasTheBitsOfEagerCode) {
  int finite = 0;
  const int count = test::random_cases(60);
  for_cases(count, {}, [&](const Case& c) {
    const Training training = any_training(c.seed);
    const Outcome eager = train_eagerly(c, training);
    const Outcome job = train_by_job(c, training, {.passes = {.without = {"all"}}});
    EXPECT_EQ(bit_differences(eager, job), "") << describe(c, job.graph);
    finite += std::isfinite(job.results[0].item());
  });
  if (HasFailure()) return;
  EXPECT_GE(finite, count * 9 / 10);
}

TEST_P(RandomJob, EveryPassKeepsTheMeaning) {
  std::map<std::string, int> rewrites;
  const int count = test::random_cases(25);
  for_cases(count, {}, [&](const Case& c) {
    const Training training = plain_training();
    const State start = make_network(c).state();
    const Outcome eager = train_eagerly(c, training);
    const double rounding = c.dtype == DType::kFloat32 ? rounding_error(c, start, eager, training) : 0.0;
    const auto compare = [&](const std::string& name, bool keeps_bits, const Outcome& job) {
      const std::string found =
          keeps_bits ? bit_differences(eager, job)
                     : value_differences(start, eager, job, tolerance_of_case(c.dtype), rounding);
      EXPECT_EQ(found, "") << "with " << name << "\n" << describe(c, job.graph);
    };
    const Outcome together = train_by_job(c, training,
                                          {.layout = layout_of_case(c.seed),
                                           .passes = {.verify = c.seed % 4 == 0},
                                           .memory_limit = c.seed % 2 == 0 ? kLeast : std::nullopt});
    compare("all passes", false, together);
    for (const passes::Pass& pass : all_passes())
      rewrites[pass.name] += has_done_something(together.report, pass.name);
    for (const passes::Pass& pass : all_passes()) {
      const Outcome job = train_by_job(c, training,
                                       {.layout = c.seed % 2 == 0 ? Layout::kNHWC : Layout::kNCHW,
                                        .passes = only(pass.name),
                                        .memory_limit = kLeast});
      compare(pass.name, pass.keeps_bits, job);
      rewrites[pass.name] += has_done_something(job.report, pass.name);
    }
  });
  if (HasFailure() || count < 25) return;
  // The others have a choice in 16 bit on a GPU only, or see no graphs with gradients.
  expect_all_at_work(rewrites, {"mixed_precision", "choose_norm_backend", "convolution_sums",
                                "fold_normalization", "fold_input_normalization", "fuse_convolution"});
}

/// The relative error of all changes together.
double distance(const State& start, const Outcome& a, const Outcome& b) {
  double error = 0.0, size = 0.0;
  const auto expected = changes(start, a.model), got = changes(start, b.model);
  for (const auto& [name, values] : expected) {
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(values[i] - got.at(name)[i], 2);
      size += std::pow(values[i], 2);
    }
  }
  return std::sqrt(error / std::max(size, 1e-12));
}

TEST_P(RandomJob, MixedPrecisionStaysNear) {
  // Single networks may be badly conditioned; a pass that is wrong shows in most.
  std::vector<double> losses, distances;
  std::map<std::string, int> rewrites;
  const int count = test::random_cases(25);
  for_cases(count, DType::kFloat32, [&](const Case& c) {
    const Training training = plain_training();
    const State start = make_network(c).state();
    const Outcome eager = train_eagerly(c, training);
    GradScaler scaler({.initial_scale = 64.0});
    const Outcome job = train_by_job(c, training,
                                     {.precision = DType::kFloat16,
                                      .layout = layout_of_case(c.seed),
                                      .scaler = &scaler,
                                      .passes = {.verify = c.seed % 4 == 0},
                                      .memory_limit = c.seed % 2 == 0 ? kLeast : std::nullopt});
    const double loss = eager.results[0].item();
    losses.push_back(std::abs(loss - job.results[0].item()) / (1.0 + std::abs(loss)));
    distances.push_back(distance(start, eager, job));
    rewrites["mixed_precision"] += has_done_something(job.report, "mixed_precision");
  });
  if (HasFailure()) return;
  std::ranges::sort(losses);
  std::ranges::sort(distances);
  EXPECT_LT(losses[losses.size() / 2], 0.002);
  EXPECT_LT(losses[losses.size() * 9 / 10], 0.02);
  EXPECT_LT(distances[distances.size() / 2], 0.01);
  EXPECT_LT(distances[distances.size() * 9 / 10], 0.1);
  EXPECT_EQ(rewrites["mixed_precision"], count);
}

TEST_P(RandomJob, EveryPassKeepsTheMeaningOfInference) {
  std::map<std::string, int> rewrites;
  const int count = test::random_cases(25), calls = 2;
  for_cases(count, {}, [&](const Case& c) {
    const State start = make_network(c).state();
    const Outcome eager = infer_eagerly(c, calls);
    const auto compare = [&](const std::string& name, bool keeps_bits, const InferJobOptions& options) {
      const Outcome job = infer_by_job(c, calls, options);
      const std::string found = keeps_bits ? bit_differences(eager, job)
                                           : value_differences(start, eager, job, tolerance_of_case(c.dtype));
      EXPECT_EQ(found, "") << "with " << name << "\n" << describe(c, job.graph);
      for (const passes::Pass& pass : all_passes())
        rewrites[pass.name] += has_done_something(job.report, pass.name);
    };
    compare("no passes", true, {.passes = {.without = {"all"}}});
    compare("all passes", false, {.layout = layout_of_case(c.seed), .passes = {.verify = true}});
    const Layout layout = c.seed % 2 == 0 ? Layout::kNHWC : Layout::kNCHW;
    for (const passes::Pass& pass : all_passes())
      compare(pass.name, pass.keeps_bits, {.layout = layout, .passes = only(pass.name)});
  });
  if (HasFailure() || count < 25) return;
  // The others have a choice in 16 bit on a GPU only, need gradients, or normalise with the batch's
  // statistics.
  expect_all_at_work(rewrites, {"mixed_precision", "choose_norm_backend", "convolution_sums", "sum_gradients",
                                "step_dead_code", "step_common_subexpressions", "recompute"});
}

}  // namespace
}  // namespace sinter::nn
