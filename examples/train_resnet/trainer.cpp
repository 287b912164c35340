#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <mutex>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/loss/loss.h>

#include "common/progress_bar.h"

namespace train_resnet {

using namespace sinter;
using nn::data::Dataset;

namespace {

volatile std::sig_atomic_t interrupted = 0;

// Steps before those that --profile times: by then memory is there and plans are chosen.
constexpr int64_t kFirstProfiled = 10;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// "12 MB" or "3.45 GB".
std::string format_bytes(size_t bytes) {
  const double count = static_cast<double>(bytes);
  return count < 1e9 ? fmt::format("{:.0f} MB", count / 1e6) : fmt::format("{:.2f} GB", count / 1e9);
}

/// Mean and deviation of each channel over (at most 5,000) images, scaled to [0, 1]. Sums of whole numbers,
/// so that threads do not change them.
nn::data::Normalization measure_normalization(const Dataset& dataset) {
  const int64_t count = std::min<int64_t>(dataset.size(), 5000);
  const auto channels = static_cast<size_t>(dataset.get(0).image.channels);
  std::vector<uint64_t> sum(channels), squares(channels);
  uint64_t pixels = 0;
  std::mutex mutex;
  parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> own_sum(channels), own_squares(channels);
    uint64_t own_pixels = 0;
    nn::data::Sample sample;
    for (int64_t i = begin; i < end; ++i) {
      dataset.read(i * dataset.size() / count, sample, {});
      const auto& bytes = sample.image.pixels;
      for (size_t j = 0; j < bytes.size(); ++j) {
        own_sum[j % channels] += bytes[j];
        own_squares[j % channels] += uint64_t{bytes[j]} * bytes[j];
      }
      own_pixels += bytes.size() / channels;
    }
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < channels; ++c) {
      sum[c] += own_sum[c];
      squares[c] += own_squares[c];
    }
    pixels += own_pixels;
  });
  nn::data::Normalization normalization{{}, {}};
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sum[c]) / static_cast<double>(pixels) / 255.0;
    const double square = static_cast<double>(squares[c]) / static_cast<double>(pixels) / (255.0 * 255.0);
    normalization.mean.push_back(static_cast<float>(mean));
    normalization.std.push_back(static_cast<float>(std::sqrt(std::max(square - mean * mean, 1e-6))));
  }
  return normalization;
}

nn::data::DataLoaderOptions train_loader_options(const Options& options, Device device, const Dataset& train,
                                                 const nn::data::Normalization& normalization) {
  nn::data::Transforms transforms;
  if (options.image_size > 0) {
    transforms.push_back(nn::data::random_resized_crop(options.image_size, options.image_size));
  } else if (*options.crop_padding > 0) {
    const bool reflect = *options.crop_mode == "reflect";
    transforms.push_back(nn::data::pad_crop(
        *options.crop_padding, reflect ? nn::data::PadMode::kReflect : nn::data::PadMode::kZero));
  }
  if (*options.flip) transforms.push_back(nn::data::random_horizontal_flip());
  return {.batch_size = std::min(*options.batch, train.size()),
          .shuffle = true,
          .drop_last = true,
          .seed = options.seed,
          .workers = options.workers,
          .device = device,
          .dtype = compute_dtype(options),
          .layout = *options.layout,
          .normalization = normalization,
          .transforms = transforms};
}

nn::data::DataLoaderOptions test_loader_options(const Options& options, Device device,
                                                const nn::data::Normalization& normalization) {
  nn::data::Transforms transforms;
  if (options.image_size > 0) {
    transforms.push_back(nn::data::resize_center_crop(options.image_size * 256 / 224, options.image_size));
  }
  return {.batch_size = 250,
          .workers = options.workers,
          .device = device,
          .dtype = compute_dtype(options),
          .layout = *options.layout,
          .normalization = normalization,
          .transforms = transforms};
}

nn::ResNet make_model(const Options& options, const Dataset& train) {
  const nn::data::Image image = train.get(0).image;
  const int64_t size = options.image_size > 0 ? options.image_size : image.height;
  const nn::CifarResNetOptions cifar{
      .classes = train.num_classes(), .in_channels = image.channels, .layout = *options.layout};
  const nn::ResNetOptions imagenet{.classes = train.num_classes(),
                                   .in_channels = image.channels,
                                   .layout = *options.layout,
                                   .small_stem = size <= 64};
  if (options.model == "resnet20") return nn::resnet20(cifar);
  if (options.model == "resnet32") return nn::resnet32(cifar);
  if (options.model == "resnet44") return nn::resnet44(cifar);
  if (options.model == "resnet56") return nn::resnet56(cifar);
  if (options.model == "resnet110") return nn::resnet110(cifar);
  if (options.model == "resnet18") return nn::resnet18(imagenet);
  if (options.model == "resnet34") return nn::resnet34(imagenet);
  if (options.model == "resnet50") return nn::resnet50(imagenet);
  if (options.model == "resnet101") return nn::resnet101(imagenet);
  return nn::resnet152(imagenet);
}

nn::Sgd make_sgd(const Options& options, const nn::ResNet& model) {
  const nn::SgdOptions sgd{.momentum = options.momentum,
                           .weight_decay = options.weight_decay,
                           .nesterov = options.nesterov && options.momentum > 0};
  if (options.decay_norms) return nn::Sgd(model.parameters(), sgd);
  return nn::Sgd(nn::decay_groups(model.parameters()), sgd);
}

nn::Schedule make_schedule(const Options& options, int64_t steps) {
  const double lr = *options.lr;
  const auto warmup = static_cast<int64_t>(options.warmup * static_cast<double>(steps));
  const int64_t rest = std::max<int64_t>(steps - warmup, 1);
  if (options.schedule == "one-cycle") {
    return nn::OneCycleSchedule{.peak = lr,
                                .steps = std::max<int64_t>(steps, 2),
                                .rising = options.warmup,
                                .anneal = nn::Anneal::kLinear};
  }
  if (options.schedule == "cosine") return nn::Warmup{nn::CosineSchedule{.base = lr, .steps = rest}, warmup};
  if (options.schedule == "polynomial")
    return nn::Warmup{nn::PolynomialSchedule{.base = lr, .steps = rest}, warmup};
  if (options.schedule == "step") {
    return nn::Warmup{nn::StepSchedule{.base = lr, .every = std::max<int64_t>(rest / 3, 1)}, warmup};
  }
  return nn::Warmup{[lr](int64_t) { return lr; }, warmup};
}

}  // namespace

void catch_interrupts() {
  const auto handler = [](int signal) {
    interrupted = 1;
    std::signal(signal, SIG_DFL);
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

Trainer::Trainer(const Options& options, Device device, std::shared_ptr<const Dataset> train,
                 std::shared_ptr<const Dataset> test)
    : options_(options),
      device_(device),
      normalization_(measure_normalization(*train)),
      train_loader_(train, train_loader_options(options, device, *train, normalization_)),
      test_loader_(std::move(test), test_loader_options(options, device, normalization_)),
      model_(make_model(options, *train)),
      sgd_(make_sgd(options, model_)),
      scaler_(nn::GradScaler::options_for(compute_dtype(options))),
      schedule_(make_schedule(options, *options.epochs * train_loader_.batches_per_epoch())) {
  settings::set_allow_tf32(*options.precision == "tf32");
  model_.to(device_);
  if (is_half(compute_dtype(options))) model_.to_mixed(compute_dtype(options));
  if (!options.checkpoints.empty())
    checkpoints_ = std::make_unique<nn::CheckpointFolder>(options.checkpoints);
  if (!options.load_weights.empty()) model_.load_state(nn::read_safetensors(options.load_weights).tensors);
}

bool Trainer::should_stop() const {
  return interrupted != 0 || (options_.max_steps > 0 && step_ >= options_.max_steps);
}

void Trainer::prepare() {
  const auto start = std::chrono::steady_clock::now();
  const Generator generator = default_generator();  // the copy's weights are not part of the run
  const Dataset& dataset = train_loader_.dataset();
  const nn::ResNet copy = make_model(options_, dataset);
  default_generator() = generator;
  copy.to(device_);
  if (is_half(compute_dtype(options_))) copy.to_mixed(compute_dtype(options_));
  const nn::data::Image image = dataset.get(0).image;
  const int64_t n = std::min(*options_.batch, dataset.size()), channels = image.channels;
  const int64_t height = options_.image_size > 0 ? options_.image_size : image.height;
  const int64_t width = options_.image_size > 0 ? options_.image_size : image.width;
  const Shape shape = *options_.layout == Layout::kNHWC ? Shape{n, height, width, channels}
                                                        : Shape{n, channels, height, width};
  const Tensor labels = Tensor::zeros({n}, DType::kInt64, device_);
  backward(nn::CrossEntropy{}(copy(Tensor::zeros(shape, compute_dtype(options_), device_)), labels));
  synchronize(device_);
  total_.prepare_seconds = seconds_since(start);
}

bool Trainer::train() {
  if (device_.is_cuda()) prepare();
  while (epoch_ < *options_.epochs) {
    if (should_stop() || !run_epoch()) {
      finish_profile();
      save();
      return false;
    }
    finish_profile();
    report_epoch(evaluate());
    ++epoch_;
    stats_ = {};
    if (options_.checkpoint_every == 0 || epoch_ == *options_.epochs) save();
  }
  return true;
}

bool Trainer::run_epoch() {
  model_.train();
  MemoryPool& pool = backend_of(device_).memory_pool(device_.index);
  pool.reset_peaks();
  if (stats_.images == 0) stats_.skipped_before = scaler_.skipped();
  // After a resume the bar shows the rest of the epoch, so that its speed and ETA are those of this process.
  const int64_t done_before = train_loader_.state().batch;
  examples::ProgressBar bar(fmt::format("epoch {}/{}", epoch_ + 1, *options_.epochs),
                            std::max<int64_t>(train_loader_.batches_per_epoch() - done_before, 1));
  double wait_before = train_loader_.wait_seconds(), shown_loss = 0.0;
  auto start = std::chrono::steady_clock::now();
  const auto take_time = [&] {
    const double seconds = seconds_since(std::exchange(start, std::chrono::steady_clock::now()));
    stats_.seconds += seconds;
    total_.seconds += seconds;
    total_.peak_bytes = std::max(total_.peak_bytes, pool.stats().peak_live_bytes);
  };
  while (const std::optional<nn::data::Batch> batch = train_loader_.next()) {
    const double learning_rate = schedule_(step_);
    profile_steps();
    train_step(*batch, learning_rate);
    ++step_;
    ++total_.steps;
    stats_.images += batch->size();
    total_.images += batch->size();
    const double wait = train_loader_.wait_seconds();
    stats_.wait_seconds += wait - wait_before;
    total_.wait_seconds += wait - std::exchange(wait_before, wait);
    if (bar.due()) shown_loss = checked_loss();
    take_time();
    const int64_t done = train_loader_.state().batch - done_before;
    bar.update(
        {.step = done, .items = done * batch->size(), .loss = shown_loss, .learning_rate = learning_rate});
    if (options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0) {
      save();
      start = std::chrono::steady_clock::now();
    }
    if (should_stop()) return false;
  }
  checked_loss();
  take_time();
  bar.finish();
  return true;
}

void Trainer::train_step(const nn::data::Batch& batch, double learning_rate) {
  const Tensor logits = model_(batch.images);
  const Tensor loss = nn::CrossEntropy{.label_smoothing = *options_.label_smoothing}(logits, batch.labels);
  stats_.loss.add(loss, static_cast<double>(batch.size()));
  stats_.ranks.add(logits, batch.labels);
  sgd_.zero_grad();
  backward(scaler_.scale(loss));
  scaler_.step(sgd_, learning_rate, {.clip = options_.clip});
}

double Trainer::checked_loss() const {
  const nn::DeviceMean::Totals totals = stats_.loss.read();
  scaler_.check(sgd_);
  // In float16 an overflow may happen: the scaler has skipped that step.
  if (totals.first_not_finite > 0 && !scaler_.options().scales) {
    throw Error(fmt::format("the loss of step {} was not finite; try a smaller --lr or a longer --warmup",
                            step_ - totals.values + totals.first_not_finite));
  }
  return totals.mean;
}

void Trainer::profile_steps() {
  if (options_.profile == 0) return;
  if (total_.steps == kFirstProfiled) profile_ = std::make_unique<OpProfile>();
  if (total_.steps == kFirstProfiled + options_.profile) finish_profile();
}

void Trainer::finish_profile() {
  if (profile_ == nullptr) return;
  profile_->stop();
  fmt::print("{} steps, op by op\n{}\n", total_.steps - kFirstProfiled, profile_->table());
  profile_.reset();
}

TestResult Trainer::evaluate() {
  const NoGrad no_grad;
  model_.eval();
  const Dataset& test = test_loader_.dataset();
  TestResult result{nn::ConfusionMatrix(test.num_classes(), test.class_names()), {}};
  nn::TopKCounter ranks(5);
  while (const std::optional<nn::data::Batch> batch = test_loader_.next()) {
    const Tensor logits = model_(batch->images);
    result.confusion.add(logits, batch->labels);
    ranks.add(logits, batch->labels);
  }
  if (test.num_classes() > 10) {
    const std::vector<int64_t> correct = ranks.read();
    result.top5 = static_cast<double>(correct[4]) / static_cast<double>(correct[5]);
  }
  return result;
}

void Trainer::report_epoch(const TestResult& test) const {
  const double images = static_cast<double>(stats_.images);
  const double compute = stats_.seconds - stats_.wait_seconds;
  const auto left = static_cast<int64_t>(stats_.seconds * static_cast<double>(*options_.epochs - epoch_ - 1));
  const PoolStats memory = backend_of(device_).memory_pool(device_.index).stats();
  std::string line = fmt::format("epoch {:>3}/{}  loss {:.4f}  train {:6.2f} %  test {:6.2f} %", epoch_ + 1,
                                 *options_.epochs, stats_.loss.read().mean,
                                 100.0 * static_cast<double>(stats_.ranks.read()[0]) / images,
                                 100.0 * test.confusion.accuracy());
  if (test.top5) line += fmt::format(" (top-5 {:.2f} %)", 100.0 * *test.top5);
  line += fmt::format("  {:.0f} img/s (computing {:.0f}, {:.0f} % waiting for data)  peak {}  {}:{:02} left",
                      images / stats_.seconds, images / std::max(compute, 1e-9),
                      100.0 * stats_.wait_seconds / stats_.seconds, format_bytes(memory.peak_live_bytes),
                      left / 60, left % 60);
  if (const int64_t skipped = scaler_.skipped() - stats_.skipped_before; skipped > 0) {
    line += fmt::format("  {} steps skipped, loss scale {}", skipped, scaler_.scale());
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Trainer::write_report(const TestResult* test) const {
  if (options_.report.empty()) return;
  nlohmann::ordered_json report = {{"model", options_.model},
                                   {"precision", *options_.precision},
                                   {"layout", to_string(*options_.layout)},
                                   {"device", fmt::format("{}", device_)},
                                   {"epochs", *options_.epochs},
                                   {"batch", *options_.batch},
                                   {"seed", options_.seed},
                                   {"complete", test != nullptr},
                                   {"steps", total_.steps},
                                   {"skipped_steps", scaler_.skipped()},
                                   {"seconds", total_.seconds},
                                   {"prepare_seconds", total_.prepare_seconds},
                                   {"wait_seconds", total_.wait_seconds},
                                   {"img_s", static_cast<double>(total_.images) / total_.seconds},
                                   {"peak_gib", static_cast<double>(total_.peak_bytes) / 0x1p30},
                                   {"accuracy", nullptr},
                                   {"top5", nullptr}};
  if (test != nullptr) report["accuracy"] = test->confusion.accuracy();
  if (test != nullptr && test->top5) report["top5"] = *test->top5;
  std::ofstream file(options_.report);
  file << report.dump(2) << "\n";
  if (!file.flush()) throw IoError(fmt::format("[report] cannot write {}", options_.report));
}

void Trainer::save() const {
  if (checkpoints_ == nullptr) return;
  const nn::data::DataLoaderState loader = train_loader_.state();
  const RandomKey key = default_generator().key();
  nn::CheckpointData data;
  data.tensors["model"] = model_.state();
  data.tensors["optimizer"] = sgd_.state();
  data.tensors["scaler"] = scaler_.state();
  data.tensors["epoch_loss"] = stats_.loss.state();
  data.tensors["epoch_ranks"] = stats_.ranks.state();
  data.values = {{"model", options_.model},
                 {"precision", *options_.precision},
                 {"epochs", *options_.epochs},
                 {"epoch", epoch_},
                 {"step", step_},
                 {"loader_epoch", loader.epoch},
                 {"loader_batch", loader.batch},
                 {"loader_seed", loader.seed},
                 {"loader_batch_size", loader.batch_size},
                 {"loader_dataset_size", loader.dataset_size},
                 {"random_seed", key.seed},
                 {"random_offset", key.offset},
                 {"epoch_images", stats_.images},
                 {"epoch_skipped_before", stats_.skipped_before},
                 {"epoch_seconds", stats_.seconds},
                 {"epoch_wait_seconds", stats_.wait_seconds}};
  checkpoints_->save(data);
}

bool Trainer::resume() {
  const auto latest = checkpoints_->latest();
  if (!latest) return false;
  const nn::CheckpointData data = nn::load_checkpoint(*latest);
  if (data.value<std::string>("model") != options_.model ||
      data.value<int64_t>("epochs") != *options_.epochs) {
    throw InvalidArgument(fmt::format("[resume] {} is of a run with --model {} --epochs {}", latest->string(),
                                      data.value<std::string>("model"), data.value<int64_t>("epochs")));
  }
  model_.load_state(data.tensors.at("model"));
  sgd_.load_state(data.tensors.at("optimizer"));
  // A run may go on in another precision: its weights and momenta are float32 in each.
  const bool same_precision = data.value<std::string>("precision") == *options_.precision;
  if (same_precision) scaler_.load_state(data.tensors.at("scaler"));
  train_loader_.restore({.epoch = data.value<int64_t>("loader_epoch"),
                         .batch = data.value<int64_t>("loader_batch"),
                         .seed = data.value<uint64_t>("loader_seed"),
                         .batch_size = data.value<int64_t>("loader_batch_size"),
                         .dataset_size = data.value<int64_t>("loader_dataset_size")});
  default_generator() =
      Generator(RandomKey{data.value<uint64_t>("random_seed"), data.value<uint64_t>("random_offset")});
  epoch_ = data.value<int64_t>("epoch");
  step_ = data.value<int64_t>("step");
  stats_ = {};
  stats_.images = data.value<int64_t>("epoch_images");
  stats_.skipped_before = same_precision ? data.value<int64_t>("epoch_skipped_before") : 0;
  stats_.seconds = data.value<double>("epoch_seconds");
  stats_.wait_seconds = data.value<double>("epoch_wait_seconds");
  stats_.loss.load_state(data.tensors.at("epoch_loss"));
  stats_.ranks.load_state(data.tensors.at("epoch_ranks"));
  fmt::print("resumed {} at step {}\n", latest->string(), step_);
  return true;
}

}  // namespace train_resnet
