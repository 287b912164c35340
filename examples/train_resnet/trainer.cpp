#include "trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/loss/loss.h>

#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"

namespace train_resnet {

using namespace sinter;
using examples::stop_signal;
using nn::data::Dataset;

namespace {

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
           .title = "train_resnet, " + options.model,
           .damaged = data.damaged},
          metadata, ranks),
      options_(options),
      judge_images_(data.judge(), ranks, test_loader_options(options, device, {metadata.mean, metadata.std})),
      model_(make_model(options, *data.train)),
      loss_(make_loss(options, *data.train, device)),
      size_(train_size(options.images, options.image_size, 0)),
      test_fingerprint_(examples::fingerprint_text(*data.judge())) {
  if (data.validation != nullptr)
    final_.emplace(data.test, ranks, test_loader_options(options, device, {metadata.mean, metadata.std}));
  optimizer_ = make_optimizer(options, model_);
  model_.to(device_);
  if (options.is_half()) model_.to_mixed(compute_dtype(options));
  // Before ranks take the weights of rank 0.
  if (weights) {
    examples::load_weights(
        weights->source,
        options.finetune.new_head ? examples::with_own_head(weights->state, model_, kHead) : weights->state,
        model_, weights->metadata);
  }
  const auto function = [this](std::span<const Tensor> inputs) {
    const Tensor logits = model_(inputs[0]);
    return std::vector<Tensor>{loss_(logits, inputs[1]), logits};
  };
  learn(model_, model_, function, {}, max_graphs(options));
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
  if (size_ != before) examples::say("from here on images have {}\n", examples::counted(size_, "pixel"));
  const int64_t frozen = options_.finetune.freeze_trunk;
  if (frozen > 0 && epoch_ == frozen && stats_.images == 0)
    examples::say("from here on all of the network learns\n");
}

std::vector<TensorSpec> Trainer::batch_specs(int64_t batch) const {
  return batch_specs(batch, options_.image_size);
}

std::vector<TensorSpec> Trainer::batch_specs(int64_t batch, int64_t size) const {
  const Dataset& dataset = train_loader_.dataset();
  const nn::data::Image image = dataset.get(0).image;
  const int64_t n = batch / ranks_.size();
  const Shape shape = examples::image_shape(*options_.layout, n, size > 0 ? size : image.height,
                                            size > 0 ? size : image.width, image.channels);
  const TensorSpec labels{{n}, DType::kInt64, device_};
  const TensorSpec targets{{n, dataset.num_classes()}, compute_dtype(options_), device_};
  return {{shape, compute_dtype(options_), device_}, options_.augmentation.mixes() ? targets : labels};
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
  const std::vector<TensorSpec> specs = batch_specs(options_.batch_of(plan_.images->size()), size_);
  if (job_ != nullptr) {
    model_.train();
    job_->prepare(specs);
  } else if (device_.is_cuda()) {
    choose_algorithms(specs[0].shape);
  }
}

bool Trainer::finish_epoch(bool whole) {
  const std::optional<TestResult> test = whole ? evaluate() : std::nullopt;
  if (!test) return false;
  epoch_correct_ = sum_over_ranks(train_correct_.read())[0];
  check_ranks_agree();
  report_epoch(*test);
  log_epoch(*test);
  take_test(test->confusion.accuracy());
  if (plateau_) plateau_->update(test->loss);
  return true;
}

void Trainer::clear_stats() {
  TrainerBase::clear_stats();
  train_correct_ = nn::TopKAccuracy{1};
}

Tensor Trainer::train_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
                            bool ends_step) {
  const nn::MixedBatch mixed = examples::mix(options_.augmentation, batch.images, batch.labels,
                                             train_loader_.dataset().num_classes(), *options_.layout);
  const Tensor loss = learn_from({mixed.images, mixed.targets}, learning_rate, begins_step, ends_step);
  train_correct_.add(outputs_.front(), mixed.labels);
  return loss;
}

void Trainer::rehearse(const nn::data::Batch& batch) {
  backward(scaler_.scale(loss_(model_(batch.images), batch.labels)));
}

std::optional<TestResult> Trainer::evaluate(bool keeps_mistakes) {
  const NoGrad no_grad;
  share_statistics(model_);
  return test_on(judge_images_, tested_model(), keeps_mistakes);
}

std::optional<TestResult> Trainer::final_test() {
  if (!final_) return evaluate(true);
  const NoGrad no_grad;
  const nn::ResNet best = nn::clone(model_);
  best.load_state(best_weights().empty() ? tested_weights() : best_weights());
  return test_on(*final_, best, true);
}

std::optional<TestResult> Trainer::test_on(Judged& images, const nn::AnyModule& model, bool keeps_mistakes) {
  model.eval();
  const Dataset& test = images.loader.dataset();
  const bool is_part = test.size() < images.all->size();
  TestResult result{nn::ConfusionMatrix(test.num_classes(), test.class_names()), {}, 0.0, {}};
  WorstMistakes mistakes(is_part ? images.all->size() * ranks_.rank() / ranks_.size() : 0);
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
  std::vector<int64_t> correct = ranks.read();
  if (is_part) {
    if (keeps_mistakes) mistakes.join(ranks_);
    join_test(test, result, correct);
  }
  result.mistakes = mistakes.worst();
  if (test.num_classes() > 10) {
    result.top5 = static_cast<double>(correct[4]) / static_cast<double>(correct[5]);
  }
  return result;
}

void Trainer::join_test(const Dataset& own_part, TestResult& result, std::vector<int64_t>& correct) const {
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
