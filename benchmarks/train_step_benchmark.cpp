// Training steps on synthetic data: forward, loss, backward and SGD with momentum of ResNet-18 for 32x32
// images (batch 512) and of ResNet-50 (batch 256). With --profile also where the GPU time of a step goes.
#include <algorithm>
#include <cstring>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/sgd.h>

#include "common/gpu_bench.h"
#include "common/op_profile.h"

using namespace sinter;

namespace {

struct Problem {
  const char* name;
  int64_t batch, size, classes;
  nn::ResNet (*make)(const nn::ResNetOptions&);
};

constexpr Problem kResNet18{"resnet18_cifar batch 512", 512, 32, 10, nn::resnet18};
constexpr Problem kResNet50{"resnet50 batch 256", 256, 224, 1000, nn::resnet50};

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

/// One model in training.
class Training {
 public:
  Training(const Problem& problem, const Precision& precision, Layout layout)
      : model_(
            problem.make({.classes = problem.classes, .layout = layout, .small_stem = problem.size <= 64})),
        sgd_(groups(model_, precision), {.momentum = 0.9, .weight_decay = 5e-5}),
        has_scaler_(precision.dtype == DType::kFloat16),
        images_(bench::normal_tensor(layout == Layout::kNCHW
                                         ? Shape{problem.batch, 3, problem.size, problem.size}
                                         : Shape{problem.batch, problem.size, problem.size, 3},
                                     precision.dtype)) {
    Generator generator(7);
    std::vector<int64_t> labels(static_cast<size_t>(problem.batch));
    for (int64_t& label : labels)
      label = static_cast<int64_t>(generator.below(static_cast<uint64_t>(problem.classes)));
    labels_ = Tensor::from_values(labels, {problem.batch}, bench::gpu());
  }

  Tensor step() {
    const Tensor loss = nn::CrossEntropy{}(model_(images_), labels_);
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
  static std::vector<nn::ParameterGroup> groups(const nn::ResNet& model, const Precision& precision) {
    model.to(bench::gpu());
    if (precision.dtype != DType::kFloat32) model.to_mixed(precision.dtype);
    return nn::decay_groups(model.parameters());
  }

  nn::ResNet model_;
  nn::Sgd sgd_;
  bool has_scaler_;
  nn::GradScaler scaler_;
  Tensor images_, labels_;
};

void measure(bench::Report& report, const Problem& problem, const Precision& precision, Layout layout,
             bool profile) {
  const std::string layout_name(to_string(layout));
  if (!report.wants("train_step", problem.name, precision.name, layout_name)) return;
  settings::set_allow_tf32(precision.tf32);
  manual_seed(1);
  MemoryPool& pool = backend_of(bench::gpu()).memory_pool(bench::gpu().index);
  pool.trim();
  Training training(problem, precision, layout);
  for (int i = 0; i < 3; ++i) training.step();  // chooses plans
  synchronize(bench::gpu());
  pool.reset_peaks();
  const double one_us = bench::time_stream([&] { training.step(); }, 1, 1);
  const int calls = std::clamp(static_cast<int>(kRunUs / one_us), 3, report.quick() ? 5 : 20);
  const double us = bench::time_stream([&] { training.step(); }, calls, 5);
  const double host_us = bench::host_us_per_call([&] { training.step(); }, 1, 9);
  // Compiled PyTorch is measured as people use it.
  const bool is_half = precision.dtype != DType::kFloat32;
  const std::string peer = is_half && layout == Layout::kNHWC ? "torch_compile" : "torch_eager";
  const PoolStats stats = pool.stats();
  report.add({.suite = "train_step",
              .name = problem.name,
              .dtype = precision.name,
              .layout = layout_name,
              .target_speedup = {{peer, 1.0}},
              .img_s = static_cast<double>(problem.batch) / us * 1e6,
              .figures = {{"ms", us / 1e3},
                          {"host_ms", host_us / 1e3},
                          {"peak_gib", static_cast<double>(stats.peak_live_bytes) / 0x1p30},
                          {"reserved_gib", static_cast<double>(stats.peak_reserved_bytes) / 0x1p30},
                          {"loss", training.step().item()}}});
  if (profile) fmt::print("{}\n", bench::profile_ops([&] { training.step(); }));
}

void run(bench::Report& report, bool profile) {
  for (const Problem& problem : {kResNet18, kResNet50}) {
    for (const Precision& precision : kPrecisions) {
      for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
        if (precision.dtype == DType::kBFloat16 && layout == Layout::kNCHW) continue;  // as float16 there
        measure(report, problem, precision, layout, profile);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  // --profile is this program's own.
  char** const end = argv + argc;
  char** const rest =
      std::remove_if(argv + 1, end, [](const char* a) { return std::strcmp(a, "--profile") == 0; });
  const bool profile = rest != end;
  return bench::run_program(static_cast<int>(rest - argv), argv,
                            [profile](bench::Report& report) { run(report, profile); });
}
