#include "options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "common/text.h"
#include "margin_text.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"

namespace train_insightface {
namespace {

namespace examples = sinter::examples;
using examples::file;
using examples::folder;
using examples::kMany;
using examples::number;
using examples::one_of;
using examples::OptionTable;
using examples::path;
using examples::whole;
using sinter::nn::CombinedMargin;
using sinter::nn::Margin;

examples::Check margin_text() {
  return {[](const std::string& text) -> std::string {
            // What --scale makes of its range, check_model() tells.
            constexpr double kSmallScale = 1e-3;
            if (parse_margin(text, kSmallScale)) return {};
            return fmt::format("expected {}, but got '{}'", margin_forms(), text);
          },
          "MARGIN"};
}

constexpr examples::CommonHelp kHelp = {
    .steps = {.epochs = "Passes over the training data (20)",
              .batch = "Images per step (128), or auto: the most that memory holds",
              .lr = "Largest learning rate (sgd: 0.1; adamw, adam, rmsprop: 0.001; lars: 8; lamb: 0.01)",
              .warmup = "Share of the run in which the learning rate rises (0.3 under one-cycle, else 0)",
              .nesterov = "Nesterov's form of the momentum (off)",
              .weight_decay = "Weight decay (sgd: 0.0005; adamw: 0.1; adam, rmsprop: 0.00001; lars: 0.0001; "
                              "lamb: 0.02)",
              .decay_norms = "Weight decay on norms, slopes of PReLU and biases too (on, as InsightFace)",
              .ema = "Keep moving averages of the backbone's weights, of which a step keeps this share, and "
                     "verify and save these; 0: none",
              .plateau =
                  "Epochs in a row without a smaller training loss that --schedule plateau puts up with "
                  "before a reduction",
              .decode = "Who decodes JPEGs to train on: the workers (cpu), the engines of the GPU (gpu) with "
                        "the workers for files that these do not take, or the engines where there are some "
                        "(auto)"},
    .gpus =
        "Train on so many GPUs of this machine, a process on each; --batch is that of all together, and "
        "each has its part of the identities. mpirun, srun and torchrun start as many processes themselves",
    .read_timeout =
        "Seconds that a worker may take for one image; then the run ends with an error; 0: no limit. Needs "
        "--workers",
    .max_damaged =
        "Put up with so many damaged images of training: each is named and replaced by the next sound one; "
        "0: "
        "the first ends the run",
    .evaluate =
        "Only test with the pairs of --verify: --load-weights, or a checkpoint by --checkpoints and "
        "--resume",
    .checkpoints =
        "Folder for checkpoints, of which the last three are kept, and for best.safetensors, the "
        "backbone that did best with the pairs of --verify",
    .load_weights =
        "Start from a backbone in a safetensors file, or one of PyTorch's (.pth, .pt), with "
        "InsightFace's names",
    .save_weights =
        "Write the final backbone to such a file, of PyTorch if its name ends in .pth or .pt; what was "
        "reached, "
        "if the run is stopped",
    .report = "Write what came out to a JSON file: accuracies, seconds, samples per second, memory"};

void add_data_rows(OptionTable& table, Options& options) {
  table
      .add("--data", options.data, path(),
           "Faces to train on: a folder with train.rec, train.idx and property, or with train*.tar, a .rec "
           "file, or a folder of people, <person>/*.jpg, *.jpeg, *.png, *.webp, *.pgm and *.ppm")
      .not_kept();
  table
      .add("--synthetic", options.synthetic, whole(2, 100'000'000),
           "Train on so many made-up identities of ten images each, in place of --data")
      .without_default()
      .not_kept();
  table
      .add("--keep-images", options.keep_images, file(),
           "Train on those images alone that a list of --clean names, and on the identities that have any")
      .not_kept();
  table.add("--image-size", options.image_size, whole(16, 1024),
            "Pixels a side; images of other sizes are resized");
  table.add("--flip,!--no-flip", options.flip, "Mirror half of the training images (on)");
  table
      .add(
          "--augment", options.augment, one_of({"none", "insightface", "adaface"}),
          "Change training images at random: insightface (each now and then made small and large again, "
          "blurred, turned in colour, grey) or adaface (a part kept and the rest black, made small and large "
          "again, another light)")
      .kept_unless("none");
  add_pixel_rows(table, options.augmentation);
  table
      .add("--verify", options.verify, path(),
           "Pairs of faces to test with: lfw.bin and its like, a list of pairs, a folder with pairs.txt, or "
           "a folder of people, none of whom should be trained on. May be given several times")
      .not_kept();
  table.add("--verify-every", options.verify_every, whole(0, kMany),
            "Steps between tests with these pairs; 0: at the end of each epoch");
  table
      .add(
          "--verify-flip", options.verify_flip, one_of({"sum", "off"}),
          "What is compared, and what --embed gives: the sum of an image's embedding and its mirror image's, "
          "or (off) its own")
      .kept_unless("sum");
}

void add_model_rows(OptionTable& table, Options& options) {
  table.add("--backbone", options.backbone,
            one_of({"iresnet18", "iresnet34", "iresnet50", "iresnet100", "iresnet200", "mbf", "mbf_large"}),
            "Network; mbf is MobileFaceNet");
  table.add("--dims", options.dims, whole(1, 65536), "Dimensions of an embedding");
  table
      .add("--width", options.width, whole(1, 1024),
           "Channels of an iResNet's first stage; later ones have 2, 4 and 8 times as many")
      .kept_unless("64");
  table.add("--dropout", options.dropout, number(0, 0.99), "Share of features dropped before the last layer");
  table.add("--init", options.init, one_of({"insightface", "pytorch"}),
            "How convolutions start: normal with deviation 0.1, or as PyTorch's do by themselves");
  table.add("--train-features-weight", options.train_features_weight,
            "Train the weight of the last norm too, which InsightFace keeps at 1");
  add_arithmetic_rows(table, options);
}

void add_loss_rows(OptionTable& table, Options& options) {
  table.add("--margin", options.margin, margin_text(),
            "Margin between identities: arcface (1,0.5,0), cosface (1,0,0.4), or m1,m2,m3 of cos(m1 t + m2) "
            "- m3; adaface, elasticface-arc, -cos (+: sorted), magface, curricularface; numbers may follow, "
            "as in adaface,0.4");
  table
      .add("--sub-centres", options.sub_centres, whole(1, 100),
           "Centres of each identity, the nearest of which counts, for labels with errors")
      .kept_unless("1");
  table
      .add("--head-precision", options.head_precision, one_of({"model", "f32"}),
           "Compute cosines to the centres as the network computes (model), or in f32, as InsightFace does")
      .kept_unless("model");
  table.add("--scale", options.scale, number(1e-3, 1e4), "Factor on the cosines");
  table.add(
      "--margin-gradient", options.margin_gradient, one_of({"straight-through", "exact"}),
      "Gradient of the margin: straight-through (as InsightFace: that of the cosine without the margin) "
      "or exact");
  table.add("--interclass-filter", options.interclass_filter, number(0, 0.999),
            "Leave out identities whose centre is nearer than this cosine, for labels with errors; 0: none");
  table.add("--sample-rate", options.sample_rate, number(1e-6, 1),
            "Partial FC: share of the identities whose centres take part in a step; 1: all");
}

void add_recipe_rows(OptionTable& table, Options& options) {
  add_length_rows(table, options, kHelp.steps);
  add_optimizer_rows(table, options, kHelp.steps);
  table.add("--clip-of", options.clip_of, one_of({"backbone", "all"}),
            "Whose gradients count for --clip: the backbone's, or all");
  add_sync_batch_norm_row(table, options);
  add_seed_row(table, options);
}

/// Beside training: tests, and embeddings.
void add_use_rows(OptionTable& table, Options& options) {
  table.add(
      "--clean", options.clean, file(),
      "Only write which training images are within 75 degrees of the centre that most of their identity "
      "are nearest to; needs --resume with a run of --sub-centres, and is for --keep-images");
  table.add("--embed", options.embed, folder(),
            "Only turn the images of a folder, and of those in it, into embeddings; needs weights as "
            "--evaluate does, and --output");
  table
      .add(
          "--embed-groups", options.embed_groups,
          "Give a row per folder: the mean of the embeddings of its images and, unless --verify-flip is off, "
          "their mirror images, which keeps its length")
      .needs("--embed");
  table
      .add("--output", options.output, file(),
           "File for the embeddings: .csv, lines of path and numbers, or .safetensors")
      .needs("--embed");
  table.add("--ijb", options.ijb, folder(),
            "Only test with IJB-B or IJB-C: a folder with loose_crop and meta; needs weights as --evaluate "
            "does, or --ijb-embeddings");
  table
      .add("--ijb-embeddings", options.ijb_embeddings, file(),
           "Embeddings of its pictures that were made elsewhere: safetensors with 'embeddings' (N, D), as "
           "the network gives them, in the order of the lists")
      .needs("--ijb");
  table
      .add("--ijb-lengths", options.ijb_lengths, one_of({"keep", "unit"}),
           "Let embeddings keep their lengths as they are added up, or bring each to length one (unit)")
      .needs("--ijb");
  table
      .add("--ijb-score", options.ijb_score, one_of({"use", "ignore"}),
           "Multiply each embedding by the detector's score: use or ignore")
      .needs("--ijb");
}

OptionTable table_of(Options& options) {
  OptionTable table;
  table.group(examples::kRecipeGroup);
  add_data_rows(table, options);
  add_model_rows(table, options);
  add_loss_rows(table, options);
  add_recipe_rows(table, options);
  add_common_rows(table, options, kHelp);
  add_use_rows(table, options);
  table
      .add("--roc", options.roc, folder(),
           "Folder for the curve of each set of --verify, as roc-<name>.csv with threshold, false and true "
           "accept rate (a run's log folder)")
      .writes()
      .behind("--report");
  return table;
}

/// Mistakes in what goes with a margin and a backbone.
std::string check_model(const Options& options) {
  const std::optional<Margin> margin = margin_of(options);
  if (!margin) return fmt::format("--margin {} is out of range at --scale {}", options.margin, options.scale);
  for (const char* option : {"--margin-gradient", "--interclass-filter"}) {
    if (options.is_given(option) && !is_combined(*margin))
      return fmt::format("{} is of arcface, cosface and m1,m2,m3, not of --margin {}", option,
                         options.margin);
  }
  for (const char* option : {"--width", "--dropout", "--init", "--train-features-weight"}) {
    if (options.is_given(option) && options.is_given("--backbone") && options.backbone.starts_with("mbf"))
      return fmt::format("{} is of iResNets, not of --backbone {}", option, options.backbone);
  }
  return {};
}

/// Mistakes in how options go together; empty if there is none.
std::string check_together(const Options& options) {
  if (options.plan && !options.trains())
    return fmt::format("--plan is of training: leave {} out", options.only());
  const bool has_data = !options.data.empty() || options.synthetic > 0;
  if (!options.data.empty() && options.synthetic > 0)
    return "--data and --synthetic cannot go together: either are the faces to train on";
  if (options.evaluate && !options.embed.empty())
    return "--evaluate and --embed cannot go together: each is all that is done";
  if (!options.ijb.empty() && (options.evaluate || !options.embed.empty()))
    return fmt::format("--ijb and {} cannot go together: each is all that is done", options.only());
  if (!options.clean.empty() && (options.evaluate || !options.embed.empty() || !options.ijb.empty()))
    return fmt::format("--clean and {} cannot go together: each is all that is done", options.only());
  if (!options.clean.empty() && !options.resume)
    return "--clean needs a run's centres: --checkpoints and --resume";
  if (!options.trains() && !options.resume && options.load_weights.empty() &&
      options.ijb_embeddings.empty()) {
    return needs_weights(options.only(), options);
  }
  if (options.evaluate && options.verify.empty() && options.exported.path.empty() && !options.resume)
    return "--evaluate needs pairs: --verify <path>";
  if (!options.ijb_embeddings.empty() && !options.exported.path.empty())
    return "--export needs a backbone: --ijb-embeddings are made elsewhere";
  if (!options.embed.empty() && options.output.empty()) return "--embed needs --output <file>";
  if (options.trains() && !has_data && !options.resume)
    return "there is nothing to train on: --data <path>, or --synthetic <identities>";
  if (options.course.patience > 0 && options.verify.empty() && options.trains() && !options.resume)
    return "--patience needs pairs: --verify <path>";
  if (!options.trains() && (options.processes > 1 || options.gpus > 0))
    return fmt::format("{} is of one process", options.only());
  if (options.is_given("--max-damaged") && !options.trains() && options.clean.empty())
    return fmt::format("--max-damaged is of training: {} takes no other image in a damaged one's place",
                       options.only());
  if (const std::string ending = std::filesystem::path(options.output).extension().string();
      !options.embed.empty() && ending != ".csv" && ending != ".safetensors")
    return fmt::format("--output {}: expected a name that ends in .csv or .safetensors", options.output);
  if (const std::string mistake = check_model(options); !mistake.empty()) return mistake;
  // On resume the optimiser may be the checkpoint's, which is not known yet.
  if (const std::string mistake = check_optimizer(options);
      !mistake.empty() && (!options.resume || options.is_given("--optimizer")))
    return mistake;
  return check_common(options, options.output_files());
}

std::optional<examples::OtherMode> mode_of(const Options& options) {
  if (options.trains()) return std::nullopt;
  examples::OtherMode mode = mode_with_weights(
      options.only(), options, {"--backbone", "--dims", "--width", "--image-size", "--batch"});
  std::set<std::string>& uses = mode.uses;
  if (!options.embed.empty()) uses.insert({"--embed-groups", "--output", "--verify-flip"});
  if (options.evaluate) uses.insert({"--verify", "--verify-flip", "--roc", "--report"});
  if (!options.ijb.empty())
    uses.insert({"--ijb-embeddings", "--ijb-lengths", "--ijb-score", "--verify-flip", "--roc", "--report"});
  if (!options.clean.empty())
    uses.insert({"--data", "--synthetic", "--keep-images", "--sub-centres", "--verify-flip",
                 "--change-recipe", "--max-damaged"});
  return mode;
}

}  // namespace

Options::Options() {
  schedule = "polynomial";
  cycle = sinter::nn::Anneal::kCosine;
  decay_norms = true;
  clip = 5.0;
  decode = "cpu";  // faces are small
}

std::string check_optimizer(const Options& options) {
  Options values = options;
  if (options.sample_rate < 1 && (options.optimizer == "lars" || options.optimizer == "lamb"))
    return fmt::format("--optimizer {} measures all centres of a step together: --sample-rate 1 alone fits",
                       options.optimizer);
  return table_of(values).misplaced(options.optimizer, options.given);
}

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  return examples::parse_options(
      argc, argv,
      {.name = "train_insightface",
       .description =
           "Trains a network that tells faces apart, as InsightFace does: iResNet, ArcFace, Partial FC.",
       .first = {"--data", "--verify", "--backbone", "--epochs", "--batch", "--lr"},
       .examples = {"train_insightface --data faces --verify faces/lfw.bin --checkpoints run1",
                    "train_insightface --checkpoints run1 --resume",
                    "train_insightface --evaluate --load-weights w.safetensors --verify lfw.bin",
                    "train_insightface --embed photos --output p.csv --load-weights w.safetensors"},
       .adopt = [&](const Recipe& recipe) { return adopt(recipe, options); },
       .check_together = [&] { return check_together(options); },
       .mode = [&] { return mode_of(options); }},
      table_of(options), options);
}

namespace {

/// What an optimiser is usually given.
struct Usual {
  double lr, weight_decay;
};

Usual usual_of(const std::string& optimizer) {
  if (optimizer == "adamw") return {0.001, 0.1};
  if (optimizer == "adam" || optimizer == "rmsprop") return {0.001, 1e-5};
  if (optimizer == "lars") return {8.0, 1e-4};
  if (optimizer == "lamb") return {0.01, 0.02};
  return {0.1, 5e-4};
}

}  // namespace

void complete(Options& options, sinter::Device device) {
  const Usual usual = usual_of(options.optimizer);
  complete_common(options, device);
  if (!options.epochs) options.epochs = 20;
  if (!options.batch) options.batch = 128;
  if (!options.lr) options.lr = usual.lr;
  if (!options.weight_decay) options.weight_decay = usual.weight_decay;
  if (!options.nesterov) options.nesterov = false;
  if (!options.warmup) options.warmup = options.schedule == "one-cycle" ? 0.3 : 0.0;
}

std::optional<Margin> margin_of(const Options& options) {
  std::optional<Margin> margin = parse_margin(options.margin, options.scale);
  if (!margin || !is_combined(*margin)) return margin;
  auto& combined = std::get<CombinedMargin>(*margin);
  combined.interclass_filter = options.interclass_filter;
  if (options.margin_gradient == "exact") combined.gradient = sinter::nn::MarginGradient::kExact;
  return margin;
}

Recipe recipe_of(const Options& options) {
  Options values = options;
  return table_of(values).recipe(options.optimizer);
}

Recipe read_recipe(const sinter::nn::CheckpointData& data) {
  Recipe recipe = examples::read_recipe(data);
  if (recipe.contains("--optimizer")) return recipe;
  recipe.insert({{"--optimizer", "sgd"}, {"--nesterov", "false"}});
  if (examples::value_or(recipe, "--cycle-momentum", "") == "false") recipe.erase("--cycle-momentum");
  return recipe;
}

std::set<std::string> adopt(const Recipe& recipe, Options& options) {
  return examples::adopt_recipe(table_of(options), recipe, options);
}

namespace {

std::string describe_augmentation(const Options& options) {
  const std::string pixels = examples::describe(options.augmentation);
  if (options.augment == "none") return pixels;
  return options.augment + (pixels == "none" ? "" : ", " + pixels);
}

}  // namespace

std::string describe(const Options& options, int64_t images) {
  const Margin margin = *margin_of(options);
  const std::string gradient = is_combined(margin) ? options.margin_gradient : "exact";
  const std::string centres =
      options.sub_centres > 1 ? fmt::format(", {} centres of each identity", options.sub_centres) : "";
  const std::string share = options.sample_rate < 1.0 ? fmt::format(", {:.4g} % of the identities a step",
                                                                    100 * options.sample_rate)
                                                      : "";
  const std::string width = options.width != 64 ? fmt::format(" of width {}", options.width) : "";
  return describe_rows(
      options,
      {
          {"model", fmt::format("{}{}, {}, {}, {}", options.backbone, width,
                                examples::counted(options.dims, "dimension"), *options.precision,
                                to_string(*options.layout))},
          {"loss", fmt::format("{}, {} gradient{}{}", describe(margin), gradient, centres, share)},
          {"run", describe_length(options, images, options.seed)},
          {options.optimizer, describe_optimizer(options)},
          {"clip", options.clip > 0
                       ? fmt::format("gradients of {} at {}",
                                     options.clip_of == "all" ? "all weights" : "the backbone", options.clip)
                       : "no"},
          {"images", fmt::format("{0}x{0}, {1}", options.image_size,
                                 options.flip ? "flipped at random" : "not flipped")},
          {"augment", describe_augmentation(options)},
          {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
      });
}

}  // namespace train_insightface
