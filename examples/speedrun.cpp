// speedrun: a small network learns CIFAR-10 as fast as it can, from a folder of pictures to its accuracy.
//
//   speedrun cifar10             # train/<class>/*.jpg and test/<class>/*.jpg, or CIFAR's binary files
//   speedrun cifar10 --runs 10   # mean and deviation of accuracy and time
//   speedrun cifar10 --whole     # counts from the start of the process
//   speedrun cifar10 --without lookahead --without crops   # what parts of the recipe bring
//
// The recipe is that of K. Jordan, "94% on CIFAR-10 in 3.29 seconds on a single GPU", 2024. docs/speedrun.md
// goes through it and tells what the runtime does. The network is in speedrun/network.h.
#include <cmath>
#include <future>
#include <numeric>

#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/slice/slice.h>

#include "common/console.h"
#include "common/text.h"
#include "common/timeline.h"
#include "run/program.h"
#include "speedrun/network.h"
#include "speedrun/options.h"

namespace speedrun {

using namespace sinter;
using examples::say;
using examples::Timeline;
using nn::data::DatasetTensors;

/// Windows of pictures, normalised; what lies beyond the border is mirrored.
Tensor crop(const Tensor& images, const Tensor& windows, Layout layout) {
  const nn::data::Normalization by = nn::data::cifar10_normalization();
  return ops::crop_images(images, windows,
                          {.height = 32, .width = 32, .layout = layout, .mean = by.mean, .std = by.std},
                          {.border = ops::PadMode::kReflect});
}

// ---- training and testing, on pictures that lie on the device

class Trainer {
 public:
  Trainer(const Options& options, Device device, const nn::data::DatasetPair& data)
      : options_(options),
        device_(device),
        steps_per_epoch_(data.train->size() / options.batch),
        steps_(static_cast<int64_t>(std::ceil(options.epochs * static_cast<double>(steps_per_epoch_)))),
        train_(room_for(data.train->size())),
        test_(room_for(data.test->size())),
        network_(options, data.train->num_classes(), device),
        optimizer_(groups(network_, options), {.momentum = 0.85, .nesterov = options.with("nesterov")}),
        job_(network_, optimizer_, [this](auto inputs) { return loss(inputs[0], inputs[1]); },
             {.precision = options.precision_on(device), .scaler = &no_scale_}),
        views_(network_, [this](auto inputs) { return sum_of_views(inputs[0]); },
               {.precision = options.precision_on(device)}),
        lookahead_(network_) {
    network_.to(device.is_cpu() ? Layout::kNCHW : Layout::kNHWC);
    if (steps_ == 0)
      throw Error(fmt::format("--batch {}: an epoch has only {}", options.batch,
                              examples::counted(data.train->size(), "picture")));
  }

  /// Makes the programs of a step, while the first layer's bias learns and afterwards, and runs them on black
  /// pictures until a GPU has each in one piece, so that no run waits for it.
  void prepare(Timeline& timeline) {
    const std::vector<Tensor> batch = {Tensor::zeros({options_.batch}, DType::kInt64, device_),
                                       windows(options_.batch, 0, false)};
    const auto each = [&](int steps) {
      for (const bool learns : {true, false}) {
        network_.whiten.bias.tensor().set_requires_grad(learns);
        if (steps == 0) job_.prepare(std::array{batch[0].spec(), batch[1].spec()});
        for (int i = 0; i < steps; ++i) job_.step(batch, 0.0);
      }
    };
    timeline.time("plans", [&] { each(0); });
    if (device_.is_cpu()) return;
    timeline.time("first steps", [&] { each(3), lookahead_.update(1.0), test(), test(); });
  }

  void take(const DatasetTensors& train, const DatasetTensors& test) {
    for (const auto& [to, from] : {std::pair(train_, train), std::pair(test_, test)}) {
      copy_async(to.images, from.images, current_stream(device_));
      copy_async(to.labels, from.labels, current_stream(device_));
    }
    synchronize(device_);
  }

  /// Trains a fresh network; gives the share of test pictures that it tells right.
  double run(uint64_t seed, const Tensor& images, Timeline& timeline) {
    manual_seed(seed);
    timeline.time("whitening", [&] { begin(images); });
    timeline.time("training", [&] { train(); });
    return timeline.time("evaluation", [&] { return test(); });
  }

 private:
  DatasetTensors room_for(int64_t count) const {
    return {Tensor::zeros({count, 32, 32, 3}, DType::kUInt8, device_),
            Tensor::zeros({count}, DType::kInt64, device_)};
  }

  /// What a step computes: it takes its pictures out of all of them, by number, and shows a window of each.
  std::vector<Tensor> loss(const Tensor& picks, const Tensor& windows) const {
    const Tensor logits =
        network_(crop(ops::index_select(train_.images, 0, picks), windows, network_.layout()));
    const double smoothing = options_.with("smoothing") ? 0.2 : 0.0;
    const nn::CrossEntropyLoss sum{.label_smoothing = smoothing, .reduction = nn::Reduction::kSum};
    return {sum(logits, ops::index_select(train_.labels, 0, picks))};
  }

  /// What a test computes: a picture is seen six times, straight and mirrored, in its place, which counts
  /// twice, and moved by a pixel to two corners.
  std::vector<Tensor> sum_of_views(const Tensor& images) const {
    const auto view = [&](int32_t shift, bool mirrored) {
      return network_(crop(images, windows(images.size(0), shift, mirrored), network_.layout()));
    };
    if (!options_.with("views")) return {view(0, false)};
    return {2 * (view(0, false) + view(0, true)) + view(-1, false) + view(-1, true) + view(1, false) +
            view(1, true)};
  }

  /// Windows (row, column, mirrored), all the same.
  Tensor windows(int64_t count, int32_t shift, bool mirrored) const {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < count; ++i) all.insert(all.end(), {shift, shift, mirrored});
    return Tensor::from_values(all, {count, 3}, device_);
  }

  /// A fresh network, in the tensors of the old one, whose first layer whitens 5,000 pictures of all classes.
  void begin(const Tensor& images) {
    network_.load_state(Network(options_, network_.head.weight.shape()[0]).state());
    const int64_t count = std::min<int64_t>(5000, images.size(0));
    std::vector<int64_t> picks;
    for (int64_t i = 0; i < count; ++i) picks.push_back(i * images.size(0) / count);
    const Tensor sample = crop(ops::index_select(images, 0, Tensor::from_values(picks, {count})),
                               Tensor::zeros({count, 3}, DType::kInt32), Layout::kNCHW);
    const Tensor filters = nn::init::whitening_filters(sample, 2, 2);
    if (options_.with("whitening")) network_.whiten.weight.assign(ops::concat({filters, -filters}, 0));
    optimizer_.reset();
    lookahead_.reset();
    mirrored_.clear();
  }

  /// The order of an epoch: its pictures, int64 (N), and their windows, int32 (N, 3). Every picture is
  /// mirrored in every other epoch, and shows another window in each.
  std::pair<Tensor, Tensor> draw(int64_t epoch) {
    const int64_t size = train_.labels.numel();
    Generator& random = default_generator();
    while (static_cast<int64_t>(mirrored_.size()) < size) mirrored_.push_back(random.below(2) == 1);
    // Page-locked memory, so that the host need not wait until it is copied.
    const Tensor picks = Tensor::empty_pinned({size}, DType::kInt64, device_);
    const Tensor windows = Tensor::empty_pinned({size, 3}, DType::kInt32, device_);
    int64_t* const pick = picks.data<int64_t>();
    int32_t* window = windows.data<int32_t>();
    std::iota(pick, pick + size, int64_t{0});
    for (int64_t i = 0; i < size; ++i) {
      std::swap(pick[i], pick[i + static_cast<int64_t>(random.below(static_cast<uint64_t>(size - i)))]);
      const auto place = options_.with("crops") ? static_cast<int32_t>(random.below(25)) : 12;
      *window++ = place / 5 - 2;
      *window++ = place % 5 - 2;
      *window++ = options_.with("mirror") && mirrored_[static_cast<size_t>(pick[i])] != (epoch % 2 == 1);
    }
    return {to_async(picks, device_), to_async(windows, device_)};
  }

  void train() {
    std::pair<Tensor, Tensor> order;
    for (int64_t step = 0; step < steps_; ++step) {
      const int64_t epoch = step / steps_per_epoch_, from = step % steps_per_epoch_ * options_.batch;
      if (from == 0) order = draw(epoch);
      network_.whiten.bias.tensor().set_requires_grad(epoch < 3 || !options_.with("freezing"));
      job_.step({ops::slice(order.first, 0, from, from + options_.batch),
                 ops::slice(order.second, 0, from, from + options_.batch)},
                learning_rate(step, steps_));
      if (options_.with("lookahead") && ((step + 1) % 5 == 0 || step + 1 == steps_))
        lookahead_.update(decay_of_lookahead(step + 1, steps_));
    }
    synchronize(device_);
  }

  double test() {
    const int64_t size = test_.labels.numel(), most = 2000;
    nn::TopKAccuracy counter(1);
    for (int64_t i = 0; i < size; i += most) {
      const int64_t end = std::min(i + most, size);
      counter.add(views_(ops::slice(test_.images, 0, i, end)), ops::slice(test_.labels, 0, i, end));
    }
    return static_cast<double>(counter.read()[0]) / static_cast<double>(size);
  }

  const Options options_;
  const Device device_;
  const int64_t steps_per_epoch_, steps_;
  const DatasetTensors train_, test_;
  Network network_;
  nn::SGD optimizer_;
  nn::GradScaler no_scale_{{.enabled = false}};
  nn::TrainJob job_;
  nn::InferJob views_;
  nn::Lookahead lookahead_;
  std::vector<bool> mirrored_;  // in even epochs
};

int speedrun(const Options& options) {
  Timeline timeline(options.whole ? examples::process_start() : Timeline::Clock::now());
  if (options.whole) timeline.add("process start", 0, timeline.now());
  const Device device = examples::choose_device(options.device);

  // The device starts while the folder is listed, and the pictures are decoded while the programs are made.
  auto started = std::async(std::launch::async, [&] {
    timeline.time("device", [&] { synchronize(Tensor::zeros({1}, DType::kFloat32, device).device()); });
  });
  const nn::data::DatasetPair data =
      timeline.time("listing", [&] { return nn::data::open_dataset(options.data); });
  const auto decode = [&] { return std::pair(to_tensors(*data.train), to_tensors(*data.test)); };
  auto decoded = std::async(std::launch::async, [&] { return timeline.time("decoding", decode); });
  started.get();
  Trainer trainer(options, device, data);
  trainer.prepare(timeline);
  const std::pair<DatasetTensors, DatasetTensors> pictures = decoded.get();
  for (const auto& [images, labels] : {pictures.first, pictures.second}) {
    if (images.shape() != Shape{labels.numel(), 32, 32, 3})
      throw Error(fmt::format("expected pictures of 32 x 32 pixels in colour but got {}", images.shape()));
  }
  timeline.time("upload", [&] { trainer.take(pictures.first, pictures.second); });
  std::vector<double> accuracies, seconds;
  for (int64_t run = 0; run < options.runs; ++run) {
    const double begin = timeline.now();
    accuracies.push_back(
        100 * trainer.run(static_cast<uint64_t>(options.seed + run), pictures.first.images, timeline));
    seconds.push_back(timeline.now() - begin);
    say("run {}: {:.2f} % in {:.2f} s\n", run + 1, accuracies.back(), seconds.back());
  }
  say("\nmean of {}: {} %; {} s\n", options.runs, examples::mean_and_deviation(accuracies),
      examples::mean_and_deviation(seconds));
  if (options.whole) say("whole process: {:.2f} s\n", timeline.now());
  say("\n{}", timeline.text());
  return 0;
}

}  // namespace speedrun

int main(int argc, char** argv) {
  return sinter::examples::run_program([&] {
    speedrun::Options options;
    if (const auto exit_code = speedrun::parse_options(argc, argv, options)) return *exit_code;
    return speedrun::speedrun(options);
  });
}
