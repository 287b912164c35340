#include "options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/models/resnet_names.h>

#include "class_weights.h"
#include "common/text.h"
#include "normalization.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::folder;
using examples::number;
using examples::one_of;
using examples::OptionTable;
using examples::whole;

constexpr examples::CommonHelp kHelp = {
    .steps = {.epochs = "Passes over the training data (default 30)",
              .batch = "Images per step (32 for small sets, else 512 on a GPU and 128 on a CPU), or auto: "
                       "the most that memory "
                       "holds",
              .lr = "Largest learning rate (sgd: 0.4; for small sets 0.01, or 0.1 for resnet20 to resnet110; "
                    "adamw, adam: 0.003 for small sets, else 0.002; "
                    "rmsprop: 0.001; lars: 8; lamb: 0.01 and 0.008)",
              .warmup = "Share of the run in which the learning rate rises (0.2)",
              .nesterov = "Nesterov's form of the momentum (on for sgd)",
              .weight_decay = "Weight decay (sgd: 0.0005; adamw: 0.05; adam, rmsprop: 0.00001; lars: 0.0001; "
                              "lamb: 0.02)",
              .decay_norms = "Weight decay on norms and biases too (off)",
              .ema = "Keep moving averages of the weights, of which a step keeps this share, and test and "
                     "save these; 0: none",
              .plateau = "Epochs in a row without a smaller test loss that --schedule plateau puts up with "
                         "before a reduction",
              .decode = "Who decodes JPEGs for --image-size: the workers (cpu), the engines of the GPU (gpu) "
                        "with the workers for files that these do not take, or the engines where there are "
                        "some (auto)"},
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
           "or train/<class>/*.jpg and test/<class>/*.jpg (or val/); <class>/*.jpg or *.tar with --split. "
           "Default: the handwritten digits that ship with Sinter")
      .not_kept();
  table
      .add("--split", options.split, number(0, 0.9),
           "Test with this share of each class, drawn by --seed, as the folder has no test images; 0: it has")
      .kept_unless("0");
  table
      .add("--val-share", options.val_share, number(0, 0.9),
           "Choose the best weights by this share of each class of the training images, drawn by --seed; the "
           "test images are then kept for the end; 0: by val/ where it is beside test/, else by the test "
           "images")
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
  add_normalization_row(table, options.normalization);
}

void add_recipe_rows(OptionTable& table, Options& options) {
  add_length_rows(table, options, kHelp.steps);
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

OptionTable table_of(Options& options) {
  OptionTable table;
  table.group(examples::kRecipeGroup);
  add_model_rows(table, options);
  add_recipe_rows(table, options);
  add_image_rows(table, options.images);
  add_augmentation_rows(table, options.augmentation);
  add_optimizer_rows(table, options, kHelp.steps);
  add_finetune_rows(table, options.finetune, examples::optimizer_names());
  add_common_rows(table, options, kHelp);
  add_prediction_rows(table, options.prediction);
  return table;
}

std::string check_choice(const Options& options) {
  // A checkpoint, whose choice it then is, is not known yet.
  if (options.normalization == "auto" || options.resume) return {};
  if (const std::string mistake = check_normalization(options); !mistake.empty()) return mistake;
  const bool is_without_data = options.prediction.wanted() || options.only_exports();
  return options.normalization == "data" && is_without_data
             ? fmt::format("--normalization data is that of training images: there are none with {}",
                           options.prediction.wanted() ? "--predict" : "--export alone")
             : "";
}

/// Mistakes in how options go together; empty if there is none.
std::string check_together(const Options& options) {
  if (const std::string mistake = check_prediction(options.prediction, options); !mistake.empty())
    return mistake;
  if (!options.prediction.class_names.empty() && !options.prediction.wanted() && !options.only_exports())
    return "--class-names needs --predict, or --export of --load-weights without training or a test";
  if (options.plan && options.prediction.wanted()) return "--plan is of training: leave --predict out";
  if (options.evaluate && !options.resume && options.load_weights.empty())
    return needs_weights("--evaluate", options);
  if (options.decode == "gpu" && options.image_size == 0 && !options.resume && !options.prediction.wanted())
    return "--decode gpu needs --image-size: images that keep their size are decoded once, on the CPU";
  if (options.split > 0 && options.data.empty() && !options.resume)
    return "--split needs --data <folder>: the digits have test images";
  if (const std::string mistake = check_images(options.images, options.image_size);
      !options.resume && !mistake.empty() && !options.prediction.wanted() && options.load_weights.empty())
    return mistake;
  if (options.is_given("--test-crop") && options.image_size == 0 && !options.resume &&
      !options.prediction.wanted() && options.load_weights.empty())
    return "--test-crop needs --image-size: else images keep their size";
  if (const std::string mistake = check_choice(options); !mistake.empty()) return mistake;
  if (options.loss.bce_threshold > 0 && !options.loss.is_binary() && !options.resume)
    return "--bce-threshold is of --loss bce";
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

std::optional<examples::OtherMode> mode_of(const Options& options) {
  if (options.prediction.wanted() || options.only_exports()) {
    return examples::OtherMode{
        .option = options.prediction.wanted() ? "--predict" : "--export",
        .uses = {"--output",     "--top-k",       "--test-flip",     "--test-crops",
                 "--features",   "--class-names", "--load-weights",  "--model",
                 "--image-size", "--layout",      "--precision",     "--batch",
                 "--device",     "--threads",     "--workers",       "--read-timeout",
                 "--decode",     "--max-damaged", "--normalization", "--export-preprocessing",
                 "--key",        "--test-crop",   "--interpolation"}};
  }
  if (!options.evaluate) return std::nullopt;
  return mode_with_weights("--evaluate", options,
                           {"--data",
                            "--split",
                            "--val-share",
                            "--seed",
                            "--model",
                            "--stem",
                            "--image-size",
                            "--test-crop",
                            "--interpolation",
                            "--normalization",
                            "--loss",
                            "--bce-threshold",
                            "--label-smoothing",
                            "--ema",
                            "--save-weights",
                            "--report",
                            "--write-recipe",
                            "--gpus",
                            "--processes",
                            "--rank-timeout",
                            "--decode",
                            "--max-damaged"});
}

}  // namespace

examples::OutputFiles Options::output_files() const {
  examples::OutputFiles files = TrainerOptions::output_files();
  files.emplace_back("--output", prediction.output);
  return files;
}

bool Options::leaves_files() const {
  return !(checkpoints + log_dir).empty() ||
         std::ranges::any_of(output_files(), [](const auto& output) { return !output.second.empty(); });
}

bool Options::only_exports() const {
  return !exported.path.empty() && !load_weights.empty() && !is_given("--data") && checkpoints.empty() &&
         !evaluate;
}

std::string check_optimizer(const Options& options) {
  Options values = options;
  return table_of(values).misplaced(options.optimizer, options.given);
}

std::string check_normalization(const Options& options) {
  return options.normalization == "auto" || !options.load_weights.empty()
             ? ""
             : "--normalization needs --load-weights <file>: a new network learns what its data's is";
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
       .check_together = [&] { return check_together(options); },
       .mode = [&] { return mode_of(options); }},
      table_of(options), options);
}

namespace {

/// What an optimiser is usually given: learning rates of small and of large sets, and a weight decay.
struct Usual {
  double small_lr, lr, weight_decay;
};

/// At the rate that suits resnet20 to resnet110 the loss of larger networks rises first, and few images make
/// too few steps to come back.
Usual usual_of(const std::string& optimizer, const std::string& model) {
  if (optimizer == "adamw") return {0.003, 0.002, 0.05};
  if (optimizer == "adam") return {0.003, 0.002, 1e-5};
  if (optimizer == "rmsprop") return {0.001, 0.001, 1e-5};
  if (optimizer == "lars") return {8.0, 8.0, 1e-4};
  if (optimizer == "lamb") return {0.01, 0.008, 0.02};
  return {sinter::nn::is_cifar_resnet(model) ? 0.1 : 0.01, 0.4, 5e-4};
}

}  // namespace

void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device) {
  const auto image = train.get(0).image;
  const bool small_set = train.size() < 10'000;
  const Usual usual = usual_of(options.optimizer, options.model);
  complete_common(options, device);
  if (!options.epochs) options.epochs = 30;
  if (!options.batch) options.batch = small_set ? 32 : device.is_cuda() ? 512 : 128;
  if (!options.lr) options.lr = small_set ? usual.small_lr : usual.lr;
  if (!options.warmup) options.warmup = 0.2;
  if (!options.weight_decay) options.weight_decay = usual.weight_decay;
  if (!options.nesterov) options.nesterov = options.optimizer == "sgd";
  if (!options.label_smoothing) options.label_smoothing = small_set ? 0.0 : 0.1;
  if (!options.crop_padding) options.crop_padding = image.height < 20 ? 1 : 4;
  if (!options.crop_mode) options.crop_mode = image.channels == 3 ? "reflect" : "zero";
  if (!options.flip) options.flip = image.channels == 3;
  if (const std::string mistake = check_images(options.images, options.image_size); !mistake.empty())
    throw sinter::InvalidArgument(mistake);
  options.loss.class_weights = read_class_weights(options.loss.class_weights, train);
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
  return examples::adopt_recipe(table_of(options), recipe, options);
}

std::string describe(const Options& options, int64_t images) {
  const std::string weights =
      options.loss.class_weights.empty() ? "" : ", class weights " + options.loss.class_weights;
  const std::string crops =
      options.image_size > 0
          ? fmt::format("random crops resized to {}", options.image_size)
          : fmt::format(
                "shifted by up to {} ({})", examples::counted(*options.crop_padding, "pixel"),
                *options.crop_mode == "reflect" ? "mirrored at the border" : "black beyond the border");
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model", fmt::format("{}, {}, {}", options.model, *options.precision, to_string(*options.layout))},
      {"run", describe_length(options, images, options.seed)},
      {options.optimizer, describe_optimizer(options)},
      {"images", crops + (*options.flip ? ", flipped at random" : ", not flipped") +
                     describe(options.images, options.image_size)},
      {"augment", examples::describe(options.augmentation)},
      {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
      {"loss",
       fmt::format("{}, label smoothing {}{}", options.loss.kind, *options.label_smoothing, weights)}};
  if (const std::string text = examples::describe(options.finetune); !text.empty())
    rows.insert(rows.begin() + 3, {"finetune", text});
  return describe_rows(options, rows);
}

}  // namespace train_resnet
