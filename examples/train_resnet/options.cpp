#include "options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/models/resnet_names.h>

#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "trainer/html_report.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::file;
using examples::folder;
using examples::kMany;
using examples::number;
using examples::one_of;
using examples::OptionTable;
using examples::whole;

constexpr examples::CommonHelp kHelp = {
    .gpus =
        "Train on so many GPUs of this machine, a process on each; --batch is that of all together. "
        "mpirun, srun and torchrun start as many processes themselves",
    .read_timeout =
        "Seconds that a worker may take for one image; then the run ends with an error, as where a drive "
        "has gone away; 0: no limit. Needs --workers",
    .max_damaged =
        "Put up with so many damaged images of training, and of testing: each is named and replaced "
        "by the next sound one; 0: the first ends the run",
    .evaluate = "Test only, without training: --load-weights, or a checkpoint by --checkpoints and --resume",
    .checkpoints =
        "Folder in which checkpoints are kept: a new one, or that of the run which --resume goes on with",
    .load_weights =
        "Start from a safetensors file, or one of PyTorch's (.pth, .pt), with torchvision's names",
    .save_weights =
        "Write the final weights to a safetensors file, or PyTorch's (.pth, .pt), as its name ends; those "
        "reached, if the run is stopped",
    .report = "Write what came out to a JSON file: accuracy, seconds, images per second, memory"};

void add_model_rows(OptionTable& table, Options& options) {
  table
      .add("--data", options.data, folder(),
           "Folder with the data: IDX files, CIFAR binaries, train.rec and val.rec, train*.tar and val*.tar, "
           "or train/<class>/*.jpg and test/<class>/*.jpg; <class>/*.jpg or *.tar with --split. Default: the "
           "handwritten digits that ship with Sinter")
      .not_kept();
  table
      .add("--split", options.split, number(0, 0.9),
           "Test with this share of each class, drawn by --seed, as the folder has no test images; 0: it has")
      .kept_unless("0");
  table.add("--model", options.model, one_of(sinter::nn::resnet_names()), "Network");
  add_network_rows(table, options.network);
  add_arithmetic_rows(table, options);
  table.add("--image-size", options.image_size, whole(0, 1024),
            "Train on random resized crops of this size and test on centre crops, as photographs need; "
            "0: images have one size and keep it");
  table
      .add("--test-crop", options.test_crop, number(0.1, 1),
           "Share of a test image's shorter side that the centre crop of --image-size keeps")
      .kept_unless("0.875");
}

void add_recipe_rows(OptionTable& table, Options& options) {
  table.add("--epochs", options.epochs, whole(1, 1'000'000), "Passes over the training data (default 30)");
  table.add("--batch", options.batch, whole(1, 1'000'000),
            "Images per step (32 for small sets, else 512 on a GPU and 128 on a CPU)");
  table
      .add("--accumulate", options.accumulate, whole(1, 1'000'000),
           "Batches whose gradients make one step; those left over at the end of an epoch are passed over")
      .kept_unless("1");
  add_sync_batch_norm_row(table, options);
  table.add("--label-smoothing", options.label_smoothing, number(0, 1),
            "Label smoothing (0 for small sets, else 0.1)");
  add_loss_rows(table, options.loss);
  table.add("--crop-padding", options.crop_padding, whole(0, 1024),
            "Shift training images by up to so many pixels (1 for small images, else 4)");
  table.add("--crop-mode", options.crop_mode, one_of({"zero", "reflect"}),
            "What a shift brings in from beyond the border: black, or the image mirrored there "
            "(reflect for colour images, else zero)");
  table.add("--flip,!--no-flip", options.flip, "Mirror half of the training images (on for colour images)");
  add_seed_row(table, options);
}

void add_optimizer_rows(OptionTable& table, Options& options) {
  const std::vector<std::string> all = {"sgd", "adamw", "adam", "rmsprop", "lars", "lamb"};
  table.add("--optimizer", options.optimizer, one_of(all), "What changes the weights");
  table
      .add("--lr", options.lr, number(1e-9, 1e3),
           "Largest learning rate (sgd: 0.1 for small sets, else 0.4; adamw, adam: 0.003 and 0.002; rmsprop: "
           "0.001; lars: 8; lamb: 0.01 and 0.008)")
      .of_optimizers(all);
  table.add("--schedule", options.schedule,
            one_of({"one-cycle", "cosine", "step", "multi-step", "polynomial", "plateau", "constant"}),
            "Learning rate over the run");
  table.add("--warmup", options.warmup, number(0, 1), "Share of the run in which the learning rate rises");
  add_course_rows(table, options.course);
  table.add("--momentum", options.momentum, number(0, 0.99999), "Momentum of sgd, rmsprop and lars")
      .of_optimizers({"sgd", "rmsprop", "lars"});
  table.add("--nesterov,!--no-nesterov", options.nesterov, "Nesterov's form of the momentum (on for sgd)")
      .of_optimizers({"sgd", "lars"});
  table
      .add("--trust-coefficient", options.trust_coefficient, number(1e-9, 1e3),
           "Length of a step of lars in units of a weight's norm, times the learning rate")
      .of_optimizers({"lars"});
  table
      .add("--beta1", options.beta1, number(0, 0.99999),
           "What adamw, adam and lamb keep of their mean of gradients at each step")
      .of_optimizers({"adamw", "adam", "lamb"});
  table.add("--beta2", options.beta2, number(0, 0.9999999), "The same for their squares")
      .of_optimizers({"adamw", "adam", "lamb"});
  table
      .add("--weight-decay", options.weight_decay, number(0, 1e3),
           "Weight decay (sgd: 0.0005; adamw: 0.05; adam, rmsprop: 0.00001; lars: 0.0001; lamb: 0.02)")
      .of_optimizers(all);
  add_finetune_rows(table, options.finetune, all);
  table.add("--decay-norms", options.decay_norms, "Weight decay on batch norms and biases too");
  table
      .add("--ema", options.ema, number(0, 0.9999999),
           "Keep moving averages of the weights, of which a step keeps this share, and test and save these; "
           "0: none")
      .kept_unless("0");
  table.add("--clip", options.clip, number(0, 1e9), "Largest norm of the gradients; 0: no limit");
}

void add_run_rows(OptionTable& table, Options& options) {
  table.group("Files");
  table
      .add("--trace", options.trace, file(),
           "Write every call of the steps of --profile to a JSON file for ui.perfetto.dev")
      .behind("--report");
  add_html_report_row(table, options.report_html);
  table.add("--log", options.log, file(), "Add a line per epoch to a CSV file").behind("--trace");
  table.group(examples::kSystemGroup);
  table
      .add("--decode", options.decode, one_of({"auto", "cpu", "gpu"}),
           "Who decodes JPEGs for --image-size: the workers (cpu), the engines of the GPU (gpu) with the "
           "workers for files that these do not take, or the engines where there are some (auto)")
      .behind("--workers");
  table
      .add(
          "--profile", options.profile, whole(0, kMany),
          "Time so many steps op by op (the eleventh and later, of one epoch), and print where the time went")
      .without_default()
      .behind("--max-steps");
  table
      .add("--memory-limit", options.memory_limit, number(0, 1e6),
           "GiB that results inside a job's step may take; norms and activations are computed again to "
           "keep to it. Weights, inputs and scratch come on top; 0: no limit")
      .behind("--job");
}

OptionTable table_of(Options& options) {
  OptionTable table;
  table.group(examples::kRecipeGroup);
  add_model_rows(table, options);
  add_recipe_rows(table, options);
  add_augmentation_rows(table, options.augmentation);
  add_optimizer_rows(table, options);
  add_common_rows(table, options, kHelp);
  add_run_rows(table, options);
  add_prediction_rows(table, options.prediction);
  return table;
}

/// Mistakes in what --schedule is given; empty if there is none.
std::string check_course(const Options& options) {
  const bool has_milestones = !options.course.milestones.empty();
  if (options.schedule == "multi-step" && !has_milestones)
    return "--schedule multi-step needs --milestones, as in 30,60,80";
  if (options.schedule != "multi-step" && has_milestones)
    return "--milestones is of --schedule multi-step, not " + options.schedule;
  if (options.is_given("--plateau-patience") && options.schedule != "plateau")
    return "--plateau-patience is of --schedule plateau, not " + options.schedule;
  return {};
}

/// Mistakes in how options go together; empty if there is none.
std::string check_together(const Options& options) {
  if (const std::string mistake = check_prediction(options.prediction, options); !mistake.empty())
    return mistake;
  if (options.evaluate && !options.resume && options.load_weights.empty())
    return needs_weights("--evaluate", options);
  if (options.decode == "gpu" && options.image_size == 0 && !options.resume && !options.prediction.wanted())
    return "--decode gpu needs --image-size: images that keep their size are decoded once, on the CPU";
  if (options.split > 0 && options.data.empty() && !options.resume)
    return "--split needs --data <folder>: the digits have test images";
  if (options.memory_limit > 0 && !options.job) return "--memory-limit is of jobs: leave --eager out";
  if (const std::string mistake = check_course(options); !options.resume && !mistake.empty()) return mistake;
  if (options.loss.bce_threshold > 0 && !options.loss.is_binary() && !options.resume)
    return "--bce-threshold is of --loss bce";
  if (const std::string mistake = examples::check_html_report(options.report_html, options.job);
      !mistake.empty())
    return mistake;
  if (!options.trace.empty() && options.profile == 0) return "--trace needs --profile <steps>";
  // On resume the optimiser may be the checkpoint's, which is not known yet.
  const bool knows_optimizer = !options.resume || options.is_given("--optimizer");
  if (const std::string mistake = check_optimizer(options); knows_optimizer && !mistake.empty())
    return mistake;
  if (!options.resume) {  // else the checkpoint has weights, and options
    const std::string mistake =
        check_finetune(options.finetune, !options.load_weights.empty(), options.evaluate);
    if (!mistake.empty()) return mistake;
  }
  return check_common(options, options.output_files());
}

}  // namespace

examples::OutputFiles Options::output_files() const {
  return {{"--save-weights", save_weights},
          {"--export", exported.path},
          {"--report", report},
          {"--log", log},
          {"--trace", trace},
          {"--report-html", report_html},
          {"--write-recipe", write_recipe},
          {"--output", prediction.output}};
}

bool Options::leaves_files() const {
  return !(checkpoints + log_dir).empty() ||
         std::ranges::any_of(output_files(), [](const auto& output) { return !output.second.empty(); });
}

std::string check_optimizer(const Options& options) {
  Options values = options;
  return table_of(values).misplaced(options.optimizer, options.given);
}

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  return examples::parse_options(
      argc, argv,
      {.name = "train_resnet",
       .description =
           "Trains a ResNet. Without options: a ResNet-20 on handwritten digits, in about half a minute.",
       .first = {"--data", "--model", "--epochs", "--batch", "--lr"},
       .examples = {"train_resnet --data photos --split 0.1 --image-size 224 --load-weights resnet18.pth "
                    "--new-head",
                    "train_resnet --data cifar10 --recipe cifar10_resnet18.json --checkpoints run1",
                    "train_resnet --checkpoints run1 --resume",
                    "train_resnet --checkpoints run1 --resume --evaluate"},
       .adopt = [&](const Recipe& recipe) { return adopt(recipe, options); },
       .check_together = [&] { return check_together(options); }},
      table_of(options), options);
}

namespace {

/// What an optimiser is usually given: learning rates of small and of large sets, and a weight decay.
struct Usual {
  double small_lr, lr, weight_decay;
};

Usual usual_of(const std::string& optimizer) {
  if (optimizer == "adamw") return {0.003, 0.002, 0.05};
  if (optimizer == "adam") return {0.003, 0.002, 1e-5};
  if (optimizer == "rmsprop") return {0.001, 0.001, 1e-5};
  if (optimizer == "lars") return {8.0, 8.0, 1e-4};
  if (optimizer == "lamb") return {0.01, 0.008, 0.02};
  return {0.1, 0.4, 5e-4};
}

}  // namespace

void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device) {
  const auto image = train.get(0).image;
  const bool small_set = train.size() < 10'000;
  const Usual usual = usual_of(options.optimizer);
  complete_common(options, device);
  if (!options.epochs) options.epochs = 30;
  if (!options.batch) options.batch = small_set ? 32 : device.is_cuda() ? 512 : 128;
  if (!options.lr) options.lr = small_set ? usual.small_lr : usual.lr;
  if (!options.weight_decay) options.weight_decay = usual.weight_decay;
  if (!options.nesterov) options.nesterov = options.optimizer == "sgd";
  if (!options.label_smoothing) options.label_smoothing = small_set ? 0.0 : 0.1;
  if (!options.crop_padding) options.crop_padding = image.height < 20 ? 1 : 4;
  if (!options.crop_mode) options.crop_mode = image.channels == 3 ? "reflect" : "zero";
  if (!options.flip) options.flip = image.channels == 3;
  if (options.augmentation.mixes() && *options.batch == 1)
    throw sinter::InvalidArgument("--mixup and --cutmix mix images of a batch, but --batch is 1");
  const std::vector<double>& jitter = options.augmentation.color_jitter;
  if (!jitter.empty() && jitter[0] == 0 && jitter[1] == 0 && image.channels == 1)
    throw sinter::InvalidArgument("--color-jitter: grey images have no saturation and no hue to change");
}

Recipe recipe_of(const Options& options) {
  Options values = options;
  return table_of(values).recipe(options.optimizer);
}

bool has_recipe(const sinter::nn::CheckpointData& data) {
  return data.values.contains("recipe.lr");
}

Recipe read_recipe(const sinter::nn::CheckpointData& data) {
  Recipe recipe = examples::read_recipe(data);
  recipe.insert({{"--model", data.value<std::string>("model")},
                 {"--precision", data.value<std::string>("precision")},
                 {"--epochs", fmt::format("{}", data.value<int64_t>("epochs"))}});
  return recipe;
}

std::set<std::string> adopt(const Recipe& recipe, Options& options) {
  const OptionTable table = table_of(options);
  const bool other_optimizer =
      options.is_given("--optimizer") &&
      options.optimizer != examples::value_or(recipe, "--optimizer", options.optimizer);
  return table.adopt(recipe, [&](const std::string& flag) {
    return options.is_given(flag) || (other_optimizer && table.is_of_optimizers(flag));
  });
}

std::string describe(const Options& options) {
  std::string particulars =
      options.has_momentum()
          ? fmt::format("momentum {}{}", options.momentum, *options.nesterov ? " (Nesterov)" : "")
          : fmt::format("betas {} and {}", options.beta1, options.beta2);
  if (options.optimizer == "lars")
    particulars += fmt::format(", trust coefficient {}", options.trust_coefficient);
  if (options.ema > 0) particulars += fmt::format(", averages keep {}", options.ema);
  const std::string warmup = options.course.warmup_epochs > 0
                                 ? fmt::format("{} epochs", options.course.warmup_epochs)
                                 : fmt::format("{:.0f} %", 100 * options.warmup);
  const std::string weights =
      options.loss.class_weights.empty() ? "" : ", class weights " + options.loss.class_weights;
  const std::string series =
      options.accumulate > 1 ? fmt::format(" {} times a step", options.accumulate) : "";
  const std::string crops = options.image_size > 0
                                ? fmt::format("random crops resized to {}", options.image_size)
                                : fmt::format("shifted by up to {} pixels ({})", *options.crop_padding,
                                              *options.crop_mode == "reflect" ? "mirrored at the border"
                                                                              : "black beyond the border");
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model", fmt::format("{}, {}, {}", options.model, *options.precision, to_string(*options.layout))},
      {"run",
       fmt::format("{} epochs, batch {}{}, seed {}", *options.epochs, *options.batch, series, options.seed)},
      {options.optimizer, fmt::format("learning rate {} ({}, warm-up {}), {}, weight decay {}", *options.lr,
                                      options.schedule, warmup, particulars, *options.weight_decay)},
      {"images", crops + (*options.flip ? ", flipped at random" : ", not flipped")},
      {"augment", examples::describe(options.augmentation)},
      {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
      {"loss",
       fmt::format("{}, label smoothing {}{}", options.loss.kind, *options.label_smoothing, weights)}};
  if (const std::string text = examples::describe(options.finetune); !text.empty())
    rows.insert(rows.begin() + 3, {"finetune", text});
  return describe_rows(options, rows);
}

}  // namespace train_resnet
