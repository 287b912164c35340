#include "trainer/trainer_base.h"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>

#include "common/console.h"
#include "common/text.h"
#include "run/processes.h"

namespace sinter::examples {

using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double rate(int64_t images, double seconds) {
  return static_cast<double>(images) / std::max(seconds, 1e-9);
}

Shape image_shape(Layout layout, int64_t n, int64_t height, int64_t width, int64_t channels) {
  return layout == Layout::kNHWC ? Shape{n, height, width, channels} : Shape{n, channels, height, width};
}

TrainerBase::TrainerBase(const TrainerOptions& options, Device device, const TrainingPlan& plan,
                         const nn::ModelMetadata& metadata, const Communicator& ranks)
    : common_(options),
      ranks_(ranks),
      device_(device),
      plan_(plan),
      metadata_(metadata),
      train_loader_(plan.images, plan.loader),
      scaler_(nn::GradScaler::options_for(compute_dtype(options))),
      timer_(device),
      timing_notice_([this](const std::string& line) {
        if (bar_) bar_->finish();  // shows itself again
        say(line);
      }) {
  settings::set_allow_tf32(*options.precision == "tf32");
  if (!options.checkpoints.empty() && ranks.rank() == 0)
    checkpoints_ = std::make_unique<nn::CheckpointFolder>(options.checkpoints);
}

bool TrainerBase::should_stop() const {
  return stopped_by_ != 0 || (common_.max_steps > 0 && step_ >= common_.max_steps);
}

void TrainerBase::take_requests(bool wait) {
  const Requests requests = agree_on_requests(ranks_, wait);
  stopped_by_ = requests.stop;
  save_asked_ = save_asked_ || requests.save;
}

bool TrainerBase::train() {
  const auto start = Clock::now();
  prepare();
  total_.prepare_seconds = seconds_since(start);
  open_log();
  started_ = Clock::now();
  const bool is_complete = train_epochs();
  save_best_again();
  finish_reports();
  return is_complete;
}

bool TrainerBase::train_epochs() {
  take_requests();
  while (epoch_ < *common_.epochs && !ends_early()) {
    // A run may have been stopped while it tested what the epoch had reached.
    const bool whole = !should_stop() && (train_loader_.epoch() > epoch_ || run_epoch());
    finish_profile();
    const bool finished = finish_epoch(whole);
    plan_.damaged->tell();
    if (!finished) {
      save();
      return false;
    }
    ++epoch_;
    clear_stats();
    const bool ends = ends_early() && epoch_ < *common_.epochs;
    if (ends)
      say("no better test for {} (--patience {}): the run ends\n", counted(epochs_since_best(), "epoch"),
          common_.course.patience);
    if (common_.checkpoint_every == 0 || epoch_ == *common_.epochs || ends) save();
  }
  return true;
}

bool TrainerBase::run_epoch() {
  if (stats_.images == 0) stats_.skipped_before = scaler_.skipped();
  if (test_due() && !test()) return false;  // a run that was stopped before it
  begin_epoch();
  module().train();
  MemoryPool& pool = backend_of(device_).memory_pool(device_.index);
  pool.reset_peaks();
  begin_step_log();
  // After a resume the bar shows the rest of the epoch, so that its speed and ETA are those of this process.
  const int64_t done_before = train_loader_.state().batch;
  const int64_t trained_batches = steps_per_epoch() * common_.accumulate;
  bar_.emplace(fmt::format("epoch {}/{}", epoch_ + 1, *common_.epochs),
               std::max<int64_t>(trained_batches - done_before, 1));
  double shown_loss = 0.0;
  auto start = Clock::now();
  const auto take_time = [&] {
    const double seconds = seconds_since(std::exchange(start, Clock::now()));
    stats_.seconds += seconds;
    total_.seconds += seconds;
    total_.peak_bytes = std::max(total_.peak_bytes, pool.stats().peak_live_bytes);
  };
  int64_t done = done_before;
  bool stopped = false;
  while (const std::optional<nn::data::Batch> batch = next_batch()) {
    if (++done > trained_batches) continue;  // left over: they make no step
    const int64_t of_series = (done - 1) % common_.accumulate;
    const bool ends_step = of_series + 1 == common_.accumulate;
    const double learning_rate = schedule_(step_);
    if (of_series == 0) {
      profile_steps();
      before_step();
    }
    take_batch(*batch, learning_rate, of_series == 0, ends_step);
    if (bar_->due()) shown_loss = checked_loss();
    take_time();
    if (ends_step) log_step(learning_rate);
    const int64_t shown = done - done_before;
    bar_->update({.step = shown,
                  .items = shown * batch->size() * ranks_.size(),
                  .loss = shown_loss,
                  .learning_rate = learning_rate});
    if (!ends_step) continue;
    if ((stopped = should_stop())) break;
    const bool saves = save_asked_ || (common_.checkpoint_every > 0 && step_ % common_.checkpoint_every == 0);
    if (!saves && !test_due()) continue;
    bar_->finish();
    take_compute_time();
    if (step_log_) step_log_->finish();
    take_time();
    stopped = test_due() && !test();
    if (!stopped && saves) save();
    start = Clock::now();
    if (stopped) break;
  }
  if (!stopped) checked_loss();
  if (step_log_) step_log_->finish();
  take_compute_time();
  take_time();
  bar_.reset();
  return !stopped;
}

std::optional<nn::data::Batch> TrainerBase::next_batch() {
  try {
    const double before = train_loader_.wait_seconds();
    if (ahead_.empty()) read_ahead();
    // A host that waits while a GPU works costs nothing: with jobs it waits most of the time, for room.
    const double waited = timer_.is_busy() ? 0.0 : train_loader_.wait_seconds() - before;
    stats_.wait_seconds += waited;
    total_.wait_seconds += waited;
  } catch (const std::exception&) {
    // To save takes all ranks, and the others may be well.
    const bool is_between_steps = !in_series_ && ahead_.empty();
    if (checkpoints_ != nullptr && step_ > 0 && is_between_steps && ranks_.size() == 1) save();
    throw;
  }
  if (ahead_.empty()) {
    epoch_is_read_ = false;
    return std::nullopt;
  }
  nn::data::Batch batch = std::move(ahead_.front());
  ahead_.pop_front();
  return batch;
}

void TrainerBase::read_ahead() {
  const auto count = static_cast<size_t>(reads_ahead() ? common_.accumulate : 1);
  while (!epoch_is_read_ && ahead_.size() < count) {
    std::optional<nn::data::Batch> batch = train_loader_.next();
    epoch_is_read_ = !batch;
    if (batch) ahead_.push_back(std::move(*batch));
  }
}

void TrainerBase::take_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
                             bool ends_step) {
  const int64_t images = batch.size() * ranks_.size();
  timer_.begin();
  const Tensor loss = train_batch(batch, learning_rate, begins_step, ends_step);
  stats_.loss.add(loss, static_cast<double>(images));
  timer_.end();
  stats_.images += images;
  total_.images += images;
  in_series_ = !ends_step;
  if (!ends_step) return;
  ++step_;
  ++trained_;
  ++total_.steps;
  take_requests();
}

double TrainerBase::checked_loss() {
  const nn::TensorMean::Totals totals = stats_.loss.read();
  ranks_.check();  // else whatever the sums that have failed left would be taken for the loss
  // In float16 an overflow may happen: the scaler has skipped that step.
  if (totals.first_not_finite > 0 && !scaler_.options().enabled) {
    const int64_t series = common_.accumulate;
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

void TrainerBase::take_compute_time() {
  const double seconds = timer_.take_seconds();
  stats_.compute_seconds += seconds;
  total_.compute_seconds += seconds;
}

void TrainerBase::share_statistics(const nn::ModuleBase& model) const {
  if (ranks_.size() == 1) return;
  const NoGrad no_grad;
  for (const nn::Buffer& buffer : model.buffers()) {
    ranks_.broadcast_(buffer.master());
    buffer.refresh_working();
  }
}

}  // namespace sinter::examples
