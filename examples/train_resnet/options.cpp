#include "options.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>

#include "recipe.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "run/help.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::file;
using examples::folder;
using examples::kMany;
using examples::number;
using examples::one_of;
using examples::whole;

void add_model_options(CLI::App& app, Options& options) {
  app.add_option("--data", options.data,
                 "Folder with the data: IDX files, CIFAR binaries, train.rec and val.rec, train*.tar and "
                 "val*.tar, or "
                 "train/<class>/*.jpg and test/<class>/*.jpg; <class>/*.jpg or *.tar with --split. "
                 "Default: the handwritten digits that ship with Sinter")
      ->check(folder());
  app.add_option(
         "--split", options.split,
         "Test with this share of each class, drawn by --seed, as the folder has no test images; 0: it has")
      ->capture_default_str()
      ->check(number(0, 0.9));
  app.add_option("--model", options.model, "Network")
      ->capture_default_str()
      ->check(one_of({"resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet18", "resnet34",
                      "resnet50", "resnet101", "resnet152"}));
  const auto set_layout = [&options](const std::string& layout) {
    options.layout = layout == "nhwc" ? sinter::Layout::kNHWC : sinter::Layout::kNCHW;
  };
  app.add_option_function<std::string>("--layout", set_layout,
                                       "Order of the axes inside the network (nhwc on a GPU, else nchw)")
      ->check(one_of({"nchw", "nhwc"}));
  app.add_option(
         "--precision", options.precision,
         "Arithmetic: float32, float32 with products in TF32, or 16 bits with float32 weights beside them "
         "(mixed-f16 on a GPU, else f32)")
      ->check(one_of({"f32", "tf32", "mixed-f16", "mixed-bf16"}));
  app.add_option("--image-size", options.image_size,
                 "Train on random resized crops of this size and test on centre crops, as photographs need; "
                 "0: images "
                 "have one size and keep it")
      ->capture_default_str()
      ->check(whole(0, 1024));
}

void add_optimizer_options(CLI::App& app, Options& options) {
  app.add_option("--optimizer", options.optimizer, "What changes the weights")
      ->capture_default_str()
      ->check(one_of({"sgd", "adamw", "lars", "lamb"}));
  app.add_option("--lr", options.lr,
                 "Largest learning rate (sgd: 0.1 for small sets, else 0.4; adamw: 0.003 and 0.002; lars: 8; "
                 "lamb: 0.01 and 0.008)")
      ->check(number(1e-9, 1e3));
  app.add_option("--schedule", options.schedule, "Learning rate over the run")
      ->capture_default_str()
      ->check(one_of({"one-cycle", "cosine", "step", "polynomial", "constant"}));
  app.add_option("--warmup", options.warmup, "Share of the run in which the learning rate rises")
      ->capture_default_str()
      ->check(number(0, 1));
  app.add_option("--momentum", options.momentum, "Momentum of sgd and lars")
      ->capture_default_str()
      ->check(number(0, 0.99999));
  const auto set_nesterov = [&options](int64_t count) { options.nesterov = count > 0; };
  app.add_flag_function("--nesterov,!--no-nesterov", set_nesterov,
                        "Nesterov's form of the momentum (on for sgd)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--trust-coefficient", options.trust_coefficient,
                 "Length of a step of lars in units of a weight's norm, times the learning rate")
      ->capture_default_str()
      ->check(number(1e-9, 1e3));
  app.add_option("--beta1", options.beta1, "What adamw and lamb keep of their mean of gradients at each step")
      ->capture_default_str()
      ->check(number(0, 0.99999));
  app.add_option("--beta2", options.beta2, "The same for their squares")
      ->capture_default_str()
      ->check(number(0, 0.9999999));
  app.add_option("--weight-decay", options.weight_decay,
                 "Weight decay (sgd: 0.0005; adamw: 0.05; lars: 0.0001; lamb: 0.02)")
      ->check(number(0, 1e3));
  app.add_flag("--decay-norms", options.decay_norms, "Weight decay on batch norms and biases too");
  app.add_option(
         "--ema", options.ema,
         "Keep moving averages of the weights, of which a step keeps this share, and test and save these; "
         "0: none")
      ->capture_default_str()
      ->check(number(0, 0.9999999));
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: no limit")
      ->capture_default_str()
      ->check(number(0, 1e9));
}

void add_recipe_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "Passes over the training data (default 30)")
      ->check(whole(1, 1'000'000));
  app.add_option("--batch", options.batch,
                 "Images per step (32 for small sets, else 512 on a GPU and 128 on a CPU)")
      ->check(whole(1, 1'000'000));
  app.add_option(
         "--accumulate", options.accumulate,
         "Batches whose gradients make one step; those left over at the end of an epoch are passed over")
      ->capture_default_str()
      ->check(whole(1, 1'000'000));
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norms see the batch of all processes together, else each that of its own part");
  app.add_option("--label-smoothing", options.label_smoothing, "Label smoothing (0 for small sets, else 0.1)")
      ->check(number(0, 1));
  app.add_option("--crop-padding", options.crop_padding,
                 "Shift training images by up to so many pixels (1 for small images, else 4)")
      ->check(whole(0, 1024));
  app.add_option("--crop-mode", options.crop_mode,
                 "What a shift brings in from beyond the border: black, or the image mirrored there "
                 "(reflect for colour images, else zero)")
      ->check(one_of({"zero", "reflect"}));
  const auto set_flip = [&options](int64_t count) { options.flip = count > 0; };
  app.add_flag_function("--flip,!--no-flip", set_flip,
                        "Mirror half of the training images (on for colour images)")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--seed", options.seed, "Seed of everything random")
      ->capture_default_str()
      ->check(whole(0, UINT64_MAX));
}

void add_run_options(CLI::App& app, Options& options) {
  app.add_option("--device", options.device, "cpu, cuda, cuda:<index>, or auto: a GPU if there is one")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option(
         "--gpus", options.gpus,
         "Train on so many GPUs of this machine, a process on each; --batch is that of all together. mpirun, "
         "srun and torchrun start as many processes themselves")
      ->check(whole(1, 1024));
  app.add_option("--processes", options.processes, "The same on the CPU")->check(whole(1, 1024));
  app.add_option(
         "--rank-timeout", options.rank_timeout,
         "Seconds that one operation may wait for the other processes of the run; then it ends with an "
         "error that names who is behind")
      ->capture_default_str()
      ->check(number(0.001, 1e9));
  app.add_option("--threads", options.threads,
                 "Threads that compute; 0: one per processor, shared with other processes of the run")
      ->capture_default_str()
      ->check(whole(0, 1024));
  app.add_option("--workers", options.workers,
                 "Threads that prepare batches; 0: none, in turns with training (1; on a GPU one less than "
                 "--threads, at most 8)")
      ->check(whole(0, 256));
  app.add_option(
         "--decode", options.decode,
         "Who decodes JPEGs for --image-size: the workers (cpu), the engines of the GPU (gpu) with the "
         "workers for files that these do not take, or the engines where there are some (auto)")
      ->capture_default_str()
      ->check(one_of({"auto", "cpu", "gpu"}));
  app.add_option(
         "--read-timeout", options.read_timeout,
         "Seconds that a worker may take for one image; then the run ends with an error, as where a drive "
         "has gone away; 0: no limit. Needs --workers")
      ->capture_default_str()
      ->check(number(0, 1e9));
  app.add_option("--max-damaged", options.max_damaged,
                 "Put up with so many damaged images of training, and of testing: each is named and replaced "
                 "by the next sound one; 0: the first ends the run")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.add_option("--max-steps", options.max_steps,
                 "Stop after so many steps, as Ctrl-C would; 0: train to the end")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.add_option(
         "--profile", options.profile,
         "Time so many steps op by op (the eleventh and later, of one epoch), and print where the time went")
      ->check(whole(0, kMany));
  app.add_flag(
      "--job,!--eager", options.job,
      "Make one job of the model's code and repeat it, or run that code op by op at every step (on)");
  app.add_option("--memory-limit", options.memory_limit,
                 "GiB that results inside a job's step may take; norms and activations are computed again to "
                 "keep to it. Weights, inputs and scratch come on top; 0: no limit")
      ->capture_default_str()
      ->check(number(0, 1e6));
  app.add_flag("--evaluate", options.evaluate,
               "Test only, without training: --load-weights, or a checkpoint by --checkpoints and --resume");
}

void add_file_options(CLI::App& app, Options& options) {
  app.add_option(
         "--checkpoints", options.checkpoints,
         "Folder in which checkpoints are kept: a new one, or that of the run which --resume goes on with")
      ->check(folder());
  app.add_option("--checkpoint-every", options.checkpoint_every, "Steps between checkpoints; 0: each epoch")
      ->capture_default_str()
      ->check(whole(0, kMany))
      ->needs("--checkpoints");
  app.add_flag("--resume", options.resume,
               "Go on from the newest sound checkpoint, if there is one, with its options; --epochs may grow")
      ->needs("--checkpoints");
  app.add_flag("--change-recipe", options.change_recipe,
               "Let --resume go on with other options than the checkpoint's")
      ->needs("--resume");
  app.add_option("--load-weights", options.load_weights,
                 "Start from a safetensors file, or one of PyTorch's (.pth, .pt), with torchvision's names")
      ->check(file());
  app.add_option("--save-weights", options.save_weights,
                 "Write the final weights to a safetensors file; those reached, if the run is stopped")
      ->check(file());
  examples::add_export_options(app, options.exported);
  app.add_option("--report", options.report,
                 "Write what came out to a JSON file: accuracy, seconds, images per second, memory")
      ->check(file());
  app.add_option("--trace", options.trace,
                 "Write every call of the steps of --profile to a JSON file for ui.perfetto.dev")
      ->check(file());
  app.add_option("--log", options.log, "Add a line per epoch to a CSV file")->check(file());
  app.add_option("--log-dir", options.log_dir,
                 "Folder for the run's log: scalars for TensorBoard and as lines of JSON, the picture "
                 "curves.svg, options and result as run.json and report.json (that of --checkpoints)")
      ->check(folder());
  app.add_option(
         "--log-every", options.log_every,
         "Steps between training losses in that log; 0: twenty times an epoch, but at least every 50 steps")
      ->capture_default_str()
      ->check(whole(0, kMany));
}

void add_options(CLI::App& app, Options& options) {
  app.option_defaults()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);  // a script's, then the user's
  app.option_defaults()->group(examples::kRecipeGroup);
  add_model_options(app, options);
  add_recipe_options(app, options);
  examples::add_augmentation_options(app, options.augmentation);
  add_optimizer_options(app, options);
  app.option_defaults()->group("Files");
  examples::add_recipe_file_options(app, options.recipe, options.write_recipe);
  add_file_options(app, options);
  app.option_defaults()->group(examples::kSystemGroup);
  add_run_options(app, options);
  app.set_version_flag("--version", "train_resnet of Sinter " SINTER_VERSION, "Print the version and exit");
  examples::set_help(
      app, {.first = {"--data", "--model", "--epochs", "--batch", "--lr"},
            .examples = {"train_resnet --data photos --split 0.1 --image-size 224 --model resnet18",
                         "train_resnet --data cifar10 --recipe cifar10_resnet18.json --checkpoints run1",
                         "train_resnet --checkpoints run1 --resume",
                         "train_resnet --checkpoints run1 --resume --evaluate"},
            .notes = examples::kExitCodes});
}

/// Mistakes in how options go together; empty if there is none.
std::string check_together(const Options& options) {
  if (options.evaluate && !options.resume && options.load_weights.empty()) {
    return fmt::format("--evaluate needs weights: {}",
                       options.checkpoints.empty()
                           ? "--load-weights <file>, or --checkpoints <folder> --resume"
                           : "add --resume for the newest checkpoint in " + options.checkpoints);
  }
  if (options.read_timeout > 0 && options.workers == 0) {
    return "--read-timeout needs --workers of at least 1: training cannot leave its own thread";
  }
  if (options.decode == "gpu" && options.image_size == 0 && !options.resume)
    return "--decode gpu needs --image-size: images that keep their size are decoded once, on the CPU";
  if (options.split > 0 && options.data.empty() && !options.resume)
    return "--split needs --data <folder>: the digits have test images";
  if (options.processes > 1 && options.gpus > 0) return "--processes and --gpus cannot both be given";
  if (options.gpus > 0 && options.device != "auto") return "--gpus chooses the devices; leave --device out";
  if (options.memory_limit > 0 && !options.job) return "--memory-limit is of jobs: leave --eager out";
  if (!options.trace.empty() && options.profile == 0) return "--trace needs --profile <steps>";
  if (options.is_given("--log-every") && options.log_folder().empty())
    return "--log-every needs --log-dir <folder> or --checkpoints <folder>";
  // On resume the optimiser may be the checkpoint's, which is not known yet.
  const bool knows_optimizer = !options.resume || options.is_given("--optimizer");
  if (const std::string mistake = check_optimizer(options); knows_optimizer && !mistake.empty())
    return mistake;
  const std::pair<const char*, const std::string&> files[] = {{"--save-weights", options.save_weights},
                                                              {"--export", options.exported.path},
                                                              {"--report", options.report},
                                                              {"--log", options.log},
                                                              {"--trace", options.trace},
                                                              {"--write-recipe", options.write_recipe}};
  for (const auto& [first, path] : files) {
    for (const auto& [second, other] : files) {
      if (first != second && !path.empty() && path == other)
        return fmt::format("{} and {} cannot both be {}", first, second, path);
    }
  }
  return {};
}

}  // namespace

std::string check_optimizer(const Options& options) {
  for (const char* option : {"--momentum", "--nesterov"}) {
    if (!options.has_momentum() && options.is_given(option))
      return fmt::format("{} is of --optimizer sgd and lars", option);
  }
  for (const char* option : {"--beta1", "--beta2"}) {
    if (options.has_momentum() && options.is_given(option))
      return fmt::format("{} is of --optimizer adamw and lamb", option);
  }
  if (options.optimizer != "lars" && options.is_given("--trust-coefficient"))
    return "--trust-coefficient is of --optimizer lars";
  return {};
}

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app("Trains a ResNet. Without options: a ResNet-20 on handwritten digits, in about half a minute.",
               "train_resnet");
  add_options(app, options);
  if (const auto code = examples::parse(app, argc, argv, options.given)) return code;
  options.words.assign(argv + 1, argv + argc);
  if (const auto code = examples::take_recipe(app, options.recipe, options.given,
                                              [&](const Recipe& recipe) { return adopt(recipe, options); }))
    return code;
  if (const std::string mistake = check_together(options); !mistake.empty())
    return examples::refuse("train_resnet", mistake);
  return std::nullopt;
}

void apply_words(const std::vector<std::string>& words, Options& options) {
  CLI::App app;
  add_options(app, options);
  examples::apply(app, words);
}

namespace {

/// What an optimiser is usually given: learning rates of small and of large sets, and a weight decay.
struct Usual {
  double small_lr, lr, weight_decay;
};

Usual usual_of(const std::string& optimizer) {
  if (optimizer == "adamw") return {0.003, 0.002, 0.05};
  if (optimizer == "lars") return {8.0, 8.0, 1e-4};
  if (optimizer == "lamb") return {0.01, 0.008, 0.02};
  return {0.1, 0.4, 5e-4};
}

}  // namespace

void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device) {
  const auto image = train.get(0).image;
  const bool small_set = train.size() < 10'000;
  const Usual usual = usual_of(options.optimizer);
  if (!options.epochs) options.epochs = 30;
  if (!options.batch) options.batch = small_set ? 32 : device.is_cuda() ? 512 : 128;
  if (!options.lr) options.lr = small_set ? usual.small_lr : usual.lr;
  if (!options.weight_decay) options.weight_decay = usual.weight_decay;
  if (!options.nesterov) options.nesterov = options.optimizer == "sgd";
  if (!options.label_smoothing) options.label_smoothing = small_set ? 0.0 : 0.1;
  // Computing is the GPU's there, and the processors are free.
  if (!options.workers) options.workers = device.is_cuda() ? std::clamp(sinter::num_threads() - 1, 1, 8) : 1;
  if (!options.precision) options.precision = device.is_cuda() ? "mixed-f16" : "f32";
  if (!options.layout) options.layout = device.is_cuda() ? sinter::Layout::kNHWC : sinter::Layout::kNCHW;
  if (!options.crop_padding) options.crop_padding = image.height < 20 ? 1 : 4;
  if (!options.crop_mode) options.crop_mode = image.channels == 3 ? "reflect" : "zero";
  if (!options.flip) options.flip = image.channels == 3;
  if (options.augmentation.mixes() && *options.batch == 1)
    throw sinter::InvalidArgument("--mixup and --cutmix mix images of a batch, but --batch is 1");
  const std::vector<double>& jitter = options.augmentation.color_jitter;
  if (!jitter.empty() && jitter[0] == 0 && jitter[1] == 0 && image.channels == 1)
    throw sinter::InvalidArgument("--color-jitter: grey images have no saturation and no hue to change");
}

sinter::DType compute_dtype(const Options& options) {
  if (*options.precision == "mixed-f16") return sinter::DType::kFloat16;
  if (*options.precision == "mixed-bf16") return sinter::DType::kBFloat16;
  return sinter::DType::kFloat32;
}

std::string describe(const Options& options) {
  std::string particulars =
      options.has_momentum()
          ? fmt::format("momentum {}{}", options.momentum, *options.nesterov ? " (Nesterov)" : "")
          : fmt::format("betas {} and {}", options.beta1, options.beta2);
  if (options.optimizer == "lars")
    particulars += fmt::format(", trust coefficient {}", options.trust_coefficient);
  if (options.ema > 0) particulars += fmt::format(", averages keep {}", options.ema);
  const std::string series =
      options.accumulate > 1 ? fmt::format(" {} times a step", options.accumulate) : "";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"model", fmt::format("{}, {}, {}", options.model, *options.precision, to_string(*options.layout))},
      {"run",
       fmt::format("{} epochs, batch {}{}, seed {}", *options.epochs, *options.batch, series, options.seed)},
      {options.optimizer,
       fmt::format("learning rate {} ({}, warm-up {:.0f} %), {}, weight decay {}", *options.lr,
                   options.schedule, 100 * options.warmup, particulars, *options.weight_decay)},
      {"images", options.image_size > 0
                     ? fmt::format("random crops resized to {}, {}", options.image_size,
                                   *options.flip ? "flipped at random" : "not flipped")
                     : fmt::format("shifted by up to {} pixels ({}), {}", *options.crop_padding,
                                   *options.crop_mode == "reflect" ? "mirrored at the border"
                                                                   : "black beyond the border",
                                   *options.flip ? "flipped at random" : "not flipped")},
      {"augment", examples::describe(options.augmentation)},
      {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
      {"loss", fmt::format("cross-entropy, label smoothing {}", *options.label_smoothing)},
  };
  std::string text;
  if (!options.recipe.empty()) text += fmt::format("  {:<8} {}\n", "recipe", options.recipe);
  for (const auto& [row, value] : rows) text += fmt::format("  {:<8} {}\n", row, value);
  return text;
}

}  // namespace train_resnet
