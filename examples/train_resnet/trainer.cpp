#include "trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/nn/parallel/sync_batch_norm.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/unary/unary.h>

#include "common/console.h"
#include "common/stop.h"
#include "run/first_bad.h"

namespace train_resnet {

using namespace sinter;
using examples::stop_signal;
using nn::data::Dataset;

namespace {

std::optional<size_t> memory_limit(const Options& options) {
  if (options.memory_limit <= 0) return std::nullopt;
  return static_cast<size_t>(options.memory_limit * 0x1p30);
}

/// Images of a size that has gone do not come back, and a graph holds much memory.
int max_graphs(const Options& options) {
  return options.images.progressive.empty() ? nn::TrainJobOptions().max_graphs : 1;
}

}  // namespace

Trainer::Trainer(const Options& options, Device device, const Data& data, const nn::ModelMetadata& metadata,
                 const std::optional<examples::WeightsFile>& weights, const Communicator& ranks)
    : TrainerBase(
          options, device,
          {.images = data.train,
           .loader = train_loader_options(options, device, *data.train, {metadata.mean, metadata.std}, ranks),
           .name = data.name,
           .kind = data.kind,
           .damaged = data.damaged,
           .epochs = *options.epochs,
           .accumulate = options.accumulate},
          metadata, ranks),
      options_(options),
      judge_images_(data.judge(), ranks, test_loader_options(options, device, {metadata.mean, metadata.std})),
      model_(make_model(options, *data.train)),
      optimizer_(make_optimizer(options, model_)),
      loss_(make_loss(options, *data.train, device)),
      size_(train_size(options.images, options.image_size, 0)),
      test_fingerprint_(examples::fingerprint_text(*data.judge())) {
  if (data.validation != nullptr)
    final_.emplace(data.test, ranks, test_loader_options(options, device, {metadata.mean, metadata.std}));
  if (steps_per_epoch() == 0) {
    throw InvalidArgument(fmt::format("--accumulate {}: an epoch has only {} batches", options.accumulate,
                                      train_loader_.batches_per_epoch()));
  }
  schedule_ = make_schedule(options, steps_per_epoch());
  if (options.schedule == "plateau") {
    plateau_.emplace(nn::PlateauOptions{
        .base = 1.0, .factor = options.course.gamma, .patience = options.course.plateau_patience});
    schedule_ = [this, warmup = schedule_](int64_t step) { return warmup(step) * plateau_->rate(); };
  }
  model_.to(device_);
  if (options.is_half()) model_.to_mixed(compute_dtype(options));
  // Before ranks take the weights of rank 0.
  if (weights) {
    examples::load_weights(
        weights->source,
        options.finetune.new_head ? examples::with_own_head(weights->state, model_, kHead) : weights->state,
        model_);
  }
  if (options.ema > 0) {
    ema_ = std::make_unique<nn::EMA>(model_, nn::EMAOptions{.decay = options.ema, .warmup = true});
    averaged_.emplace(nn::clone(model_));
  }
  if (options.job) {
    job_ =
        std::make_unique<nn::TrainJob>(model_, loss_, *optimizer_,
                                       nn::TrainJobOptions{.max_grad_norm = options.clip,
                                                           .scaler = &scaler_,
                                                           .ema = ema_.get(),
                                                           .communicator = &ranks,
                                                           .sync_batch_norm = options.sync_batch_norm,
                                                           .accumulate = static_cast<int>(options.accumulate),
                                                           .memory_limit = memory_limit(options),
                                                           .max_graphs = max_graphs(options)});
  } else {
    nn::broadcast_parameters(model_, ranks);
    if (ema_ != nullptr) nn::broadcast_parameters(ema_->averages(), ranks);
  }
}

void Trainer::choose_algorithms(const Shape& images) const {
  const Generator generator = default_generator();  // the copy's weights are not part of the run
  const nn::ResNet copy = make_model(options_, train_loader_.dataset());
  default_generator() = generator;
  copy.to(device_);
  if (options_.is_half()) copy.to_mixed(compute_dtype(options_));
  const Tensor labels = Tensor::zeros({images[0]}, DType::kInt64, device_);
  backward(nn::CrossEntropyLoss{}(copy(Tensor::zeros(images, compute_dtype(options_), device_)), labels));
  synchronize(device_);
}

void Trainer::freeze() {
  const int64_t frozen = options_.finetune.freeze_trunk;
  if (frozen > 0) examples::freeze_trunk(model_, kHead, epoch_ < frozen);
}

void Trainer::begin_epoch() {
  freeze();
  const int64_t before = size_;
  set_size();
  if (size_ != before) examples::say("from here on images have {} pixels\n", size_);
  const int64_t frozen = options_.finetune.freeze_trunk;
  if (frozen > 0 && epoch_ == frozen && stats_.images == 0)
    examples::say("from here on all of the network learns\n");
}

void Trainer::set_size() {
  const int64_t size = train_size(options_.images, options_.image_size, epoch_);
  if (size == size_) return;
  train_loader_.set_transforms(train_transforms(options_, train_loader_.dataset(), epoch_));
  size_ = size;
  prepare_shape();
}

void Trainer::prepare() {
  freeze();
  set_size();
  prepare_shape();
}

void Trainer::prepare_shape() {
  const Dataset& dataset = train_loader_.dataset();
  const nn::data::Image image = dataset.get(0).image;
  const int64_t n = std::min(*options_.batch, dataset.size()) / ranks_.size();
  const Shape shape = examples::image_shape(*options_.layout, n, size_ > 0 ? size_ : image.height,
                                            size_ > 0 ? size_ : image.width, image.channels);
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
}

bool Trainer::finish_epoch(bool whole) {
  finish_profile();
  const std::optional<TestResult> test = whole ? evaluate() : std::nullopt;
  if (!test) return false;
  epoch_correct_ = sum_over_ranks(train_correct_.read())[0];
  nn::check_parameters_equal(model_, ranks_);
  if (ema_ != nullptr) nn::check_parameters_equal(ema_->averages(), ranks_);
  report_epoch(*test);
  log_epoch(*test);
  keep_best(*test);
  if (plateau_) plateau_->update(test->loss);
  return true;
}

bool Trainer::ends_early() const {
  // Of runs by earlier versions the epoch of the best test is not known: it is 0.
  return options_.course.patience > 0 && best_.epoch > 0 && epoch_ - best_.epoch >= options_.course.patience;
}

void Trainer::clear_stats() {
  TrainerBase::clear_stats();
  train_correct_ = nn::TopKAccuracy{1};
}

Tensor Trainer::train_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
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
    loss = loss_(logits, mixed.targets);
    if (begins_step) optimizer_->zero_grad();
    const auto share = 1.0 / static_cast<double>(options_.accumulate);
    const Tensor of_rank = nn::scale_loss(loss, ranks_);
    backward(scaler_.scale(options_.accumulate > 1 ? ops::affine(of_rank, share, 0.0) : of_rank));
    if (ends_step) nn::all_reduce_gradients(optimizer_->parameters(), ranks_);
    if (ranks_.size() > 1) loss = ops::all_reduce(nn::scale_loss(loss.detach(), ranks_), ranks_);
    if (ends_step) scaler_.step(*optimizer_, learning_rate, {.max_grad_norm = options_.clip});
    if (ends_step && ema_ != nullptr) ema_->update();
  }
  train_correct_.add(logits, mixed.labels);
  return loss;
}

std::string Trainer::where_it_went_wrong() try {
  std::optional<nn::data::Batch> batch = train_loader_.next();
  if (!batch) batch = train_loader_.next();  // the epoch had ended
  if (!batch) return {};
  optimizer_->zero_grad();
  const std::string where = examples::first_bad_value(
      model_, [&] { backward(scaler_.scale(loss_(model_(batch->images), batch->labels))); });
  return where.empty() ? "" : "; in a batch like it, " + where;
} catch (const std::exception&) {  // no memory for eager steps beside the job, or no such batch
  return {};                       // what went wrong before is the error to tell
}

std::optional<TestResult> Trainer::evaluate(bool keeps_mistakes) {
  const NoGrad no_grad;
  share_statistics(model_);
  if (ema_ != nullptr) ema_->copy_to(*averaged_);
  return test_on(judge_images_, ema_ != nullptr ? *averaged_ : model_, keeps_mistakes);
}

std::optional<TestResult> Trainer::final_test() {
  if (!final_) return evaluate(true);
  const NoGrad no_grad;
  const nn::ResNet best = nn::clone(model_);
  best.load_state(best_state_.empty() ? tested_weights() : best_state_);
  return test_on(*final_, best, true);
}

std::optional<TestResult> Trainer::test_on(Judged& images, const nn::ResNet& model, bool keeps_mistakes) {
  model.eval();
  const Dataset& test = images.loader.dataset();
  TestResult result{nn::ConfusionMatrix(test.num_classes(), test.class_names()), {}, 0.0, {}};
  WorstMistakes mistakes;
  nn::TopKAccuracy ranks(5);
  nn::TensorMean loss;
  ClassLoss unweighted = loss_;
  unweighted.weight = {};
  while (const std::optional<nn::data::Batch> batch = images.loader.next()) {
    const Tensor logits = model(batch->images);
    result.confusion.add(logits, batch->labels);
    ranks.add(logits, batch->labels);
    if (keeps_mistakes) mistakes.add(logits, batch->labels);
    loss.add(unweighted(logits, batch->labels), static_cast<double>(batch->size()));
    if (stop_signal() != 0) break;
  }
  take_requests(true);
  if (stopped_by_ != 0) return std::nullopt;
  result.loss = loss.read().mean;
  result.mistakes = mistakes.worst();
  std::vector<int64_t> correct = ranks.read();
  join_test(images, result, correct);
  if (test.num_classes() > 10) {
    result.top5 = static_cast<double>(correct[4]) / static_cast<double>(correct[5]);
  }
  return result;
}

void Trainer::join_test(const Judged& images, TestResult& result, std::vector<int64_t>& correct) const {
  const Dataset& own_part = images.loader.dataset();
  if (ranks_.size() == 1 || own_part.size() == images.images) return;  // each has tested all
  const int64_t own = result.confusion.total(), classes = result.confusion.classes();
  const Tensor sums =
      Tensor::from_values<double>({result.loss * static_cast<double>(own), static_cast<double>(own)}, {2});
  ranks_.all_reduce_(sums);
  result.loss = sums.data<double>()[0] / sums.data<double>()[1];
  correct = sum_over_ranks(correct);
  std::vector<int64_t> pairs;
  for (int64_t target = 0; target < classes; ++target) {
    for (int64_t taken = 0; taken < classes; ++taken) pairs.push_back(result.confusion.count(target, taken));
  }
  const std::vector<int64_t> all = sum_over_ranks(pairs);
  std::vector<int64_t> targets, predictions;
  for (int64_t i = 0; i < classes * classes; ++i) {
    const auto count = static_cast<size_t>(all[static_cast<size_t>(i)]);
    targets.insert(targets.end(), count, i / classes);
    predictions.insert(predictions.end(), count, i % classes);
  }
  const Shape shape{static_cast<int64_t>(targets.size())};
  result.confusion = nn::ConfusionMatrix(classes, own_part.class_names());
  result.confusion.add(Tensor::from_values(predictions, shape), Tensor::from_values(targets, shape));
}

std::vector<int64_t> Trainer::sum_over_ranks(const std::vector<int64_t>& own) const {
  if (ranks_.size() == 1) return own;
  const Tensor counts = Tensor::from_values(own, {static_cast<int64_t>(own.size())});
  ranks_.all_reduce_(counts);
  return counts.to_vector<int64_t>();
}

}  // namespace train_resnet
