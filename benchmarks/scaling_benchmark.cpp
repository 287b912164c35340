// One rank of a data-parallel training on synthetic data; scaling.py starts as many as there are GPUs, each
// of which sees its own GPU alone. Rank 0 prints one line of JSON: images per second of all ranks together.
//
// usage: scaling_benchmark NETWORK [--steps N] [--profile]
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/module/default_layout.h>
#include <sinter/nn/optim/parameter_groups.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/parallel/data_parallel.h>

#include "common/gpu_bench.h"
#include "common/train_networks.h"

using namespace sinter;

namespace {

constexpr int kWarmUp = 20, kRuns = 7;

struct Options {
  std::string network = "resnet50";
  int steps = 20;  ///< of a timed run
  bool reports = false;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--profile") == 0) {
      options.reports = true;
    } else if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      options.steps = std::max(1, std::stoi(argv[++i]));
    } else {
      options.network = argv[i];
    }
  }
  return options;
}

const bench::TrainProblem& problem_of(const std::string& name) {
  for (const bench::TrainProblem& problem : bench::train_problems()) {
    if (std::string(problem.name).starts_with(name + " ")) return problem;
  }
  throw InvalidArgument("no network '" + name + "'");
}

Tensor labels_of(const bench::TrainProblem& problem, int rank) {
  Generator generator(7 + static_cast<uint64_t>(rank));
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < problem.batch; ++i) {
    labels.push_back(static_cast<int64_t>(generator.below(static_cast<uint64_t>(problem.classes))));
  }
  return Tensor::from_values(labels, {problem.batch}, bench::gpu());
}

void run(const Options& options) {
  const auto ranks = Communicator::join({.device = bench::gpu()});
  const bench::TrainProblem& problem = problem_of(options.network);
  manual_seed(1);
  const nn::DefaultLayout layout(Layout::kNHWC);
  const std::unique_ptr<bench::TrainNetwork> network = problem.make(problem);
  network->to(bench::gpu());
  nn::broadcast_parameters(*network, *ranks);
  nn::SGD sgd(nn::parameter_groups(*network, {}, {.decay_vectors = false}),
              {.momentum = 0.9, .weight_decay = 5e-5});
  nn::TrainJob job(
      *network, sgd,
      [&](std::span<const Tensor> inputs) { return std::vector<Tensor>{(*network)(inputs[0], inputs[1])}; },
      {.precision = DType::kFloat16, .layout = Layout::kNHWC, .communicator = ranks.get()});
  const Tensor images = bench::normal_tensor({problem.batch, problem.size, problem.size, 3}, DType::kFloat16,
                                             1 + static_cast<uint64_t>(ranks->rank()));
  const Tensor labels = labels_of(problem, ranks->rank());
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) job.step(images, labels, 0.01);
    synchronize(bench::gpu());
  };
  steps(kWarmUp);
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    ranks->barrier();
    const auto start = std::chrono::steady_clock::now();
    steps(options.steps);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  nn::check_parameters_equal(*network, *ranks);
  if (ranks->rank() != 0) return;
  const double step = seconds[kRuns / 2] / options.steps;
  const double peak =
      static_cast<double>(backend_of(bench::gpu()).memory_pool(bench::gpu().index).stats().peak_live_bytes);
  fmt::print("{{\"case\": \"{}\", \"gpus\": {}, \"img_s\": {:.1f}, \"ms\": {:.4f}, \"peak_gib\": {:.3f}}}\n",
             problem.name, ranks->size(), static_cast<double>(ranks->size() * problem.batch) / step,
             step * 1e3, peak / 0x1p30);
  if (options.reports) fmt::print("{}", job.report());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(read_options(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "scaling_benchmark: {}\n", error.what());
    return 1;
  }
  return 0;
}
