// Training steps on synthetic data: forward, loss, backward and SGD with momentum of the networks in
// cases.json, eagerly and as a job. With --profile also where the GPU time of a step goes; with
// --loader the steps on batches from a loader with four workers, which copies them beside the steps.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/parameter_groups.h>
#include <sinter/nn/optim/sgd.h>

#include "common/gpu_bench.h"
#include "common/networks.h"
#include "common/op_profile.h"

using namespace sinter;

namespace {

using Problem = bench::NetworkCase;
using Network = bench::TrainNetwork;

constexpr double kRunUs = 0.5e6;  // wanted of one timed run

struct Precision {
  const char* name;
  DType dtype;  // of activations and of the weights that convolutions read
  bool tf32;
};

constexpr Precision kPrecisions[] = {{"mixed_f16", DType::kFloat16, false},
                                     {"mixed_bf16", DType::kBFloat16, false},
                                     {"tf32", DType::kFloat32, true},
                                     {"float32", DType::kFloat32, false}};

std::unique_ptr<Network> make_network(const Problem& problem, Layout layout) {
  std::unique_ptr<Network> network = bench::make_trained(problem);
  network->to(layout);
  network->to(bench::gpu());
  return network;
}

Tensor make_images(const Problem& problem, DType dtype, Layout layout) {
  return bench::normal_tensor(layout == Layout::kNCHW ? Shape{problem.batch, 3, problem.size, problem.size}
                                                      : Shape{problem.batch, problem.size, problem.size, 3},
                              dtype);
}

/// One model in training, eagerly.
class Training {
 public:
  Training(const Problem& problem, const Precision& precision, Layout layout)
      : network_(make_network(problem, layout)),
        sgd_(groups(*network_, precision), {.momentum = 0.9, .weight_decay = 5e-5}),
        has_scaler_(precision.dtype == DType::kFloat16),
        images_(make_images(problem, precision.dtype, layout)),
        labels_(bench::make_labels(problem, bench::gpu())) {}

  Tensor step() { return step(images_, labels_); }

  Tensor step(const Tensor& images, const Tensor& labels) {
    const Tensor loss = (*network_)(images, labels);
    sgd_.zero_grad();
    if (has_scaler_) {
      backward(scaler_.scale(loss));
      scaler_.step(sgd_, 0.01);
    } else {
      backward(loss);
      sgd_.step(0.01);
    }
    return loss.detach();
  }

 private:
  static std::vector<nn::ParameterGroup> groups(const Network& network, const Precision& precision) {
    if (precision.dtype != DType::kFloat32) network.to_mixed(precision.dtype);
    return nn::parameter_groups(network, {}, {.decay_vectors = false});
  }

  std::unique_ptr<Network> network_;
  nn::SGD sgd_;
  bool has_scaler_;
  nn::GradScaler scaler_;
  Tensor images_, labels_;
};

/// The same as a job, which brings precision and layout to a model that is written for `written_in`.
class JobTraining {
 public:
  JobTraining(const Problem& problem, const Precision& precision, Layout layout, Layout written_in,
              std::optional<size_t> memory_limit = {})
      : network_(make_network(problem, written_in)),
        sgd_(nn::parameter_groups(*network_, {}, {.decay_vectors = false}),
             {.momentum = 0.9, .weight_decay = 5e-5}),
        job_(
            *network_, sgd_,
            [this](std::span<const Tensor> inputs) {
              return std::vector<Tensor>{(*network_)(inputs[0], inputs[1])};
            },
            options(precision, layout, memory_limit)),
        images_(make_images(problem, precision.dtype, written_in)),
        labels_(bench::make_labels(problem, bench::gpu())) {}

  Tensor step() { return step(images_, labels_); }
  Tensor step(const Tensor& images, const Tensor& labels) { return job_.step(images, labels, 0.01); }
  const nn::TrainJob& job() const { return job_; }

 private:
  static nn::TrainJobOptions options(const Precision& precision, Layout layout,
                                     std::optional<size_t> memory_limit) {
    nn::TrainJobOptions options{.layout = layout, .memory_limit = memory_limit};
    if (precision.dtype != DType::kFloat32) options.precision = precision.dtype;
    return options;
  }

  std::unique_ptr<Network> network_;
  nn::SGD sgd_;
  nn::TrainJob job_;
  Tensor images_, labels_;
};

/// Makes a training with `make()` and measures its steps; `add_figures(training, row)` adds what belongs to
/// it.
template <class Make, class AddFigures>
void measure(bench::Report& report, const std::string& mode, const Problem& problem,
             const Precision& precision, Layout layout, bool profile, Make make, AddFigures add_figures) {
  const std::string layout_name(to_string(layout));
  if (!report.wants("train_step", problem.name, precision.name, layout_name, mode)) return;
  settings::set_allow_tf32(precision.tf32);
  manual_seed(1);
  Backend& backend = backend_of(bench::gpu());
  backend.workspace(current_stream(bench::gpu())).release();  // of cases before: a job has scratch of its own
  MemoryPool& pool = backend.memory_pool(bench::gpu().index);
  pool.trim();
  const auto start = std::chrono::steady_clock::now();
  auto training = make();
  for (int i = 0; i < 3; ++i) training.step();  // chooses plans
  synchronize(bench::gpu());
  const std::chrono::duration<double> until_third = std::chrono::steady_clock::now() - start;
  pool.reset_peaks();
  const double one_us = bench::time_stream([&] { training.step(); }, 1, 1);
  const int calls = std::clamp(static_cast<int>(kRunUs / one_us), 3, report.quick() ? 5 : 20);
  const double us = bench::time_stream([&] { training.step(); }, calls, 5);
  const double host_us = bench::host_us_per_call([&] { training.step(); }, 1, 9);
  // Compiled PyTorch is measured as people use it.
  const bool is_half = precision.dtype != DType::kFloat32;
  const std::string peer = is_half && layout == Layout::kNHWC ? "torch_compile" : "torch_eager";
  const PoolStats stats = pool.stats();
  bench::Row row{.suite = "train_step",
                 .name = problem.name,
                 .dtype = precision.name,
                 .layout = layout_name,
                 .mode = mode,
                 .target_speedup = {{peer, 1.0}},
                 .img_s = static_cast<double>(problem.batch) / us * 1e6,
                 .figures = {{"ms", us / 1e3},
                             {"host_ms", host_us / 1e3},
                             {"until_third_step_s", until_third.count()},
                             {"peak_gib", static_cast<double>(stats.peak_live_bytes) / 0x1p30},
                             {"reserved_gib", static_cast<double>(stats.peak_reserved_bytes) / 0x1p30},
                             {"loss", training.step().item()}}};
  add_figures(training, row);
  report.add(row);
  if (profile) fmt::print("{}\n", bench::profile_ops([&] { training.step(); }));
}

void measure_eager(bench::Report& report, const Problem& problem, const Precision& precision, Layout layout,
                   bool profile) {
  measure(
      report, "eager", problem, precision, layout, profile,
      [&] { return Training(problem, precision, layout); }, [](const Training&, bench::Row&) {});
}

/// Gives the bytes between the calls of a step; 0 if the case is not wanted.
size_t measure_job(bench::Report& report, const std::string& mode, const Problem& problem,
                   const Precision& precision, Layout layout, Layout written_in, bool profile,
                   std::optional<size_t> memory_limit = {}) {
  size_t bytes = 0;
  measure(
      report, mode, problem, precision, layout, profile,
      [&] { return JobTraining(problem, precision, layout, written_in, memory_limit); },
      [&](const JobTraining& training, bench::Row& row) {
        const ProgramStats& stats = training.job().program().stats();
        bytes = stats.arena_bytes;
        row.figures["calls"] = static_cast<double>(stats.calls);
        row.figures["launches"] = static_cast<double>(stats.launches);
        row.figures["arena_over_least"] =
            static_cast<double>(stats.arena_bytes) / static_cast<double>(stats.least_arena_bytes);
        if (profile) fmt::print("{}", training.job().report());
      });
  return bytes;
}

/// A job as it is, and for float16 under NHWC, if it is measured in full, one that turns the layout and two
/// in less memory.
void measure_jobs(bench::Report& report, const Problem& problem, const Precision& precision, Layout layout,
                  bool profile) {
  const size_t bytes = measure_job(report, "job", problem, precision, layout, layout, profile);
  if (!problem.in_full || layout != Layout::kNHWC || precision.dtype != DType::kFloat16) return;
  measure_job(report, "job that turns the layout", problem, precision, layout, Layout::kNCHW, profile);
  if (bytes == 0) return;
  measure_job(report, "job in 0.85 of its memory", problem, precision, layout, layout, profile,
              bytes / 100 * 85);
  measure_job(report, "job in the least memory", problem, precision, layout, layout, profile, 0);
}

// ---- beside a loader

/// A few batches of noise in the host's memory.
std::shared_ptr<const nn::data::Dataset> noise(const Problem& problem) {
  nn::data::MemoryDataset::Content content;
  content.height = content.width = problem.size;
  content.channels = 3;
  content.class_names.assign(static_cast<size_t>(problem.classes), "noise");
  const auto count = static_cast<size_t>(8 * problem.batch);
  content.pixels.resize(count * static_cast<size_t>(problem.size * problem.size * 3));
  Generator generator(11);
  for (uint8_t& pixel : content.pixels) pixel = static_cast<uint8_t>(generator.below(256));
  for (size_t i = 0; i < count; ++i) {
    content.labels.push_back(static_cast<int64_t>(generator.below(static_cast<uint64_t>(problem.classes))));
  }
  return std::make_shared<nn::data::MemoryDataset>(std::move(content));
}

/// Steps on a loader's batches; remembers how long next() took at most.
template <class Training>
class Loaded {
 public:
  template <class... Layouts>
  Loaded(const Problem& problem, const Precision& precision, Layout layout, Layouts... written_in)
      : training_(problem, precision, layout, written_in...),
        loader_(noise(problem), {.batch_size = problem.batch,
                                 .shuffle = true,
                                 .drop_last = true,
                                 .workers = 4,
                                 .device = bench::gpu(),
                                 .dtype = precision.dtype,
                                 .layout = layout,
                                 .transforms = {nn::data::random_crop(32, {.padding = 4}),
                                                nn::data::random_horizontal_flip()}}) {}

  void step() {
    const auto start = std::chrono::steady_clock::now();
    std::optional<nn::data::Batch> batch = loader_.next();
    if (!batch) batch = loader_.next();  // the next epoch
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    longest_next_us = std::max(longest_next_us, took.count());
    training_.step(batch->images, batch->labels);
  }

  double longest_next_us = 0;

 private:
  Training training_;
  nn::data::DataLoader loader_;
};

template <class Training, class... Layouts>
void measure_loaded(bench::Report& report, const std::string& mode, const Problem& problem,
                    const Precision& precision, Layout layout, Layouts... written_in) {
  const std::string layout_name(to_string(layout)), name = std::string(problem.name) + " beside a loader";
  if (!report.wants("train_step", name, precision.name, layout_name, mode)) return;
  settings::set_allow_tf32(precision.tf32);
  manual_seed(1);
  backend_of(bench::gpu()).memory_pool(bench::gpu().index).trim();
  Loaded<Training> training(problem, precision, layout, written_in...);
  for (int i = 0; i < 8; ++i) training.step();  // chooses plans, and every staging area has its memory
  synchronize(bench::gpu());
  training.longest_next_us = 0;
  const double one_us = bench::time_stream([&] { training.step(); }, 1, 1);
  const int calls = std::clamp(static_cast<int>(kRunUs / one_us), 3, report.quick() ? 5 : 20);
  const double us = bench::time_stream([&] { training.step(); }, calls, 5);
  const double host_us = bench::host_us_per_call([&] { training.step(); }, 1, 15);
  report.add({.suite = "train_step",
              .name = name,
              .dtype = precision.name,
              .layout = layout_name,
              .mode = mode,
              .img_s = static_cast<double>(problem.batch) / us * 1e6,
              .figures = {{"ms", us / 1e3},
                          {"host_ms", host_us / 1e3},
                          {"longest_next_ms", training.longest_next_us / 1e3}}});
}

void run_loaded(bench::Report& report) {
  for (const Problem& problem : bench::network_cases("train_step")) {
    if (!problem.in_full) continue;
    for (const Precision& precision : {kPrecisions[0], kPrecisions[3]}) {
      measure_loaded<Training>(report, "eager", problem, precision, Layout::kNHWC);
      measure_loaded<JobTraining>(report, "job", problem, precision, Layout::kNHWC, Layout::kNHWC);
    }
  }
}

/// What matters most comes first, in case --seconds ends it.
void run(bench::Report& report, bool profile) {
  const std::vector<Problem> problems = bench::network_cases("train_step");
  const Precision& main = kPrecisions[0];
  for (const Problem& problem : problems) measure_jobs(report, problem, main, Layout::kNHWC, profile);
  for (const Problem& problem : problems) measure_eager(report, problem, main, Layout::kNHWC, profile);
  for (const Problem& problem : problems) {
    if (!problem.in_full) continue;
    for (const Precision& precision : kPrecisions) {
      for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
        if (&precision == &main && layout == Layout::kNHWC) continue;
        if (precision.dtype == DType::kBFloat16 && layout == Layout::kNCHW) continue;  // as float16 there
        measure_eager(report, problem, precision, layout, profile);
        measure_jobs(report, problem, precision, layout, profile);
      }
    }
  }
}

/// Takes `option`, which is this program's own, out of the arguments. True if it was there.
bool take_option(int& argc, char** argv, const char* option) {
  char** const end = argv + argc;
  char** const rest =
      std::remove_if(argv + 1, end, [=](const char* a) { return std::strcmp(a, option) == 0; });
  argc = static_cast<int>(rest - argv);
  return rest != end;
}

}  // namespace

int main(int argc, char** argv) {
  const bool profile = take_option(argc, argv, "--profile"), loader = take_option(argc, argv, "--loader");
  return bench::run_program(argc, argv, [=](bench::Report& report) {
    if (loader) {
      run_loaded(report);
    } else {
      run(report, profile);
    }
  });
}
