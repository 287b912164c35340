#include "trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>

#include "common/console.h"
#include "common/text.h"
#include "run/model_files.h"

namespace train_insightface {

using namespace sinter;
using examples::complain;
using examples::say;
using Clock = std::chrono::steady_clock;

namespace {

nn::PartialFC centres_on(const Options& options, Device device, int64_t classes, const Communicator& ranks) {
  nn::PartialFC centres = make_centres(options, classes, ranks);
  centres.to(device);
  return centres;
}

}  // namespace

Trainer::Trainer(const Options& options, Device device, const TrainingData& data,
                 std::vector<FacePairs> pairs, const nn::ModelMetadata& metadata,
                 const std::optional<nn::State>& start, const Communicator& ranks)
    : TrainerBase(options, device,
                  {.images = data.faces,
                   .loader = train_loader_options(options, device, *data.faces, ranks),
                   .name = data.name,
                   .kind = data.kind,
                   .title = "train_insightface, " + options.backbone,
                   .damaged = data.damaged},
                  metadata, ranks),
      options_(options),
      pairs_(std::move(pairs)),
      centres_(centres_on(options, device, data.faces->num_classes(), ranks)),
      model_(make_backbone(options), centres_.head()) {
  optimizer_ = make_optimizer(options, model_);
  if (start) examples::load_weights("--load-weights " + options.load_weights, *start, model_.backbone);
  model_.to(device_);
  if (options.is_half()) model_.to_mixed(compute_dtype(options));
  std::vector<nn::Parameter> apart;  // each rank has centres of its own
  if (ranks.size() > 1) apart.push_back(model_.head.weight);
  learn(
      model_, model_.backbone,
      [this](std::span<const Tensor> inputs) { return std::vector<Tensor>{model_(inputs[0], inputs[1])}; },
      std::move(apart));
}

nn::AnyModule Trainer::tested_backbone() const {
  const nn::AnyModule backbone = nn::clone(model_.backbone);
  backbone.load_state(tested_weights());
  return backbone;
}

std::vector<TensorSpec> Trainer::batch_specs(int64_t batch) const {
  const int64_t size = options_.image_size;
  const Shape images = examples::image_shape(*options_.layout, batch / ranks_.size(), size, size, 3);
  return {{images, compute_dtype(options_), device_}, {{batch}, DType::kInt64, device_}};
}

int64_t Trainer::tests_of_run() const {
  const int64_t every = options_.verify_every;  // and at the end
  return every > 0 ? (total_steps() + every - 1) / every : *options_.epochs;
}

void Trainer::prepare() {
  const std::vector<TensorSpec> specs = batch_specs(options_.batch_of(plan_.images->size()));
  if (job_ != nullptr) {
    model_.train();
    job_->prepare(specs);
  } else if (device_.is_cuda()) {
    const Shape& images = specs[0].shape;
    const nn::AnyModule copy = nn::clone(model_.backbone);
    const Tensor embeddings = copy(Tensor::zeros(images, compute_dtype(options_), device_));
    backward(embeddings, {.gradient = Tensor::zeros(embeddings.shape(), embeddings.dtype(), device_)});
    synchronize(device_);
  }
  told_ = Clock::now();
}

void Trainer::before_step() {
  set_momentum(options_, total_steps(), step_, *optimizer_);
}

bool Trainer::finish_epoch(bool whole) {
  const bool is_due = options_.verify_every == 0 || epoch_ + 1 == *options_.epochs;
  if (!whole || (is_due && verified_step_ != trained_ && !test())) return false;
  check_ranks_agree();
  report_epoch();
  if (plateau_) plateau_->update(stats_.loss.read().mean);
  if (run_folder_ != nullptr) {
    run_folder_->add(trained_, epoch_scalars());
    run_folder_->draw();
  }
  return true;
}

Tensor Trainer::train_batch(const nn::data::Batch& batch, double learning_rate, bool begins_step,
                            bool ends_step) {
  if (begins_step) {
    std::vector<std::vector<int64_t>> labels = {batch.host_labels};
    for (const nn::data::Batch& other : ahead()) labels.push_back(other.host_labels);
    const std::vector<Tensor> rows = centres_.sample(labels, *optimizer_);
    rows_.assign(rows.begin(), rows.end());
  }
  const Tensor rows = std::move(rows_.front());
  rows_.pop_front();
  const Tensor loss = learn_from({batch.images, rows}, learning_rate, begins_step, ends_step);
  if (ends_step) centres_.update(*optimizer_);
  return loss;
}

void Trainer::rehearse(const nn::data::Batch& batch) {
  if (ranks_.size() > 1 || !rows_.empty()) {  // others do not come along, or a step has begun
    model_.backbone(batch.images);
    return;
  }
  const Tensor rows = centres_.sample(batch.host_labels, *optimizer_);
  backward(scaler_.scale(model_(batch.images, rows)));
}

bool Trainer::test_due() const {
  return !pairs_.empty() && options_.verify_every > 0 && step_ > 0 && step_ % options_.verify_every == 0 &&
         verified_step_ != trained_;
}

std::optional<std::vector<ComparedPairs>> Trainer::compare_here() const {
  const nn::AnyModule& backbone = tested_model();
  std::vector<ComparedPairs> parts;
  for (const FacePairs& faces : pairs_) {
    auto part = compare(faces, backbone, options_, device_, ranks_.rank(), ranks_.size());
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  return parts;
}

// Nobody waits for the others before all have agreed that none was stopped.
bool Trainer::test() {
  share_statistics(model_.backbone);
  std::optional<std::vector<ComparedPairs>> parts = compare_here();
  take_requests(true);
  if (!parts || (ranks_.size() > 1 && stopped_by() != 0)) return false;
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
                                 {"verify/" + set.name + "/deviation", set.folds.std},
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
  take_test(accuracy);
  return true;
}

}  // namespace train_insightface
