// How a step changes weights: by a job or op by op, over several batches and ranks, with averages beside it.
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/nn/parallel/sync_batch_norm.h>
#include <sinter/ops/unary/unary.h>

#include "common/text.h"
#include "run/first_bad.h"
#include "trainer/trainer_base.h"

namespace sinter::examples {

void TrainerBase::learn(const nn::ModuleBase& model, const nn::AnyModule& tested, nn::JobFunction function,
                        std::vector<nn::Parameter> apart, int max_graphs) {
  if (steps_per_epoch() == 0) {
    throw InvalidArgument(fmt::format("--accumulate {}: an epoch has only {}", common_.accumulate,
                                      counted(train_loader_.batches_per_epoch(), "batch")));
  }
  schedule_ = make_schedule(common_, steps_per_epoch());
  plateau_ = make_plateau(common_);
  if (plateau_)
    schedule_ = [this, warmup = schedule_](int64_t step) { return warmup(step) * plateau_->rate(); };
  whole_.emplace(tested);
  if (common_.ema > 0) {
    ema_ = std::make_unique<nn::EMA>(tested, nn::EMAOptions{.decay = common_.ema, .warmup = true});
    averaged_.emplace(nn::clone(tested));
  }
  function_ = std::move(function);
  apart_ = std::move(apart);
  if (common_.job) {
    job_ =
        std::make_unique<nn::TrainJob>(model, *optimizer_, function_,
                                       nn::TrainJobOptions{.max_grad_norm = common_.clip,
                                                           .scaler = &scaler_,
                                                           .ema = ema_.get(),
                                                           .communicator = &ranks_,
                                                           .sync_batch_norm = common_.sync_batch_norm,
                                                           .sharded = apart_,
                                                           .accumulate = static_cast<int>(common_.accumulate),
                                                           .memory_limit = common_.memory_bytes(),
                                                           .max_graphs = max_graphs});
    return;
  }
  nn::broadcast_parameters(model, ranks_, apart_);
  if (ema_ != nullptr) ema_->broadcast(ranks_);
}

Tensor TrainerBase::learn_from(std::initializer_list<Tensor> inputs, double learning_rate, bool begins_step,
                               bool ends_step) {
  if (job_ != nullptr) {
    const Tensor loss = job_->step(inputs, learning_rate);
    outputs_ = job_->outputs();
    return loss;
  }
  std::optional<nn::SyncBatchNormScope> together;
  if (common_.sync_batch_norm) together.emplace(ranks_);
  const RandomPartScope part(ranks_.rank(), ranks_.size());
  outputs_ = function_({inputs.begin(), inputs.size()});
  const Tensor of_rank = nn::scale_loss(outputs_.front(), ranks_);
  outputs_.erase(outputs_.begin());
  if (begins_step) optimizer_->zero_grad();
  const auto share = 1.0 / static_cast<double>(common_.accumulate);
  backward(scaler_.scale(common_.accumulate > 1 ? ops::affine(of_rank, share, 0.0) : of_rank));
  if (ends_step) nn::all_reduce_gradients(nn::exclude(optimizer_->parameters(), apart_), ranks_);
  const Tensor loss = nn::all_reduce(of_rank.detach(), ranks_);
  if (!ends_step) return loss;
  scaler_.step(
      *optimizer_, learning_rate,
      {.max_grad_norm = common_.clip, .sharded = apart_, .communicator = apart_.empty() ? nullptr : &ranks_});
  if (ema_ != nullptr) ema_->update();
  return loss;
}

void TrainerBase::check_ranks_agree() const {
  nn::check_parameters_equal(module(), ranks_, apart_);
  if (ema_ != nullptr) nn::check_parameters_equal(ema_->averages(), ranks_);
}

const nn::AnyModule& TrainerBase::tested_model() const {
  if (ema_ == nullptr) return *whole_;
  ema_->copy_to(*averaged_);
  return *averaged_;
}

nn::State TrainerBase::tested_weights() const {
  return ema_ != nullptr ? ema_->averaged_state() : whole_->state();
}

void TrainerBase::restore_averages(const nn::CheckpointData& data) {
  if (ema_ == nullptr) return;
  ema_->load_state(data.tensors.contains("average") ? data.part("average")
                                                    : nn::EMA(*whole_, {.warmup = true}).state());
}

bool TrainerBase::restore_optimizer(const nn::State& state, const Recipe& before) {
  // The buffers of sgd and lars have the same names and shapes, but not the same meaning.
  if (value_or(before, "--optimizer", common_.optimizer) != common_.optimizer) return false;
  try {
    optimizer_->load_state(state);
    return true;
  } catch (const InvalidArgument&) {
    if (!common_.change_recipe) throw;
    return false;
  }
}

bool TrainerBase::ends_early() const {
  // Of runs by earlier versions the epoch of the best test is not known: it is 0.
  return common_.course.patience > 0 && best_.epoch > 0 && epochs_since_best() >= common_.course.patience;
}

std::string TrainerBase::where_it_went_wrong() try {
  std::optional<nn::data::Batch> batch = train_loader_.next();
  if (!batch) batch = train_loader_.next();  // the epoch had ended
  if (!batch) return {};
  optimizer_->zero_grad();
  const std::string where = first_bad_value(module(), [&] { rehearse(*batch); });
  return where.empty() ? "" : "; in a batch like it, " + where;
} catch (const std::exception&) {  // no memory for eager steps beside the job, or no such batch
  return {};                       // what went wrong before is the error to tell
}

}  // namespace sinter::examples
