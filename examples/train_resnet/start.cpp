#include "start.h"

#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/console.h"
#include "normalization.h"
#include "run/output_files.h"
#include "trainer/trainer_run.h"

namespace train_resnet {

using namespace sinter::examples;
using sinter::Communicator;
using sinter::Error;
using sinter::nn::LoadedCheckpoint;
using sinter::nn::ModelMetadata;

namespace {

/// The checkpoint that --resume goes on with, whose options then hold wherever the command line says nothing.
std::optional<LoadedCheckpoint> find_checkpoint(Options& options) {
  if (!options.resume) return std::nullopt;
  auto checkpoint = sinter::nn::CheckpointFolder(options.checkpoints).load_latest();
  if (checkpoint) {
    check_program(*checkpoint, "model", "backbone", "train_insightface");
    const Recipe before = read_recipe(checkpoint->data);
    adopt(before, options);
    // What it was trained with stands in the checkpoint: another choice would change the recipe alone.
    check_no_choice(options.normalization, checkpoint->folder.string(),
                    value_or(before, "--normalization", "auto"));
  }
  if (const std::string mistake = check_optimizer(options); !mistake.empty()) throw Error(mistake);
  if (checkpoint) {
    if (!options.is_given("--data")) {
      if (const auto paths = sinter::examples::read_paths("data", checkpoint->data); !paths.empty())
        options.data = paths.front();
    }
    return checkpoint;
  }
  if (options.evaluate && options.load_weights.empty())
    throw Error(fmt::format("--evaluate: there is no checkpoint in {}", options.checkpoints));
  if (!options.evaluate) say("no checkpoint yet in {}\n", options.checkpoints);
  return std::nullopt;
}

/// That of the weights where they go on as they are, else the data's; `tells`: what is assumed is said.
sinter::nn::data::Normalization choose_normalization(const Options& options, const Start& start,
                                                     const Data& data, bool tells) {
  // Else weights are trained further on data of their own. A trunk that is frozen keeps what it has seen.
  const bool is_kept = options.evaluate || options.finetune.freeze_trunk > 0;
  const int64_t channels = data.train->get(0).image.channels;
  if (start.weights && start.metadata) check_no_choice(options.normalization, start.source());
  if ((is_kept || start.checkpoint) && start.metadata &&
      (!start.weights || start.metadata->mean.size() == static_cast<size_t>(channels)))
    return {start.metadata->mean, start.metadata->std};
  if (start.weights && !start.metadata && (is_kept || options.normalization != "auto")) {
    if (const auto assumed = assumed_normalization(options.normalization, start.source(), channels)) {
      if (tells) tell_assumed(options.normalization, start.source(), channels);
      return *assumed;
    }
  }
  return measure_normalization(*data.train);
}

Classifier classifier_of(const Options& options) {
  if (options.finetune.new_head) return Classifier::kNew;
  return options.evaluate ? Classifier::kTested : Classifier::kTrained;
}

}  // namespace

void check_outputs(const Options& options, std::optional<FolderLock>& lock) {
  check_common_files(options);
  if (options.evaluate) return;
  check_run_files(options, lock);
}

void check_place(const Options& options) {
  if (!options.resume || options.evaluate || options.is_given("--data")) return;
  sinter::examples::check_place(options, "<folder>");
}

void tell_unused_crops(const Options& options) {
  if (options.image_size == 0 || options.evaluate) return;
  for (const char* const option : {"--crop-padding", "--crop-mode"}) {
    if (options.typed.contains(option))
      complain("passed over, as --image-size {} crops images: {}", options.image_size, option);
  }
}

Start find_start(Options& options) {
  Start start{.checkpoint = find_checkpoint(options), .weights = {}, .metadata = {}};
  if (start.checkpoint) {
    start.metadata = read_metadata(*start.checkpoint);
  } else if (!options.load_weights.empty()) {
    start.weights = read_weights(options.load_weights, options.key);
    find_model(*start.weights);
    check_metadata(*start.weights);
    tell_of_data(*start.weights);
    start.metadata = start.weights->metadata;
    adopt(*start.weights, options);
  }
  if (!start.checkpoint) {
    if (const std::string mistake = check_normalization(options); !mistake.empty()) throw Error(mistake);
    const std::string mistake = check_finetune(options.finetune, start.weights.has_value(), options.evaluate);
    if (!mistake.empty()) throw Error(mistake);
  }
  return start;
}

void check_recipe(const Options& options, const LoadedCheckpoint& checkpoint) {
  const Recipe before = read_recipe(checkpoint.data), now = recipe_of(options);
  if (before.at("--model") != options.model) {
    throw Error(fmt::format("{} is of a {}; it cannot go on as a {}", checkpoint.folder.string(),
                            before.at("--model"), options.model));
  }
  if (options.evaluate) return;
  check_changes(changes(before, now, has_recipe(checkpoint.data)), options.change_recipe,
                options.checkpoints);
}

void check_same_start(const Communicator& ranks, const Start& start, const Options& options,
                      const Data& data) {
  if (ranks.size() == 1) return;
  const auto text = [](auto value) { return fmt::format("{}", value); };
  const std::vector<Fact> of_data = {
      {"the kind of data", data.kind, data.name},
      {"the number of training images", text(data.train->size()), data.name},
      {"the number of test images", text(data.test->size()), data.name},
      {"the number of classes", text(data.train->num_classes()), data.name},
      {"the training images (their fingerprint)", fingerprint_text(*data.train), data.name},
      {"the test images (their fingerprint)", fingerprint_text(*data.test), data.name},
      {"the images to choose by (their fingerprint)", fingerprint_text(*data.judge()), data.name}};
  sinter::examples::check_same_start(ranks, facts_of(options, start.checkpoint, of_data, recipe_of(options)));
}

Meaning agree_on_meaning(const Options& options, const Start& start, const Data& data,
                         const Communicator& ranks) {
  Meaning meaning{.metadata = describe_model(options, *data.train, {{}, {}})};
  ModelMetadata& now = meaning.metadata;
  if (start.metadata && start.checkpoint && !options.evaluate)
    meaning.same_data = check_same_data(start.source(), *start.metadata, now, options.change_recipe);
  if (start.metadata && options.evaluate) check_same_classes(start.source(), *start.metadata, now);
  if (start.checkpoint) check_weights(start.source(), start.checkpoint->data.part("model"), now);
  if (start.weights) check_weights(start.source(), start.weights->state, now, classifier_of(options));
  // Of weights that fit, whose images then have the data's channels.
  sinter::nn::data::Normalization normalization =
      choose_normalization(options, start, data, ranks.rank() == 0);
  share(normalization, ranks);
  now.mean = normalization.mean;
  now.std = normalization.std;
  if (start.metadata && options.evaluate) return {.metadata = *start.metadata};
  if (start.metadata && start.weights) {
    const std::string changes = sinter::nn::describe_class_changes(start.metadata->classes, now.classes);
    if (!changes.empty())
      say("{} is of other classes, whose place the data's take: {}\n", start.source(), changes);
  }
  return meaning;
}

}  // namespace train_resnet
