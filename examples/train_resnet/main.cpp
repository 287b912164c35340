// train_resnet: trains a ResNet on images.
//
// Without options it trains a ResNet-20 (0.27 million parameters) on the 1,437 handwritten digits (8x8, grey)
// that ship with Sinter, and tests it on 360 others: about 99 % in half a minute on two cores. With --data it
// takes your own:
//
//   train_resnet --data cifar10 --epochs 30                        # CIFAR binaries or folders of JPEGs
//   train_resnet --data photos --model resnet50 --image-size 224   # train/<class>/*.jpg and test/...
//   train_resnet --data cifar10 --checkpoints run1                 # keeps checkpoints in run1
//   train_resnet --checkpoints run1 --resume                       # goes on where it stopped, bit for bit
//   train_resnet --checkpoints run1 --resume --epochs 60           # ... and further
//   train_resnet --checkpoints run1 --resume --evaluate            # tests the newest checkpoint
//   train_resnet --predict holiday --load-weights run1/best.safetensors --output holiday.csv
//   tensorboard --logdir run1                                      # shows how it went, as run1/curves.svg
//   does
//
// A run goes on with the options that it began with; one that is given another value is refused unless
// --change-recipe insists. On a GPU it trains in mixed precision: --precision f32, tf32 or mixed-bf16 changes
// that.

#include <fmt/core.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>

#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"
#include "options.h"
#include "predict.h"
#include "recipe/recipe_file.h"
#include "run/left_files.h"
#include "start.h"
#include "trainer.h"
#include "trainer/trainer_plan.h"
#include "trainer/trainer_run.h"

namespace {

using namespace train_resnet;
using sinter::Communicator;
using sinter::Error;
using sinter::examples::catch_stop_signals;
using sinter::examples::counted;
using sinter::examples::Ending;
using sinter::examples::ignore_write_signals;
using sinter::examples::say;

void describe_run(const Options& options, const Data& data, sinter::Device device) {
  const auto image = data.train->get(0).image;
  std::string text =
      fmt::format("{} ({}): {} training and {} in {}", data.name, data.kind, data.train->size(),
                  counted(data.test->size(), "test image"), counted(data.train->num_classes(), "class"));
  if (data.validation != nullptr) text += fmt::format(", {} more to choose by", data.validation->size());
  if (options.image_size == 0) text += fmt::format(", {}x{}x{}", image.height, image.width, image.channels);
  text += fmt::format("\n{}\n{}", sinter::backend_of(device).describe(device.index),
                      describe(options, data.train->size()));
  say("{}", sinter::examples::wrap(text, sinter::examples::text_columns(stdout), 11));
}

sinter::examples::LeftFiles left_files(const Options& options, const Trainer& trainer) {
  sinter::examples::LeftFiles files;
  files.save_weights = options.save_weights;
  files.exported = options.exported.path;
  files.report = options.report;
  if (options.evaluate) return files;
  files.checkpoints = options.checkpoints;
  files.table = options.log;
  files.log_folder = options.log_folder();
  files.has_best = trainer.best_is_saved();
  return files;
}

/// Writes and tells what came of the run, complete or not. Gives the exit code.
int finish(const Options& options, Trainer& trainer, bool complete, const Communicator& ranks) {
  Ending ending;
  write_weights(
      ending, options, trainer, [&] { return trainer.tested_weights(); },
      [&] {
        const sinter::nn::ResNet model = sinter::nn::clone(trainer.model());
        model.load_state(trainer.tested_weights());
        sinter::examples::export_model(model, trainer.metadata(), options.exported);
      });
  std::optional<TestResult> result;
  try {
    if (complete) result = trainer.final_test();
    if (result) trainer.show_mistakes(*result);
  } catch (const std::exception& error) {
    if (ranks.size() > 1) throw;  // the others wait for this one's part of the test
    ending.fail(error.what());
  }
  const std::string report = trainer.report(result ? &*result : nullptr);
  write_report(ending, options, trainer, report);
  if (result) say("\n{}", result->confusion.to_string(sinter::examples::text_columns(stdout)));
  if (ranks.rank() == 0)
    say("\n{}{}{}", result ? trainer.weakest(*result) : "", options.evaluate ? "" : trainer.best_so_far(),
        sinter::examples::list_left(left_files(options, trainer)));
  if (result) {
    say("test accuracy{}: {:.1f} %\n", trainer.is_judged_apart() ? " of the best weights" : "",
        100.0 * result->confusion.accuracy());
  } else if (!complete || trainer.stopped_by() != 0) {
    say("stopped{}\n", options.evaluate ? "" : how_to_go_on(options));
  }
  trainer.tell_damaged();
  if (ending.failed()) return 1;
  return !result && trainer.stopped_by() != 0 ? 128 + trainer.stopped_by() : 0;
}

/// The data with as much of the tests as a plan tries.
Data with_tried_tests(Data data, const Options& options, sinter::Device device, const Communicator& ranks,
                      sinter::examples::TestSample& sample) {
  sample.batch = kTestBatch;
  data.test = sinter::examples::tried_part(data.test, options, device, ranks, sample);
  return data;
}

int run(Options options, const Communicator& ranks, sinter::Device device) {
  check_place(options);
  std::optional<sinter::examples::FolderLock> lock;
  if (ranks.rank() == 0 && !options.plan) check_outputs(options, lock);
  const Start start = find_start(options);
  if (options.plan) prepare_plan(options);
  identify_run(start.checkpoint, ranks, options);
  if (options.threads > 0) sinter::set_num_threads(options.threads);
  sinter::manual_seed(options.seed);
  const Data data = open_data(options);
  complete(options, *data.train, options.plans_for_gpu() ? sinter::Device::cuda() : device);
  if (ranks.rank() == 0) tell_unused_crops(options);
  settle_stem(start.weights, *data.train, options);
  if (start.checkpoint) check_recipe(options, *start.checkpoint);
  check_same_start(ranks, start, options, data);
  sinter::examples::TestSample sample;
  const Data tried = with_tried_tests(data, options, device, ranks, sample);
  settle_batch(options, data.train->size(), sample, ranks, [&] {
    const auto channels = static_cast<size_t>(data.train->get(0).image.channels);
    const auto metadata =
        describe_model(options, *data.train, {std::vector(channels, 0.0F), std::vector(channels, 1.0F)});
    return std::make_unique<Trainer>(options, device, tried, metadata, start.weights, ranks);
  });
  describe_run(options, data, device);
  data.damaged->tell();
  if (ranks.size() > 1) {
    const std::string share =
        options.evaluate ? ""
                         : fmt::format(", {} of each batch on each",
                                       counted(options.batch_of(data.train->size()) / ranks.size(), "image"));
    say("  {:<8} {} ({}){}\n", "ranks", ranks.size(), ranks.environment().launcher, share);
  }
  const Meaning meaning = agree_on_meaning(options, start, data, ranks);
  if (!options.write_recipe.empty() && ranks.rank() == 0)
    sinter::examples::write_recipe_file(options.write_recipe, recipe_of(options));

  catch_stop_signals();
  Trainer trainer(options, device, options.plan ? tried : data, meaning.metadata, start.weights, ranks);
  if (options.image_size > 0) say("  {:<8} {}\n", "decoding", trainer.decoder());
  say("  {:<8} {:.2f} million\n\n", "weights", static_cast<double>(trainer.model().parameter_count()) / 1e6);
  if (options.plan) {
    trainer.tell_plan(sample);
    return trainer.stopped_by() != 0 ? 128 + trainer.stopped_by() : 0;
  }
  if (start.checkpoint) {
    options.evaluate ? trainer.restore_model(*start.checkpoint)
                     : trainer.restore(*start.checkpoint, meaning.same_data);
  }
  const auto weight_bytes = sizeof(float) * static_cast<uint64_t>(trainer.model().parameter_count());
  const uint64_t copies = options.weight_copies() + (options.ema > 0 ? 1 : 0);
  const bool saves = !options.evaluate && trainer.epochs_left() > 0;
  if (ranks.rank() == 0) check_room(options, weight_bytes, saves ? copies * weight_bytes : 0);
  const bool is_complete = options.evaluate || trainer.train();
  return finish(options, trainer, is_complete, ranks);
}

/// What tells this run from others that may be given the same port: what must be the same on all ranks.
std::string purpose_of(const Options& options) {
  return fmt::format("train_resnet --model {} --optimizer {} --batch {} --epochs {} --seed {}", options.model,
                     options.optimizer, options.batch.value_or(0), options.epochs.value_or(0), options.seed);
}

int start(Options& options, char** argv) {
  return run_ranks(options, argv, purpose_of(options), [&](const Communicator& ranks, sinter::Device device) {
    be_one_of_many(options, ranks);
    return run(options, ranks, device);
  });
}

}  // namespace

int main(int argc, char** argv) {
  sinter::examples::catch_save_signals();
  return sinter::examples::run_program([&] {
    Options options;
    if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
    ignore_write_signals(options.leaves_files());
    if (options.prediction.wanted()) return predict(options);
    if (options.only_exports()) return export_weights(options);
    return start(options, argv);
  });
}
