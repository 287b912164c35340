// What tests of jobs on random networks share: a network trained eagerly and by a job, what came of both, and
// how far apart that may be.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/passes/pipeline.h>

#include "common/test_cases.h"
#include "nn/job/job_test_support.h"
#include "nn/job/random_network.h"

namespace sinter::nn::testing {

/// A network, and where it lives.
struct Case {
  uint64_t seed;
  DType dtype;
  Device device;
  NetworkKind kind = NetworkKind::kAny;
};

inline RandomNetwork make_network(const Case& c) {
  return {c.seed, c.dtype, c.device, c.kind};
}

/// How a network is trained.
struct Training {
  int steps = 2;
  double learning_rate = 0.05;
  double clip = 0.0;
  bool averages = false;
  int accumulate = 1;
  std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter>&)> make_optimizer;
};

/// What came of it.
struct Outcome {
  std::vector<Tensor> results;  // of all steps
  State model, optimizer, average;
  uint64_t random_offset = 0;
  std::string report, graph;
};

inline Training any_training(uint64_t seed) {
  ops::SampleMaker maker(seed + 77, DType::kFloat64);
  Training training;
  training.clip = maker.chance(0.3) ? 0.5 : 0.0;
  training.averages = maker.chance(0.2);
  if (maker.chance(0.2)) training.accumulate = 2, training.steps = 4;
  switch (maker.integer(0, 3)) {
    case 0:
      training.make_optimizer = [](const auto& parameters) {
        return std::make_unique<AdamW>(parameter_groups(parameters, {}, {.decay_vectors = false}),
                                       AdamWOptions{.amsgrad = true});
      };
      break;
    case 1:
      training.make_optimizer = [](const auto& parameters) { return std::make_unique<RMSprop>(parameters); };
      break;
    default:
      training.make_optimizer = [](const auto& parameters) {
        return std::make_unique<SGD>(parameter_groups(parameters, {}, {.decay_vectors = false}),
                                     SGDOptions{.momentum = 0.9, .weight_decay = 1e-3});
      };
  }
  return training;
}

/// Gradients are what the weights lose in one such step.
inline Training plain_training() {
  return {.steps = 1, .learning_rate = 1.0, .make_optimizer = [](const auto& parameters) {
            return std::make_unique<SGD>(parameters);
          }};
}

inline Outcome finish(const RandomNetwork& network, const Optimizer& optimizer, const EMA* average,
                      Outcome outcome) {
  outcome.model = network.state();
  outcome.optimizer = optimizer.state();
  if (average != nullptr) outcome.average = average->state();
  outcome.random_offset = default_generator().key().offset;
  return outcome;
}

inline Outcome train_eagerly(const Case& c, const Training& training) {
  const RandomNetwork network = make_network(c);
  const auto optimizer = training.make_optimizer(network.parameters());
  std::unique_ptr<EMA> average;
  if (training.averages) average = std::make_unique<EMA>(network);
  Outcome outcome;
  manual_seed(c.seed);
  for (int i = 0; i < training.steps; ++i) {
    const std::vector<Tensor> batch = network.batch(c.seed + static_cast<uint64_t>(i));
    if (i % training.accumulate == 0) optimizer->zero_grad();
    const std::vector<Tensor> results = network(batch[0], batch[1]);
    for (const Tensor& result : results) outcome.results.push_back(result.detach().clone());
    backward(training.accumulate > 1 ? results[0] * (1.0 / training.accumulate) : results[0]);
    if (i % training.accumulate + 1 < training.accumulate) continue;
    const double rate = training.learning_rate / (1 + i);
    if (training.clip > 0.0) {
      optimizer->step(rate, clip_grad_norm(optimizer->parameters(), training.clip).factor);
    } else {
      optimizer->step(rate);
    }
    if (average != nullptr) average->update();
  }
  return finish(network, *optimizer, average.get(), std::move(outcome));
}

inline Outcome train_by_job(const Case& c, const Training& training, TrainJobOptions options) {
  const RandomNetwork network = make_network(c);
  if (options.precision) {
    network.to_mixed(*options.precision);  // which would make all buffers float32
    network.narrow_buffers();
  }
  const auto optimizer = training.make_optimizer(network.parameters());
  std::unique_ptr<EMA> average;
  if (training.averages) average = std::make_unique<EMA>(network);
  options.max_grad_norm = training.clip;
  options.ema = average.get();
  options.accumulate = training.accumulate;
  TrainJob job(
      network, *optimizer, [&](std::span<const Tensor> inputs) { return network(inputs[0], inputs[1]); },
      options);
  Outcome outcome;
  manual_seed(c.seed);
  for (int i = 0; i < training.steps; ++i) {
    const std::vector<Tensor> batch = network.batch(c.seed + static_cast<uint64_t>(i));
    outcome.results.push_back(job.step(batch, training.learning_rate / (1 + i)));
    outcome.results.insert(outcome.results.end(), job.outputs().begin(), job.outputs().end());
  }
  outcome.report = job.report();
  outcome.graph = job.program().graph().to_string();
  return finish(network, *optimizer, average.get(), std::move(outcome));
}

/// What a network gives in evaluation, in so many calls of a row, and the buffers that it leaves.
inline Outcome infer_eagerly(const Case& c, int calls) {
  const RandomNetwork network = make_network(c);
  const EvalMode eval(network);
  const NoGrad no_grad;
  Outcome outcome;
  for (int i = 0; i < calls; ++i) {
    const std::vector<Tensor> batch = network.batch(c.seed + static_cast<uint64_t>(i));
    for (const Tensor& result : network(batch[0], batch[1]))
      outcome.results.push_back(result.detach().clone());
  }
  outcome.model = network.state();
  return outcome;
}

inline Outcome infer_by_job(const Case& c, int calls, const InferJobOptions& options) {
  const RandomNetwork network = make_network(c);
  InferJob job(
      network, [&](std::span<const Tensor> inputs) { return network(inputs[0], inputs[1]); }, options);
  Outcome outcome;
  for (int i = 0; i < calls; ++i) {
    const std::vector<Tensor> results = job.run(network.batch(c.seed + static_cast<uint64_t>(i)));
    outcome.results.insert(outcome.results.end(), results.begin(), results.end());
  }
  outcome.report = job.report();
  outcome.graph = job.program().graph().to_string();
  outcome.model = network.state();
  return outcome;
}

inline std::string bit_differences(const Outcome& a, const Outcome& b) {
  std::string text;
  if (a.results.size() != b.results.size()) return "the number of results";
  for (size_t i = 0; i < a.results.size(); ++i) {
    if (!same_bits(a.results[i], b.results[i])) text += fmt::format("result {} ", i);
  }
  text += differences(a.model, b.model) + differences(a.optimizer, b.optimizer) +
          differences(a.average, b.average);
  if (a.random_offset != b.random_offset) text += "random numbers";
  return text;
}

// ---- within tolerance

inline std::vector<double> doubles(const Tensor& tensor) {
  return ops::reference_of(tensor.detach().to(Device::cpu())).values;
}

inline double largest(const std::vector<double>& values) {
  double most = 0.0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Where two arrays differ by more than `allowed`; NaN equals NaN.
inline std::string far_apart(const std::string& name, const std::vector<double>& a,
                             const std::vector<double>& b, double allowed) {
  if (a.size() != b.size()) return name + " has another size; ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) <= allowed || a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    return fmt::format("{} [{}]: {} and {}, allowed {}; ", name, i, a[i], b[i], allowed);
  }
  return {};
}

/// What a step changed in each variable: gradients, and the movement of buffers.
inline std::map<std::string, std::vector<double>> changes(const State& before, const State& after) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, value] : after) {
    std::vector<double> change = doubles(value);
    const std::vector<double> start = doubles(before.at(name));
    for (size_t i = 0; i < change.size(); ++i) change[i] -= start[i];
    all[name] = std::move(change);
  }
  return all;
}

/// How far the changes that eager code makes in float32 are from those in float64, at most.
inline double rounding_error(const Case& c, const State& start, const Outcome& in_float32,
                             const Training& training) {
  const Case exact_case{c.seed, DType::kFloat64, Device::cpu(), c.kind};
  const auto exact = changes(make_network(exact_case).state(), train_eagerly(exact_case, training).model);
  double error = 0.0;
  for (const auto& [name, values] : changes(start, in_float32.model)) {
    for (size_t i = 0; i < values.size(); ++i)
      error = std::max(error, std::abs(values[i] - exact.at(name)[i]));
  }
  return error;
}

/// Values and gradients that differ by more than `tolerance` times the largest of the same tensor. A
/// gradient that is small beside the others may be what is left of large terms, as of biases before a norm: a
/// hundredth of the tolerance is allowed on the largest of all, and twice what rounding is known to cost.
inline std::string value_differences(const State& start, const Outcome& a, const Outcome& b, double tolerance,
                                     double rounding = 0.0) {
  std::string text;
  for (size_t i = 0; i < a.results.size(); ++i) {
    const std::vector<double> expected = doubles(a.results[i]);
    text += far_apart(fmt::format("result {}", i), expected, doubles(b.results[i]),
                      tolerance * std::max(largest(expected), 1e-3));
  }
  const auto expected = changes(start, a.model), got = changes(start, b.model);
  double all = 1e-3;
  for (const auto& [name, values] : expected) all = std::max(all, largest(values));
  for (const auto& [name, values] : expected) {
    text +=
        far_apart(name, values, got.at(name), tolerance * (largest(values) + 0.01 * all) + 2.0 * rounding);
  }
  return text;
}

// ---- passes

inline std::vector<passes::Pass> all_passes() {
  std::vector<passes::Pass> all(passes::forward_passes().begin(), passes::forward_passes().end());
  all.insert(all.end(), passes::step_passes().begin(), passes::step_passes().end());
  return all;
}

/// Leaves out all passes but one.
inline passes::PipelineOptions only(const std::string& name) {
  passes::PipelineOptions options;
  for (const passes::Pass& pass : all_passes()) {
    if (pass.name != name) options.without.emplace_back(pass.name);
  }
  return options;
}

/// Whether a report says that the pass did something: that stands indented below its line.
inline bool has_done_something(const std::string& report, const std::string& pass) {
  const size_t at = report.find("\n    " + pass + " ");
  if (at == std::string::npos) return false;
  const std::string next = report.substr(report.find('\n', at + 1) + 1, 10);
  return next.starts_with("      ") && !next.starts_with("      not:");
}

/// Every pass must have done something in so many networks; some cannot here.
inline void expect_all_at_work(const std::map<std::string, int>& rewrites,
                               const std::vector<std::string>& idle) {
  for (const passes::Pass& pass : all_passes()) {
    const auto found = rewrites.find(pass.name);
    // Of one process there is nothing to sum: tests/processes has that pass.
    const bool may_idle =
        std::ranges::find(idle, pass.name) != idle.end() || std::string(pass.name) == "gradient_buckets";
    EXPECT_TRUE(may_idle || (found != rewrites.end() && found->second > 0)) << pass.name;
  }
}

/// The layout that the job turns a network to, if any.
inline std::optional<Layout> layout_of_case(uint64_t seed) {
  if (seed % 3 == 0) return std::nullopt;
  return seed % 3 == 1 ? Layout::kNHWC : Layout::kNCHW;
}

/// As little memory as the passes can do with.
inline constexpr std::optional<size_t> kLeast = 0;

inline double tolerance_of_case(DType dtype) {
  return dtype == DType::kFloat32 ? 2e-3 : 1e-9;
}

// ---- the tests

inline std::string describe(const Case& c, const std::string& graph) {
  std::string text = fmt::format("SINTER_TEST_SEED={}, {} on {}\n", c.seed, c.dtype, c.device);
  try {
    text += RandomNetwork(c.seed, c.dtype, Device::cpu(), c.kind).text();
  } catch (const Error& error) {
    text += error.what();
  }
  return text + graph;
}

class RandomJob : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::kCpu) return;
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
    settings::set_autotune(false);  // each shape is met once
  }

  DType dtype_of(uint64_t seed) const {
    return GetParam() == DeviceType::kCuda || seed % 4 == 3 ? DType::kFloat32 : DType::kFloat64;
  }

  /// Calls `check(case)` for a row of seeds, in one dtype or in the one that belongs to each; a failure ends
  /// the row.
  template <class Check>
  void for_cases(int count, std::optional<DType> dtype, Check&& check,
                 NetworkKind kind = NetworkKind::kAny) const {
    const uint64_t first = random_seed();
    for (int i = 0; i < count; ++i) {
      const uint64_t seed = first + static_cast<uint64_t>(i);
      const Case c{seed, dtype.value_or(dtype_of(seed)), Device{GetParam(), 0}, kind};
      try {
        check(c);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what() << "\n" << describe(c, {});
      }
      if (HasFailure()) return;
    }
  }

 private:
  const Deterministic deterministic_;
};

}  // namespace sinter::nn::testing
