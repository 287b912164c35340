// train_insightface: trains a network that tells faces apart, as InsightFace does.
//
//   train_insightface --data faces --verify faces/lfw.bin --checkpoints run1   # train.rec, train.idx,
//   property train_insightface --data people/train --verify people/others               # folders of people
//   train_insightface --synthetic 10572 --max-steps 200                        # how fast is it?
//   train_insightface --checkpoints run1 --resume                              # goes on, bit for bit
//   train_insightface --evaluate --load-weights run1/best.safetensors --verify agedb_30.bin
//   train_insightface --embed photos --output photos.csv --load-weights run1/best.safetensors
//   train_insightface --ijb ijbc --load-weights run1/best.safetensors
//
// The data flows: data.cpp gives batches of faces, model.cpp the network that turns them into embeddings and
// the centres that these are held against, trainer.cpp makes steps, which trainer/trainer_base.cpp repeats,
// verifier.cpp tells how good the embeddings are.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/checkpoint/safetensors.h>

#include "clean.h"
#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"
#include "data.h"
#include "embedder.h"
#include "ijb.h"
#include "model.h"
#include "options.h"
#include "recipe/recipe_file.h"
#include "run/left_files.h"
#include "run/model_files.h"
#include "run/output_files.h"
#include "trainer.h"
#include "trainer/trainer_plan.h"
#include "trainer/trainer_run.h"
#include "verifier.h"

namespace {

using namespace train_insightface;
namespace examples = sinter::examples;
using examples::say;
using examples::stop_signal;
using sinter::Communicator;
using sinter::Error;
using sinter::nn::LoadedCheckpoint;

/// Throws Error that names the option unless everything that the options ask for can be written. The lock
/// keeps other processes from training in the same folder of checkpoints.
void check_outputs(const Options& options, std::optional<examples::FolderLock>& lock) {
  check_common_files(options);
  if (!options.output.empty()) examples::check_file("--output", options.output);
  if (!options.clean.empty()) examples::check_file("--clean", options.clean);
  if (!options.roc.empty()) check_curves(options.roc);
  if (options.trains()) check_run_files(options, lock);
}

/// Throws Error that names the option unless the disks have room for what a run will write.
void check_room(const Options& options, const Trainer& trainer) {
  const auto backbone = sizeof(float) * static_cast<uint64_t>(trainer.parameter_count());
  const auto centres =
      sizeof(float) * static_cast<uint64_t>(trainer.centres().classes() * trainer.centres().row_width());
  const uint64_t averages = options.ema > 0 ? backbone : 0;
  check_room(options, backbone,
             trainer.epochs_left() > 0 ? options.weight_copies() * (backbone + centres) + averages : 0);
}

/// The checkpoint that --resume goes on with, whose options then hold wherever the command line says nothing.
std::optional<LoadedCheckpoint> find_checkpoint(Options& options) {
  if (!options.resume) return std::nullopt;
  auto checkpoint = sinter::nn::CheckpointFolder(options.checkpoints).load_latest();
  if (checkpoint) {
    examples::check_program(*checkpoint, "backbone", "model", "train_resnet");
    adopt(read_recipe(checkpoint->data), options);
  }
  if (const std::string mistake = check_optimizer(options); !mistake.empty()) throw Error(mistake);
  if (checkpoint) {
    if (!options.is_given("--data") && !options.is_given("--synthetic")) {
      options.synthetic = checkpoint->data.value<int64_t>("synthetic");
      if (const auto paths = examples::read_paths("data", checkpoint->data); !paths.empty())
        options.data = paths.front();
      if (const auto paths = examples::read_paths("keep_images", checkpoint->data);
          !paths.empty() && !options.is_given("--keep-images"))
        options.keep_images = paths.front();
    }
    if (!options.is_given("--verify")) options.verify = examples::read_paths("verify", checkpoint->data);
    return checkpoint;
  }
  if (!options.trains() && options.load_weights.empty())
    throw Error(fmt::format("there is no checkpoint in {}", options.checkpoints));
  if (options.trains()) say("no checkpoint yet in {}\n", options.checkpoints);
  return std::nullopt;
}

/// Refuses a run that would go on with another recipe without being told to.
void check_recipe(const Options& options, const LoadedCheckpoint& checkpoint) {
  const Recipe before = read_recipe(checkpoint.data), now = recipe_of(options);
  for (const char* option : {"--backbone", "--dims", "--image-size"}) {
    if (before.at(option) != now.at(option))
      throw Error(fmt::format("{} has {} {}; it cannot go on with {}", checkpoint.folder.string(), option,
                              before.at(option), now.at(option)));
  }
  const std::pair<const char*, const char*> usual[] = {{"--width", "64"}, {"--sub-centres", "1"}};
  for (const auto& [option, value] : usual) {  // which recipes do not hold
    const std::string had = examples::value_or(before, option, value),
                      has = examples::value_or(now, option, value);
    if (had != has)
      throw Error(
          fmt::format("{} has {} {}; it cannot go on with {}", checkpoint.folder.string(), option, had, has));
  }
  examples::check_changes(examples::changes(before, now, true), options.change_recipe, options.checkpoints);
}

void describe_run(const Options& options, const TrainingData& data, const std::vector<FacePairs>& pairs,
                  sinter::Device device) {
  std::string text = fmt::format(
      "{} ({}): {} of {}\n{}\n{}", data.name, data.kind, examples::counted(data.faces->size(), "image"),
      examples::counted(data.faces->num_classes(), "identity"),
      sinter::backend_of(device).describe(device.index), describe(options, data.faces->size()));
  for (const FacePairs& faces : pairs)
    text += fmt::format("  {:<8} {}: {} of {}\n", "verify", faces.name,
                        examples::counted(faces.pairs.size(), "pair"),
                        examples::counted(faces.images->size(), "image"));
  say("{}", examples::wrap(text, examples::text_columns(stdout), 11));
}

/// Writes and tells what came of the run, complete or not. Gives the exit code.
int finish(const Options& options, Trainer& trainer, bool complete) {
  examples::Ending ending;
  write_weights(
      ending, options, trainer, [&] { return trainer.tested_weights(); },
      [&] { examples::export_model(trainer.tested_backbone(), trainer.metadata(), options.exported); });
  write_report(ending, options, trainer, trainer.report(complete));
  say("\n{}", examples::list_left({.checkpoints = options.checkpoints,
                                   .save_weights = options.save_weights,
                                   .exported = options.exported.path,
                                   .report = options.report,
                                   .table = {},
                                   .log_folder = options.log_folder(),
                                   .has_best = trainer.best_is_saved()}));
  if (complete && trainer.best().accuracy >= 0) {
    say("best verification accuracy: {:.2f} % at step {}\n", 100 * trainer.best().accuracy,
        trainer.best().step);
  } else if (!complete) {
    say("stopped{}\n", examples::how_to_go_on(options));
  }
  if (ending.failed()) return 1;
  return !complete && trainer.stopped_by() != 0 ? 128 + trainer.stopped_by() : 0;
}

/// Throws Error, which says what differs, on all ranks unless they all start alike.
void check_same_start(const Communicator& ranks, const std::optional<LoadedCheckpoint>& checkpoint,
                      const Options& options, const TrainingData& data, const std::vector<FacePairs>& pairs) {
  if (ranks.size() == 1) return;
  const auto text = [](auto value) { return fmt::format("{}", value); };
  std::vector<examples::Fact> of_data = {
      {"the kind of data", data.kind, data.name},
      {"the number of images", text(data.faces->size()), data.name},
      {"the number of identities", text(data.faces->num_classes()), data.name},
      {"the images (their fingerprint)", examples::fingerprint_text(*data.faces), data.name}};
  for (const FacePairs& faces : pairs)
    of_data.push_back({"--verify " + faces.name, text(faces.pairs.size())});
  examples::check_same_start(ranks, facts_of(options, checkpoint, of_data, recipe_of(options)));
}

/// As many of the pairs as a plan tries, of which nothing is told but the time.
std::vector<FacePairs> tried_pairs(const std::vector<FacePairs>& all, const Options& options,
                                   sinter::Device device, const Communicator& ranks,
                                   examples::TestSample& sample) {
  std::vector<FacePairs> tried;
  for (const FacePairs& faces : all) {
    const int64_t size = faces.images->size();
    const int64_t pairs = std::min<int64_t>(examples::tried_images(options, device, size) / 2,
                                            static_cast<int64_t>(faces.pairs.size()));
    tried.push_back({faces.name, faces.images, {faces.pairs.begin(), faces.pairs.begin() + pairs}, {}, {}});
    sample.images += 2 * pairs / ranks.size();
    sample.of += size / ranks.size();
  }
  return tried;
}

int train(Options& options, sinter::Device device, const std::optional<LoadedCheckpoint>& checkpoint,
          const Communicator& ranks) {
  identify_run(checkpoint, ranks, options);
  std::optional<sinter::nn::State> start;
  if (!checkpoint && !options.load_weights.empty()) {
    const examples::WeightsFile weights = read_weights(options.load_weights, options);
    examples::tell_of_data(weights);
    start = weights.state;
  }
  const TrainingData data = open_training_data(options);
  const std::vector<FacePairs> pairs = open_all_pairs(options.verify);
  if (checkpoint) check_recipe(options, *checkpoint);
  check_same_start(ranks, checkpoint, options, data, pairs);
  if (options.plan) prepare_plan(options);
  const sinter::nn::ModelMetadata metadata =
      describe_model(options, without_many_names(examples::describe_data(*data.faces)));
  examples::TestSample sample;
  const std::vector<FacePairs> tried = tried_pairs(pairs, options, device, ranks, sample);
  settle_batch(options, data.faces->size(), sample, ranks, [&] {
    return std::make_unique<Trainer>(options, device, data, tried, metadata, start, ranks);
  });
  describe_run(options, data, pairs, device);
  if (ranks.size() > 1) {
    say("  {:<8} {} ({}), {} of each batch and about {} on each\n", "ranks", ranks.size(),
        ranks.environment().launcher,
        examples::counted(options.batch_of(data.faces->size()) / ranks.size(), "image"),
        examples::counted(data.faces->num_classes() / ranks.size(), "identity"));
  }
  bool same_data = true;
  if (const auto before = checkpoint ? examples::read_metadata(*checkpoint) : std::nullopt)
    same_data = examples::check_same_data(checkpoint->folder.string(), without_many_names(*before), metadata,
                                          options.change_recipe);
  if (!options.write_recipe.empty()) examples::write_recipe_file(options.write_recipe, recipe_of(options));
  examples::catch_stop_signals();
  Trainer trainer(options, device, data, options.plan ? tried : pairs, metadata, start, ranks);
  say("  {:<8} {:.2f} million, and {:.2f} million of centres\n\n", "weights",
      static_cast<double>(trainer.parameter_count()) / 1e6,
      static_cast<double>(trainer.centres().classes() * trainer.centres().row_width()) / 1e6);
  if (options.plan) {
    trainer.tell_plan(sample);
    return trainer.stopped_by() != 0 ? 128 + trainer.stopped_by() : 0;
  }
  if (checkpoint) trainer.restore(*checkpoint, same_data);
  if (ranks.rank() == 0) check_room(options, trainer);
  const bool complete = trainer.train();
  data.damaged->tell();
  return finish(options, trainer, complete);
}

/// The backbone's weights, or their averages if there are any.
sinter::nn::State trained_weights(const sinter::nn::CheckpointData& data) {
  sinter::nn::State weights = data.part("backbone");
  if (!data.tensors.contains("average")) return weights;
  for (auto& [name, value] : sinter::nn::strip_prefix("average.", data.part("average")))
    weights[name] = value;
  return weights;
}

/// A backbone with the weights of a checkpoint or of --load-weights, on the device. Exports it if asked.
sinter::nn::AnyModule trained_backbone(Options& options, sinter::Device device,
                                       const std::optional<LoadedCheckpoint>& checkpoint) {
  const examples::WeightsFile weights =
      checkpoint ? examples::WeightsFile{checkpoint->folder.string(), trained_weights(checkpoint->data),
                                         examples::read_metadata(*checkpoint, false)}
                 : read_weights(options.load_weights, options);
  const sinter::nn::AnyModule backbone = make_backbone(options);
  examples::load_weights(weights.source, weights.state, backbone, weights.metadata);
  if (!options.exported.path.empty()) {
    const sinter::nn::ModelMetadata data = weights.metadata.value_or(sinter::nn::ModelMetadata());
    examples::export_model(backbone, describe_model(options, data), options.exported);
  }
  sinter::settings::set_allow_tf32(*options.precision == "tf32");
  backbone.to(device);
  if (is_half(compute_dtype(options))) backbone.to_mixed(compute_dtype(options));
  return backbone;
}

int evaluate(Options& options, sinter::Device device, const std::optional<LoadedCheckpoint>& checkpoint) {
  const sinter::nn::AnyModule backbone = trained_backbone(options, device, checkpoint);
  if (options.verify.empty() && !options.exported.path.empty()) return 0;
  if (options.verify.empty()) throw Error("--evaluate needs pairs: --verify <path>");
  examples::catch_stop_signals();
  std::vector<VerifiedSet> results;
  for (const FacePairs& faces : open_all_pairs(options.verify)) {
    std::optional<VerifiedSet> result = verify(faces, backbone, options, device);
    if (!result) return 128 + stop_signal();
    say("{}\n{}", examples::wrap(to_string(*result), examples::text_columns(stdout), 2),
        table_of_folds(*result));
    results.push_back(std::move(*result));
  }
  if (!options.roc_folder().empty()) write_curves(options.roc_folder(), results);
  if (!options.report.empty())
    examples::write_text(options.report, examples::to_json_text({{"verify", to_json(results)}}));
  return 0;
}

int write_embeddings(Options& options, sinter::Device device,
                     const std::optional<LoadedCheckpoint>& checkpoint) {
  std::vector<std::string> paths;
  const auto images = open_image_tree("--embed", options.embed, paths);
  check_embeddings_file(options.output, paths);
  const sinter::nn::AnyModule backbone = trained_backbone(options, device, checkpoint);
  examples::catch_stop_signals();
  const std::optional<Embeddings> embeddings = options.embed_groups
                                                   ? embed_folders(backbone, options, device, images, paths)
                                                   : embed(backbone, options, device, images);
  if (!embeddings) return 128 + stop_signal();
  write_embeddings(options.output, *embeddings, paths);
  say("{} of {} written to {}\n", examples::counted(embeddings->count(), "embedding"),
      examples::counted(embeddings->dims, "dimension"), options.output);
  return 0;
}

/// The cosines of each image to the centres of its own identity.
std::optional<std::vector<float>> own_cosines(const sinter::Tensor& centres, const TrainingData& data,
                                              const std::vector<int64_t>& labels,
                                              const sinter::nn::AnyModule& backbone, const Options& options,
                                              sinter::Device device) {
  const auto dims = static_cast<size_t>(options.dims), each = static_cast<size_t>(options.sub_centres);
  std::vector<float> cosines, centre(dims);
  size_t image = 0;
  const auto norms = for_each_embedding(
      backbone, options, device, data.faces, options.verify_flip == "sum", [&](std::span<float> row) {
        make_unit(row);
        const float* const first = centres.data<float>() + static_cast<size_t>(labels[image++]) * each * dims;
        for (size_t k = 0; k < each; ++k) {
          std::copy_n(first + k * dims, dims, centre.begin());
          make_unit(centre);
          cosines.push_back(static_cast<float>(1.0 - squared_distance(row, centre) / 2));
        }
      });
  return norms ? std::optional(std::move(cosines)) : std::nullopt;
}

int clean(Options& options, sinter::Device device, const std::optional<LoadedCheckpoint>& checkpoint) {
  if (!checkpoint || options.sub_centres < 2)
    throw Error(fmt::format("--clean needs a run of --sub-centres 2 or more in {}", options.checkpoints));
  const TrainingData data = open_training_data(options);
  const sinter::Tensor centres = checkpoint->data.part("centres").at("weight");
  if (centres.size(0) != data.faces->num_classes())
    throw Error(fmt::format("{} is of {}, and the data has {}", checkpoint->folder.string(),
                            examples::counted(centres.size(0), "identity"), data.faces->num_classes()));
  if (centres.size(1) != options.sub_centres * options.dims)
    throw Error(fmt::format("{} has rows of {} weights in its centres, which are not --sub-centres {} of {}",
                            checkpoint->folder.string(), centres.size(1), options.sub_centres,
                            examples::counted(options.dims, "dimension")));
  if (const auto before = examples::read_metadata(*checkpoint))
    examples::check_same_data(checkpoint->folder.string(), without_many_names(*before),
                              without_many_names(examples::describe_data(*data.faces)),
                              options.change_recipe);
  const sinter::nn::AnyModule backbone = trained_backbone(options, device, checkpoint);
  examples::catch_stop_signals();
  const std::vector<int64_t> labels = labels_of(*data.faces);
  const auto cosines = own_cosines(centres, data, labels, backbone, options, device);
  if (!cosines) return 128 + stop_signal();
  const std::vector<KeptImage> kept = clean_images(labels, *cosines, options.sub_centres);
  write_kept(options.clean, *data.faces, kept);
  say("{} of {} are kept, as {} lists them for --keep-images\n", kept.size(),
      examples::counted(labels.size(), "image"), options.clean);
  return 0;
}

int evaluate_ijb(Options& options, sinter::Device device, const std::optional<LoadedCheckpoint>& checkpoint) {
  const sinter::nn::data::IjbSet set = open_ijb_set(options);
  examples::catch_stop_signals();
  std::optional<sinter::nn::Templates> templates;
  if (options.ijb_embeddings.empty()) {
    const sinter::nn::AnyModule backbone = trained_backbone(options, device, checkpoint);
    templates = embed_templates(set, backbone, options, device);
  } else {
    templates = read_templates(set, options);
  }
  const auto result = templates ? compare_templates(set, *templates) : std::nullopt;
  if (!result) return 128 + stop_signal();
  say("{}", to_table(*result));
  if (!options.roc.empty()) write_curve(options.roc, result->name, result->curve);
  if (!options.report.empty())
    examples::write_text(options.report, examples::to_json_text({{"ijb", to_json(*result, options)}}));
  return 0;
}

int run(Options options, const Communicator& ranks, sinter::Device device) {
  const bool says_data = !options.data.empty() || options.synthetic > 0;
  if (options.resume && options.trains() && !says_data) examples::check_place(options, "<path>");
  // The lock comes before the checkpoint is read: a run that ends may write one more.
  std::optional<examples::FolderLock> lock;
  if (ranks.rank() == 0 && !options.plan) check_outputs(options, lock);
  const std::optional<LoadedCheckpoint> checkpoint = find_checkpoint(options);
  if (options.threads > 0) sinter::set_num_threads(options.threads);
  sinter::manual_seed(options.seed);
  complete(options, options.plans_for_gpu() ? sinter::Device::cuda() : device);
  if (options.evaluate) return evaluate(options, device, checkpoint);
  if (!options.embed.empty()) return write_embeddings(options, device, checkpoint);
  if (!options.ijb.empty()) return evaluate_ijb(options, device, checkpoint);
  if (!options.clean.empty()) return clean(options, device, checkpoint);
  return train(options, device, checkpoint, ranks);
}

/// What tells this run from others that may be given the same port: what must be the same on all ranks.
std::string purpose_of(const Options& options) {
  return fmt::format("train_insightface --batch {} --epochs {} --seed {}", options.batch.value_or(0),
                     options.epochs.value_or(0), options.seed);
}

int start(Options& options, char** argv) {
  return run_ranks(options, argv, purpose_of(options), [&](const Communicator& ranks, sinter::Device device) {
    if (ranks.size() > 1 && !options.trains())
      throw Error(fmt::format("{} is of one process, but {} were started", options.only(), ranks.size()));
    be_one_of_many(options, ranks);
    return run(options, ranks, device);
  });
}

}  // namespace

int main(int argc, char** argv) {
  examples::catch_save_signals();
  return examples::run_program([&] {
    Options options;
    if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
    examples::ignore_write_signals(options.leaves_files());
    return start(options, argv);
  });
}
