#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/nn/parallel/sync_batch_norm.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/unary/unary.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/stop.h"
#include "run/first_bad.h"
#include "run/processes.h"

namespace train_resnet {

using namespace sinter;
using examples::complain;
using examples::say;
using examples::stop_signal;
using nn::data::Dataset;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::optional<size_t> memory_limit(const Options& options) {
  if (options.memory_limit <= 0) return std::nullopt;
  return static_cast<size_t>(options.memory_limit * 0x1p30);
}

}  // namespace

Trainer::Trainer(const Options& options, Device device, const Data& data, const nn::ModelMetadata& metadata,
                 const std::optional<examples::WeightsFile>& weights, const Communicator& ranks)
    : options_(options),
      ranks_(ranks),
      device_(device),
      metadata_(metadata),
      train_loader_(data.train,
                    train_loader_options(options, device, *data.train, {metadata.mean, metadata.std}, ranks)),
      test_loader_(test_part(data.test, ranks),
                   test_loader_options(options, device, {metadata.mean, metadata.std})),
      model_(make_model(options, *data.train)),
      optimizer_(make_optimizer(options, model_)),
      scaler_(nn::GradScaler::options_for(compute_dtype(options))),
      schedule_(make_schedule(options, *options.epochs * steps_per_epoch())),
      timer_(device),
      test_images_(data.test->size()),
      data_name_(data.name),
      data_kind_(data.kind),
      test_fingerprint_(examples::fingerprint_text(*data.test)),
      damaged_(data.damaged) {
  if (steps_per_epoch() == 0) {
    throw InvalidArgument(fmt::format("--accumulate {}: an epoch has only {} batches", options.accumulate,
                                      train_loader_.batches_per_epoch()));
  }
  settings::set_allow_tf32(*options.precision == "tf32");
  model_.to(device_);
  if (is_half(compute_dtype(options))) model_.to_mixed(compute_dtype(options));
  if (!options.checkpoints.empty() && ranks.rank() == 0)
    checkpoints_ = std::make_unique<nn::CheckpointFolder>(options.checkpoints);
  // Before ranks take the weights of rank 0.
  if (weights) examples::load_weights(weights->source, weights->state, model_);
  if (options.ema > 0) {
    ema_ = std::make_unique<nn::EMA>(model_, nn::EMAOptions{.decay = options.ema, .warmup = true});
    averaged_.emplace(nn::clone(model_));
  }
  if (options.job) {
    job_ = std::make_unique<nn::TrainJob>(
        model_, nn::CrossEntropyLoss{.label_smoothing = *options.label_smoothing}, *optimizer_,
        nn::TrainJobOptions{.max_grad_norm = options.clip,
                            .scaler = &scaler_,
                            .ema = ema_.get(),
                            .communicator = &ranks,
                            .sync_batch_norm = options.sync_batch_norm,
                            .accumulate = static_cast<int>(options.accumulate),
                            .memory_limit = memory_limit(options)});
  } else {
    nn::broadcast_parameters(model_, ranks);
    if (ema_ != nullptr) nn::broadcast_parameters(ema_->averages(), ranks);
  }
}

bool Trainer::should_stop() const {
  return stopped_by_ != 0 || (options_.max_steps > 0 && step_ >= options_.max_steps);
}

void Trainer::take_requests(bool wait) {
  const examples::Requests requests = examples::agree_on_requests(ranks_, wait);
  stopped_by_ = requests.stop;
  save_asked_ = save_asked_ || requests.save;
}

void Trainer::choose_algorithms(const Shape& images) const {
  const Generator generator = default_generator();  // the copy's weights are not part of the run
  const nn::ResNet copy = make_model(options_, train_loader_.dataset());
  default_generator() = generator;
  copy.to(device_);
  if (is_half(compute_dtype(options_))) copy.to_mixed(compute_dtype(options_));
  const Tensor labels = Tensor::zeros({images[0]}, DType::kInt64, device_);
  backward(nn::CrossEntropyLoss{}(copy(Tensor::zeros(images, compute_dtype(options_), device_)), labels));
  synchronize(device_);
}

void Trainer::prepare() {
  const auto start = std::chrono::steady_clock::now();
  const Dataset& dataset = train_loader_.dataset();
  const nn::data::Image image = dataset.get(0).image;
  const int64_t n = std::min(*options_.batch, dataset.size()) / ranks_.size(), channels = image.channels;
  const int64_t height = options_.image_size > 0 ? options_.image_size : image.height;
  const int64_t width = options_.image_size > 0 ? options_.image_size : image.width;
  const Shape shape = *options_.layout == Layout::kNHWC ? Shape{n, height, width, channels}
                                                        : Shape{n, channels, height, width};
  if (job_ != nullptr) {
    model_.train();
    const TensorSpec labels{{n}, DType::kInt64, device_};
    const TensorSpec targets{{n, dataset.num_classes()}, compute_dtype(options_), device_};
    const TensorSpec specs[] = {{shape, compute_dtype(options_), device_},
                                options_.augmentation.mixes() ? targets : labels};
    job_->prepare(specs);
  } else if (device_.is_cuda()) {
    choose_algorithms(shape);
  }
  total_.prepare_seconds = seconds_since(start);
}

bool Trainer::train() {
  prepare();
  open_log();
  const bool is_complete = train_epochs();
  check_profile();
  return is_complete;
}

bool Trainer::train_epochs() {
  take_requests();
  while (epoch_ < *options_.epochs) {
    // A run may have been stopped while it tested what the epoch had reached.
    const bool whole = !should_stop() && (train_loader_.epoch() > epoch_ || run_epoch());
    finish_profile();
    const std::optional<TestResult> test = whole ? evaluate() : std::nullopt;
    if (test) {
      epoch_correct_ = rank_counts()[0];
      nn::check_parameters_equal(model_, ranks_);
      if (ema_ != nullptr) nn::check_parameters_equal(ema_->averages(), ranks_);
      report_epoch(*test);
      log_epoch(*test);
      keep_best(*test);
    }
    damaged_->tell();
    if (!test) {
      save();
      return false;
    }
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
  begin_step_log();
  // After a resume the bar shows the rest of the epoch, so that its speed and ETA are those of this process.
  const int64_t done_before = train_loader_.state().batch;
  const int64_t trained_batches = steps_per_epoch() * options_.accumulate;
  examples::ProgressBar bar(fmt::format("epoch {}/{}", epoch_ + 1, *options_.epochs),
                            std::max<int64_t>(trained_batches - done_before, 1));
  double shown_loss = 0.0;
  auto start = std::chrono::steady_clock::now();
  const auto take_time = [&] {
    const double seconds = seconds_since(std::exchange(start, std::chrono::steady_clock::now()));
    stats_.seconds += seconds;
    total_.seconds += seconds;
    total_.peak_bytes = std::max(total_.peak_bytes, pool.stats().peak_live_bytes);
  };
  int64_t done = done_before;
  while (const std::optional<nn::data::Batch> batch = next_batch()) {
    if (++done > trained_batches) continue;  // left over: they make no step
    const int64_t of_series = (done - 1) % options_.accumulate;
    const bool ends_step = of_series + 1 == options_.accumulate;
    const double learning_rate = schedule_(step_);
    if (of_series == 0) profile_steps();
    timer_.begin();
    train_batch(*batch, learning_rate, of_series == 0, ends_step);
    timer_.end();
    if (bar.due()) shown_loss = checked_loss();
    take_time();
    if (ends_step) log_step(learning_rate);
    const int64_t shown = done - done_before;
    bar.update({.step = shown,
                .items = shown * batch->size() * ranks_.size(),
                .loss = shown_loss,
                .learning_rate = learning_rate});
    if (!ends_step) continue;
    if (should_stop()) break;
    if (save_asked_ || (options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0)) {
      bar.finish();
      take_compute_time();
      take_time();
      if (step_log_) step_log_->finish();
      save();
      start = std::chrono::steady_clock::now();
    }
  }
  const bool whole = !should_stop() || train_loader_.epoch() > epoch_;
  if (whole) checked_loss();
  if (step_log_) step_log_->finish();
  take_compute_time();
  take_time();
  bar.finish();
  return whole;
}

std::optional<nn::data::Batch> Trainer::next_batch() {
  try {
    const double before = train_loader_.wait_seconds();
    std::optional<nn::data::Batch> batch = train_loader_.next();
    // A host that waits while a GPU works costs nothing: with jobs it waits most of the time, for room.
    const double waited = timer_.is_busy() ? 0.0 : train_loader_.wait_seconds() - before;
    stats_.wait_seconds += waited;
    total_.wait_seconds += waited;
    return batch;
  } catch (const std::exception&) {
    // To save takes all ranks, and the others may be well.
    if (checkpoints_ != nullptr && step_ > 0 && !in_series_ && ranks_.size() == 1) save();
    throw;
  }
}

void Trainer::train_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
                          bool ends_step) {
  Tensor loss, logits;
  const nn::MixedBatch mixed = examples::mix(options_.augmentation, batch.images, batch.labels,
                                             train_loader_.dataset().num_classes(), *options_.layout);
  if (job_ != nullptr) {
    loss = job_->step(mixed.images, mixed.targets, learning_rate);
    logits = job_->outputs().front();
  } else {
    std::optional<nn::SyncBatchNormScope> together;
    if (options_.sync_batch_norm) together.emplace(ranks_);
    logits = model_(mixed.images);
    loss = nn::CrossEntropyLoss{.label_smoothing = *options_.label_smoothing}(logits, mixed.targets);
    if (begins_step) optimizer_->zero_grad();
    const auto share = 1.0 / static_cast<double>(options_.accumulate);
    const Tensor of_rank = nn::scale_loss(loss, ranks_);
    backward(scaler_.scale(options_.accumulate > 1 ? ops::affine(of_rank, share, 0.0) : of_rank));
    if (ends_step) nn::all_reduce_gradients(optimizer_->parameters(), ranks_);
    if (ranks_.size() > 1) loss = ops::all_reduce(nn::scale_loss(loss.detach(), ranks_), ranks_);
    if (ends_step) scaler_.step(*optimizer_, learning_rate, {.max_grad_norm = options_.clip});
    if (ends_step && ema_ != nullptr) ema_->update();
  }
  stats_.loss.add(loss, static_cast<double>(batch.size() * ranks_.size()));
  stats_.ranks.add(logits, mixed.labels);
  stats_.images += batch.size() * ranks_.size();
  total_.images += batch.size() * ranks_.size();
  in_series_ = !ends_step;
  if (!ends_step) return;
  ++step_;
  ++trained_;
  ++total_.steps;
  take_requests();
}

std::string Trainer::where_it_went_wrong() try {
  std::optional<nn::data::Batch> batch = train_loader_.next();
  if (!batch) batch = train_loader_.next();  // the epoch had ended
  if (!batch) return {};
  optimizer_->zero_grad();
  const std::string where = examples::first_bad_value(
      model_, [&] { backward(scaler_.scale(nn::CrossEntropyLoss{}(model_(batch->images), batch->labels))); });
  return where.empty() ? "" : "; in a batch like it, " + where;
} catch (const std::exception&) {  // no memory for eager steps beside the job, or no such batch
  return {};                       // what went wrong before is the error to tell
}

double Trainer::checked_loss() {
  const nn::TensorMean::Totals totals = stats_.loss.read();
  ranks_.check();  // else whatever the sums that have failed left would be taken for the loss
  // In float16 an overflow may happen: the scaler has skipped that step.
  if (totals.first_not_finite > 0 && !scaler_.options().enabled) {
    const int64_t series = options_.accumulate;
    throw Error(fmt::format("the loss of step {} was not finite{}; try a smaller --lr or a longer --warmup",
                            step_ - totals.values / series + (totals.first_not_finite - 1) / series + 1,
                            where_it_went_wrong()));
  }
  try {
    scaler_.check(*optimizer_);
  } catch (const Error& error) {
    std::string text = error.what();  // "[grad_scaler] ...": a name that no user of this program has met
    if (text.starts_with("[")) text.erase(0, text.find("] ") + 2);
    constexpr std::string_view kUnknown = ": the gradients were cleared or have changed since";  // by a job
    if (const size_t at = text.find(kUnknown); at != text.npos) text.erase(at, kUnknown.size());
    throw Error(fmt::format("{} (--lr){}", text, where_it_went_wrong()));
  }
  return totals.mean;
}

void Trainer::take_compute_time() {
  const double seconds = timer_.take_seconds();
  stats_.compute_seconds += seconds;
  total_.compute_seconds += seconds;
}

std::optional<TestResult> Trainer::evaluate() {
  const NoGrad no_grad;
  if (ranks_.size() > 1) {
    // What is tested is what is saved: with the running statistics of rank 0.
    for (const nn::Buffer& buffer : model_.buffers()) {
      ranks_.broadcast_(buffer.master());
      buffer.refresh_working();
    }
  }
  if (ema_ != nullptr) ema_->copy_to(*averaged_);
  const nn::ResNet& model = ema_ != nullptr ? *averaged_ : model_;
  model.eval();
  const Dataset& test = test_loader_.dataset();
  TestResult result{nn::ConfusionMatrix(test.num_classes(), test.class_names()), {}, 0.0};
  nn::TopKAccuracy ranks(5);
  nn::TensorMean loss;
  while (const std::optional<nn::data::Batch> batch = test_loader_.next()) {
    const Tensor logits = model(batch->images);
    result.confusion.add(logits, batch->labels);
    ranks.add(logits, batch->labels);
    loss.add(nn::CrossEntropyLoss{.label_smoothing = *options_.label_smoothing}(logits, batch->labels),
             static_cast<double>(batch->size()));
    if (stop_signal() != 0) break;
  }
  take_requests(true);
  if (stopped_by_ != 0) return std::nullopt;
  result.loss = loss.read().mean;
  std::vector<int64_t> correct = ranks.read();
  join_test(result, correct);
  if (test.num_classes() > 10) {
    result.top5 = static_cast<double>(correct[4]) / static_cast<double>(correct[5]);
  }
  return result;
}

void Trainer::join_test(TestResult& result, std::vector<int64_t>& correct) const {
  if (ranks_.size() == 1 || test_loader_.dataset().size() == test_images_) return;  // each has tested all
  const int64_t own = result.confusion.total(), classes = result.confusion.classes();
  const Tensor sums =
      Tensor::from_values<double>({result.loss * static_cast<double>(own), static_cast<double>(own)}, {2});
  ranks_.all_reduce_(sums);
  result.loss = sums.data<double>()[0] / sums.data<double>()[1];
  const Tensor counts = Tensor::from_values(correct, {static_cast<int64_t>(correct.size())});
  ranks_.all_reduce_(counts);
  correct = counts.to_vector<int64_t>();
  std::vector<int64_t> pairs;
  for (int64_t target = 0; target < classes; ++target) {
    for (int64_t taken = 0; taken < classes; ++taken) pairs.push_back(result.confusion.count(target, taken));
  }
  const Tensor all = Tensor::from_values(pairs, {classes * classes});
  ranks_.all_reduce_(all);
  std::vector<int64_t> targets, predictions;
  for (int64_t i = 0; i < classes * classes; ++i) {
    targets.insert(targets.end(), static_cast<size_t>(all.data<int64_t>()[i]), i / classes);
    predictions.insert(predictions.end(), static_cast<size_t>(all.data<int64_t>()[i]), i % classes);
  }
  const Shape shape{static_cast<int64_t>(targets.size())};
  result.confusion = nn::ConfusionMatrix(classes, test_loader_.dataset().class_names());
  result.confusion.add(Tensor::from_values(predictions, shape), Tensor::from_values(targets, shape));
}

std::vector<int64_t> Trainer::rank_counts() const {
  const std::vector<int64_t> own = stats_.ranks.read();
  if (ranks_.size() == 1) return own;
  const Tensor counts = Tensor::from_values(own, {static_cast<int64_t>(own.size())});
  ranks_.all_reduce_(counts);
  return counts.to_vector<int64_t>();
}

}  // namespace train_resnet
