// One rank of a data-parallel training on synthetic data; scaling.py starts as many as there are GPUs, each
// of which sees its own GPU alone. Rank 0 prints one line of JSON: images per second of all ranks together.
//
// usage: scaling_benchmark CASE [--steps N] [--profile]      CASE: of suite "scaling" in cases.json
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/optim/parameter_groups.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/parallel/data_parallel.h>

#include "common/gpu_bench.h"
#include "common/networks.h"

using namespace sinter;

namespace {

constexpr int kWarmUp = 20, kRuns = 7;

struct Options {
  std::string name = "resnet50 batch 256";
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
      options.name = argv[i];
    }
  }
  return options;
}

bench::NetworkCase case_of(const std::string& name) {
  for (const bench::NetworkCase& problem : bench::network_cases("scaling")) {
    if (problem.name == name) return problem;
  }
  throw_error<InvalidArgument>("[bench] no case '{}' of suite scaling in cases.json", name);
}

/// What a rank trains; faces with the centres of people divided among the ranks.
class Training {
 public:
  virtual ~Training() = default;
  virtual void step() = 0;
  virtual void check() const = 0;  ///< that all ranks have the same weights
  virtual std::string report() const = 0;
};

nn::TrainJobOptions job_options(const Communicator& ranks) {
  return {.precision = DType::kFloat16, .layout = Layout::kNHWC, .communicator = &ranks};
}

Tensor make_images(const bench::NetworkCase& problem, const Communicator& ranks) {
  return bench::normal_tensor({problem.batch, problem.size, problem.size, 3}, DType::kFloat16,
                              1 + static_cast<uint64_t>(ranks.rank()));
}

class Classifying final : public Training {
 public:
  Classifying(const bench::NetworkCase& problem, const Communicator& ranks)
      : ranks_(ranks),
        network_(on_gpu(problem)),
        sgd_(nn::parameter_groups(*network_, {}, {.decay_vectors = false}),
             {.momentum = 0.9, .weight_decay = 5e-5}),
        job_(
            *network_, sgd_,
            [this](std::span<const Tensor> inputs) {
              return std::vector<Tensor>{(*network_)(inputs[0], inputs[1])};
            },
            job_options(ranks)),
        images_(make_images(problem, ranks)),
        labels_(bench::make_labels(problem, bench::gpu(), 7 + static_cast<uint64_t>(ranks.rank()))) {}
  void step() override { job_.step(images_, labels_, 0.01); }
  void check() const override { nn::check_parameters_equal(*network_, ranks_); }
  std::string report() const override { return job_.report(); }

 private:
  static std::unique_ptr<bench::TrainNetwork> on_gpu(const bench::NetworkCase& problem) {
    auto network = bench::make_trained(problem);
    network->to(Layout::kNHWC);
    network->to(bench::gpu());
    return network;
  }

  const Communicator& ranks_;
  std::unique_ptr<bench::TrainNetwork> network_;
  nn::SGD sgd_;
  nn::TrainJob job_;
  Tensor images_, labels_;
};

/// Draws the classes of every step anew, as training does, for other labels each time.
class Recognising final : public Training {
 public:
  Recognising(const bench::NetworkCase& problem, const Communicator& ranks)
      : ranks_(ranks),
        problem_(problem),
        centres_(on_gpu(problem, ranks)),
        network_(problem, centres_.head()),
        sgd_(nn::parameter_groups(network_, {}, {.decay_vectors = false}),
             {.momentum = 0.9, .weight_decay = 5e-5}),
        job_(
            network_, sgd_,
            [this](std::span<const Tensor> inputs) {
              return std::vector<Tensor>{network_(inputs[0], inputs[1])};
            },
            options(ranks)),
        images_(make_images(problem, ranks)),
        generator_(7 + static_cast<uint64_t>(ranks.rank())) {}
  void step() override {
    std::vector<int64_t> labels(static_cast<size_t>(problem_.batch));
    for (int64_t& label : labels)
      label = static_cast<int64_t>(generator_.below(static_cast<uint64_t>(problem_.classes)));
    job_.step(images_, centres_.sample(labels, sgd_), 0.01);
    centres_.update(sgd_);
  }
  void check() const override { nn::check_parameters_equal(network_, ranks_, apart()); }
  std::string report() const override { return job_.report(); }

 private:
  struct Network : bench::TrainNetwork {
    Network(const bench::NetworkCase& problem, const nn::MarginHead& head_of)
        : backbone(child("backbone", bench::make_network(problem))), head(child("head", head_of)) {
      to(Layout::kNHWC);
      to(bench::gpu());
    }
    Tensor forward(const Tensor& images, const Tensor& rows) const override {
      return head(backbone(images), rows);
    }
    nn::AnyModule backbone;
    nn::MarginHead head;
  };

  static nn::PartialFC on_gpu(const bench::NetworkCase& problem, const Communicator& ranks) {
    nn::PartialFC centres(512, problem.classes,
                          {.sample_rate = problem.sample_rate,
                           .min_classes = problem.batch * ranks.size(),
                           .communicator = &ranks});
    centres.to(bench::gpu());
    return centres;
  }
  std::vector<nn::Parameter> apart() const {
    if (ranks_.size() == 1) return {};
    return {network_.head.weight};
  }
  nn::TrainJobOptions options(const Communicator& ranks) const {
    nn::TrainJobOptions options = job_options(ranks);
    options.sharded = apart();
    return options;
  }

  const Communicator& ranks_;
  bench::NetworkCase problem_;
  nn::PartialFC centres_;
  Network network_;
  nn::SGD sgd_;
  nn::TrainJob job_;
  Tensor images_;
  Generator generator_;
};

std::unique_ptr<Training> make_training(const bench::NetworkCase& problem, const Communicator& ranks) {
  if (problem.task == bench::Task::kFaces) return std::make_unique<Recognising>(problem, ranks);
  return std::make_unique<Classifying>(problem, ranks);
}

void run(const Options& options) {
  const auto ranks = Communicator::join({.device = bench::gpu()});
  const bench::NetworkCase problem = case_of(options.name);
  manual_seed(1);
  const std::unique_ptr<Training> training = make_training(problem, *ranks);
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) training->step();
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
  training->check();
  if (ranks->rank() != 0) return;
  const double step = seconds[kRuns / 2] / options.steps;
  const double peak =
      static_cast<double>(backend_of(bench::gpu()).memory_pool(bench::gpu().index).stats().peak_live_bytes);
  fmt::print("{{\"case\": \"{}\", \"gpus\": {}, \"img_s\": {:.1f}, \"ms\": {:.4f}, \"peak_gib\": {:.3f}}}\n",
             problem.name, ranks->size(), static_cast<double>(ranks->size() * problem.batch) / step,
             step * 1e3, peak / 0x1p30);
  if (options.reports) fmt::print("{}", training->report());
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
