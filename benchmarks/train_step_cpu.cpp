// Training steps on the CPU on synthetic data, as a job: the networks of cases.json's "train_step_cpu".
// train_step_cpu.py runs this in turns with PyTorch.
//
// Usage: train_step_cpu CASE PRECISION LAYOUT [BATCH] [--profile]
// CASE as cases.json names it, PRECISION float32 or mixed_bf16, LAYOUT NCHW or NHWC. For each number n on a
// line of standard input it trains n steps and answers a line: "wall seconds, seconds of the processor,
// loss". With --profile it tells where the time of three steps goes instead.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>

#include <sys/resource.h>

#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/optim/parameter_groups.h>
#include <sinter/nn/optim/sgd.h>

#include "common/networks.h"

using namespace sinter;

namespace {

struct Options {
  bench::NetworkCase problem;
  bool mixed = false;
  Layout layout = Layout::kNHWC;
};

Options parse(int argc, char** argv) {
  SINTER_CHECK(argc >= 4, "[bench] expected CASE PRECISION LAYOUT [BATCH] [--profile]");
  Options options;
  const std::string wanted = argv[1], precision = argv[2], layout = argv[3];
  for (const bench::NetworkCase& problem : bench::network_cases("train_step_cpu")) {
    if (problem.name == wanted) options.problem = problem;
  }
  SINTER_CHECK(!options.problem.name.empty(), "[bench] expected a case of cases.json but got '{}'", wanted);
  SINTER_CHECK(precision == "float32" || precision == "mixed_bf16",
               "[bench] expected float32 or mixed_bf16 but got '{}'", precision);
  SINTER_CHECK(layout == "NCHW" || layout == "NHWC", "[bench] expected NCHW or NHWC but got '{}'", layout);
  options.mixed = precision == "mixed_bf16";
  options.layout = layout == "NCHW" ? Layout::kNCHW : Layout::kNHWC;
  if (argc > 4 && argv[4][0] != '-') options.problem.batch = std::stoll(argv[4]);
  return options;
}

class Training {
 public:
  explicit Training(const Options& options)
      : network_(make_network(options)),
        sgd_(nn::parameter_groups(*network_, {}, {.decay_vectors = false}),
             {.momentum = 0.9, .weight_decay = 5e-5}),
        job_(*network_, sgd_,
             [this](std::span<const Tensor> inputs) {
               return std::vector<Tensor>{(*network_)(inputs[0], inputs[1])};
             },
             {.precision = options.mixed ? std::optional(DType::kBFloat16) : std::nullopt,
              .layout = options.layout}),
        images_(make_images(options)),
        labels_(bench::make_labels(options.problem, Device::cpu())) {}

  double step() { return job_.step(images_, labels_, 0.01).item(); }

 private:
  static std::unique_ptr<bench::TrainNetwork> make_network(const Options& options) {
    auto network = bench::make_trained(options.problem);
    network->to(options.layout);
    return network;
  }
  static Tensor make_images(const Options& options) {
    const bench::NetworkCase& problem = options.problem;
    const Shape shape = options.layout == Layout::kNCHW ? Shape{problem.batch, 3, problem.size, problem.size}
                                                        : Shape{problem.batch, problem.size, problem.size, 3};
    return Tensor::randn(shape, {.dtype = options.mixed ? DType::kBFloat16 : DType::kFloat32});
  }

  std::unique_ptr<bench::TrainNetwork> network_;
  nn::SGD sgd_;
  nn::TrainJob job_;
  Tensor images_, labels_;
};

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void profile(Training& training) {
  OpProfile profile({.by_shape = true, .by_scope = false});
  for (int i = 0; i < 3; ++i) training.step();
  profile.stop();
  fmt::print("{}", profile.table({.by_scope = false}));
  fmt::print("{}", profile.table({.max_rows = 60}));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    manual_seed(1);
    Training training(options);
    for (int i = 0; i < 2; ++i) training.step();
    if (std::strcmp(argv[argc - 1], "--profile") == 0) {
      profile(training);
      return 0;
    }
    fmt::print("ready\n");
    std::fflush(stdout);
    int steps = 0;
    while (std::cin >> steps) {
      const double wall = wall_seconds(), processor = processor_seconds();
      double loss = 0;
      for (int i = 0; i < steps; ++i) loss = training.step();
      fmt::print("{} {} {}\n", wall_seconds() - wall, processor_seconds() - processor, loss);
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_step_cpu: {}\n", error.what());
    return 1;
  }
}
