#include "run/step_log.h"

#include <algorithm>
#include <exception>

namespace sinter::examples {

using nn::TensorMean;

namespace {

/// The mean of what came between two totals; NaN if nothing finite did.
double mean_between(const TensorMean::Totals& before, const TensorMean::Totals& now) {
  const auto sum = [](const TensorMean::Totals& totals) {
    return totals.weight > 0 ? totals.mean * totals.weight : 0.0;
  };
  return (sum(now) - sum(before)) / (now.weight - before.weight);
}

}  // namespace

StepLog::StepLog(Sink sink, int64_t every, const StepSums& sums, const TensorMean& loss)
    : sink_(std::move(sink)), every_(every), sums_(sums), first_loss_(loss.snapshot()) {}

StepLog::~StepLog() {
  try {
    finish();
  } catch (const std::exception&) {  // the device is lost, or there is no memory; the first error is told
  }
}

void StepLog::after_step(int64_t step, double learning_rate, const StepSums& sums, const TensorMean& loss) {
  while (!waiting_.empty() && waiting_.front().loss.ready()) {
    write(waiting_.front());
    waiting_.pop_front();
  }
  if (step % every_ != 0) return;
  const double seconds = std::max(sums.seconds - sums_.seconds, 1e-9);
  const double waited = std::clamp((sums.wait_seconds - sums_.wait_seconds) / seconds, 0.0, 1.0);
  waiting_.push_back(
      {.step = step,
       .values = {{"train/loss", 0.0},
                  {"train/learning_rate", learning_rate},
                  {"train/images_per_second", static_cast<double>(sums.images - sums_.images) / seconds},
                  {"train/data_wait_share", waited}},
       .loss = loss.snapshot()});
  sums_ = sums;
}

void StepLog::finish() {
  for (Waiting& record : waiting_) write(record);
  waiting_.clear();
}

void StepLog::write(Waiting& record) {
  if (!has_first_) loss_ = first_loss_.read();
  has_first_ = true;
  const TensorMean::Totals now = record.loss.read();
  record.values.front().second = mean_between(loss_, now);
  loss_ = now;
  sink_(record.step, std::move(record.values));
}

}  // namespace sinter::examples
