#include "trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/nn/parallel/sync_batch_norm.h>

#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"
#include "run/model_files.h"
#include "run/processes.h"

namespace train_insightface {

using namespace sinter;
using examples::complain;
using examples::say;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

nn::PartialFC centres_on(const Options& options, Device device, int64_t classes, const Communicator& ranks) {
  nn::PartialFC centres = make_centres(options, classes, ranks);
  centres.to(device);
  return centres;
}

}  // namespace

Trainer::Trainer(const Options& options, Device device, const TrainingData& data,
                 std::vector<FacePairs> pairs, const nn::ModelMetadata& metadata,
                 const std::optional<nn::State>& start, const Communicator& ranks)
    : options_(options),
      ranks_(ranks),
      device_(device),
      data_(data),
      metadata_(metadata),
      pairs_(std::move(pairs)),
      train_loader_(data.faces, train_loader_options(options, device, *data.faces, ranks)),
      centres_(centres_on(options, device, data.faces->num_classes(), ranks)),
      model_(make_backbone(options), centres_.head()),
      optimizer_(make_optimizer(options, model_)),
      scaler_(nn::GradScaler::options_for(compute_dtype(options))),
      schedule_(make_schedule(options, total_steps())),
      timer_(device) {
  settings::set_allow_tf32(*options.precision == "tf32");
  if (start) examples::load_weights("--load-weights " + options.load_weights, *start, model_.backbone);
  model_.to(device_);
  if (is_half(compute_dtype(options))) model_.to_mixed(compute_dtype(options));
  if (!options.checkpoints.empty() && ranks.rank() == 0)
    checkpoints_ = std::make_unique<nn::CheckpointFolder>(options.checkpoints);
  if (options.job) {
    const auto step = [this](std::span<const Tensor> inputs) {
      return std::vector<Tensor>{model_(inputs[0], inputs[1])};
    };
    job_ = std::make_unique<nn::TrainJob>(model_, step, optimizer_,
                                          nn::TrainJobOptions{.max_grad_norm = options.clip,
                                                              .scaler = &scaler_,
                                                              .communicator = &ranks,
                                                              .sync_batch_norm = options.sync_batch_norm,
                                                              .sharded = apart()});
  } else {
    nn::broadcast_parameters(model_, ranks, apart());
  }
}

std::vector<nn::Parameter> Trainer::apart() const {
  if (ranks_.size() == 1) return {};
  return {model_.head.weight};
}

bool Trainer::should_stop() const {
  return stopped_by_ != 0 || (options_.max_steps > 0 && step_ >= options_.max_steps);
}

void Trainer::take_requests(bool wait) {
  const examples::Requests requests = examples::agree_on_requests(ranks_, wait);
  stopped_by_ = requests.stop;
  save_asked_ = save_asked_ || requests.save;
}

void Trainer::prepare() {
  const auto start = Clock::now();
  const int64_t rows = std::min(options_.batch, data_.faces->size()), n = rows / ranks_.size();
  const int64_t size = options_.image_size;
  const Shape images = *options_.layout == Layout::kNHWC ? Shape{n, size, size, 3} : Shape{n, 3, size, size};
  if (job_ != nullptr) {
    model_.train();
    const TensorSpec specs[] = {{images, compute_dtype(options_), device_}, {{rows}, DType::kInt64, device_}};
    job_->prepare(specs);
  } else if (device_.is_cuda()) {
    const nn::IResNet copy = nn::clone(model_.backbone);
    const Tensor embeddings = copy(Tensor::zeros(images, compute_dtype(options_), device_));
    backward(embeddings, {.gradient = Tensor::zeros(embeddings.shape(), embeddings.dtype(), device_)});
    synchronize(device_);
  }
  total_.prepare_seconds = seconds_since(start);
}

bool Trainer::train() {
  prepare();
  open_log();
  started_ = told_ = Clock::now();
  return train_epochs();
}

bool Trainer::train_epochs() {
  take_requests();
  while (epoch_ < options_.epochs) {
    // A run may have been stopped while it verified what the epoch had reached.
    bool whole = !should_stop() && (train_loader_.epoch() > epoch_ || run_epoch());
    if (whole && (options_.verify_every == 0 || epoch_ + 1 == options_.epochs) && verified_step_ != trained_)
      whole = verify_all();
    if (!whole) {
      save();
      return false;
    }
    nn::check_parameters_equal(model_, ranks_, apart());
    report_epoch();
    data_.damaged->tell();
    log_epoch();
    ++epoch_;
    stats_ = {};
    if (options_.checkpoint_every == 0 || epoch_ == options_.epochs) save();
  }
  return true;
}

bool Trainer::run_epoch() {
  if (stats_.images == 0) stats_.skipped_before = scaler_.skipped();
  if (verification_due() && !verify_all()) return false;  // a run that was stopped before it
  model_.train();
  MemoryPool& pool = backend_of(device_).memory_pool(device_.index);
  pool.reset_peaks();
  begin_step_log();
  // After a resume the bar shows the rest of the epoch, so that its speed and ETA are those of this process.
  const int64_t done_before = train_loader_.state().batch;
  bar_.emplace(fmt::format("epoch {}/{}", epoch_ + 1, options_.epochs),
               std::max<int64_t>(train_loader_.batches_per_epoch() - done_before, 1));
  double shown_loss = 0.0;
  auto start = Clock::now();
  const auto take_time = [&] {
    const double seconds = seconds_since(std::exchange(start, Clock::now()));
    stats_.seconds += seconds;
    total_.seconds += seconds;
    total_.peak_bytes = std::max(total_.peak_bytes, pool.stats().peak_live_bytes);
  };
  bool stopped = false;
  while (const std::optional<nn::data::Batch> batch = next_batch()) {
    const double learning_rate = schedule_(step_);
    set_momentum(options_, total_steps(), step_, optimizer_);
    timer_.begin();
    train_step(*batch, learning_rate);
    timer_.end();
    ++step_;
    ++trained_;
    ++total_.steps;
    stats_.images += batch->size() * ranks_.size();
    total_.images += batch->size() * ranks_.size();
    take_requests();
    if (bar_->due()) shown_loss = checked_loss();
    take_time();
    log_step(learning_rate);
    const int64_t done = train_loader_.state().batch - done_before;
    bar_->update({.step = done,
                  .items = done * batch->size() * ranks_.size(),
                  .loss = shown_loss,
                  .learning_rate = learning_rate});
    if ((stopped = should_stop())) break;
    const bool saves =
        save_asked_ || (options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0);
    if (!saves && !verification_due()) continue;
    bar_->finish();
    take_compute_time();
    if (step_log_) step_log_->finish();
    take_time();
    if (verification_due() && (stopped = !verify_all())) break;
    if (saves) save();
    start = Clock::now();
  }
  const bool whole = !stopped && (!should_stop() || train_loader_.epoch() > epoch_);
  if (whole) checked_loss();
  if (step_log_) step_log_->finish();
  take_compute_time();
  if (!stopped) take_time();
  bar_.reset();
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
    if (checkpoints_ != nullptr && step_ > 0 && ranks_.size() == 1) save();
    throw;
  }
}

void Trainer::train_step(const nn::data::Batch& batch, double learning_rate) {
  const Tensor rows = centres_.sample(train_loader_.host_labels(), optimizer_);
  Tensor loss;
  if (job_ != nullptr) {
    loss = job_->step(batch.images, rows, learning_rate);
  } else {
    std::optional<nn::SyncBatchNormScope> together;
    if (options_.sync_batch_norm) together.emplace(ranks_);
    loss = model_(batch.images, rows);
    optimizer_.zero_grad();
    const Tensor of_rank = nn::scale_loss(loss, ranks_);
    backward(scaler_.scale(of_rank));
    nn::all_reduce_gradients(nn::exclude(optimizer_.parameters(), apart()), ranks_);
    loss = nn::all_reduce(of_rank.detach(), ranks_);
    scaler_.step(optimizer_, learning_rate,
                 {.max_grad_norm = options_.clip, .sharded = apart(), .communicator = &ranks_});
  }
  centres_.update(optimizer_);
  stats_.loss.add(loss, static_cast<double>(batch.size() * ranks_.size()));
}

double Trainer::checked_loss() const {
  const nn::TensorMean::Totals totals = stats_.loss.read();
  ranks_.check();  // else whatever the sums that have failed left would be taken for the loss
  // In float16 an overflow may happen: the scaler has skipped that step.
  if (totals.first_not_finite > 0 && !scaler_.options().enabled) {
    throw Error(fmt::format("the loss of step {} was not finite; try a smaller --lr or a longer --warmup",
                            step_ - totals.values + totals.first_not_finite));
  }
  try {
    scaler_.check(optimizer_);
  } catch (const Error& error) {
    std::string text = error.what();  // "[grad_scaler] ...": a name that no user of this program has met
    if (text.starts_with("[")) text.erase(0, text.find("] ") + 2);
    throw Error(text + " (--lr)");
  }
  return totals.mean;
}

void Trainer::take_compute_time() {
  const double seconds = timer_.take_seconds();
  stats_.compute_seconds += seconds;
  total_.compute_seconds += seconds;
}

bool Trainer::verification_due() const {
  return !pairs_.empty() && options_.verify_every > 0 && step_ > 0 && step_ % options_.verify_every == 0 &&
         verified_step_ != trained_;
}

void Trainer::share_statistics() const {
  if (ranks_.size() == 1) return;
  const NoGrad no_grad;
  for (const nn::Buffer& buffer : model_.backbone.buffers()) {
    ranks_.broadcast_(buffer.master());
    buffer.refresh_working();
  }
}

std::optional<std::vector<ComparedPairs>> Trainer::compare_here() const {
  std::vector<ComparedPairs> parts;
  for (const FacePairs& faces : pairs_) {
    auto part = compare(faces, model_.backbone, options_, device_, ranks_.rank(), ranks_.size());
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  return parts;
}

// Nobody waits for the others before all have agreed that none was stopped.
bool Trainer::verify_all() {
  share_statistics();
  std::optional<std::vector<ComparedPairs>> parts = compare_here();
  take_requests(true);
  if (!parts || (ranks_.size() > 1 && stopped_by_ != 0)) return false;
  std::vector<VerifiedSet> results;
  for (size_t i = 0; i < pairs_.size(); ++i)
    results.push_back(judge(pairs_[i], gather(pairs_[i], std::move((*parts)[i]), ranks_)));
  verified_step_ = trained_;
  if (results.empty()) return true;
  verified_ = std::move(results);
  double accuracy = 0.0;
  examples::Scalars values;
  for (const VerifiedSet& set : verified_) {
    say("{}\n",
        examples::wrap(fmt::format("step {}  {}", step_, to_string(set)), examples::text_columns(stdout), 2));
    accuracy += set.folds.accuracy / static_cast<double>(verified_.size());
    values.insert(values.end(), {{"verify/" + set.name + "/accuracy", set.folds.accuracy},
                                 {"verify/" + set.name + "/deviation", set.folds.deviation},
                                 {"verify/" + set.name + "/threshold", set.folds.threshold},
                                 {"verify/" + set.name + "/xnorm", set.mean_norm}});
    if (set.balanced)
      values.emplace_back("verify/" + set.name + "/balanced_accuracy", set.balanced->accuracy);
    if (set.curve) values.emplace_back("verify/" + set.name + "/auc", set.curve->area);
    if (set.curve && set.curve->at_1e3.allowed > 0)
      values.emplace_back("verify/" + set.name + "/tar_at_far_1e-3", set.curve->at_1e3.tar);
    if (set.curve && set.curve->at_1e2.allowed > 0)
      values.emplace_back("verify/" + set.name + "/tar_at_far_1e-2", set.curve->at_1e2.tar);
  }
  if (ranks_.rank() == 0 && !options_.roc_folder().empty()) {
    try {
      write_curves(options_.roc_folder(), verified_);
    } catch (const IoError& error) {  // the next may succeed
      complain("warning: {}", error.what());
    }
  }
  if (run_folder_ != nullptr) {
    run_folder_->add(trained_, std::move(values));
    run_folder_->draw();
  }
  if (accuracy > best_.accuracy) {
    best_ = {accuracy, trained_};
    save_best();
  }
  return true;
}

}  // namespace train_insightface
