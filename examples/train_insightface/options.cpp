#include "options.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "margin_text.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "trainer/html_report.h"

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

CLI::Validator margin_text() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        // What --scale makes of its range, check_model() tells.
        constexpr double kSmallScale = 1e-3;
        if (parse_margin(text, kSmallScale)) return {};
        return fmt::format("expected {}, but got '{}'", margin_forms(), text);
      },
      "MARGIN");
}

constexpr examples::CommonHelp kHelp = {
    .gpus =
        "Train on so many GPUs of this machine, a process on each; --batch is that of all together, and "
        "each has its part of the identities. mpirun, srun and torchrun start as many processes themselves",
    .read_timeout =
        "Seconds that a worker may take for one image; then the run ends with an error; 0: no limit. Needs "
        "--workers",
    .max_damaged =
        "Put up with so many damaged images: each is named and replaced by the next sound one; 0: "
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
           "Faces to train on: a folder with train.rec, train.idx and property, a .rec file, or a folder "
           "of people, <person>/*.jpg, *.jpeg, *.png, *.webp, *.pgm and *.ppm")
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
      .add("--verify", options.verify, path(),
           "Pairs of faces to test with: lfw.bin and its like, a list of pairs, a folder with pairs.txt, or "
           "a folder of people, none of whom should be trained on. May be given several times")
      .not_kept();
  table.add("--verify-every", options.verify_every, whole(0, kMany),
            "Steps between tests with these pairs; 0: at the end of each epoch");
  table
      .add("--verify-flip", options.verify_flip, one_of({"sum", "off"}),
           "What is compared: the sum of an image's embedding and its mirror image's, or (off) its own")
      .kept_unless("sum");
}

void add_model_rows(OptionTable& table, Options& options) {
  table.add("--backbone", options.backbone,
            one_of({"iresnet18", "iresnet34", "iresnet50", "iresnet100", "iresnet200", "mbf", "mbf_large"}),
            "Network; mbf is MobileFaceNet");
  table.add("--dims", options.dims, whole(1, 65536), "Dimensions of an embedding");
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
  table.add("--epochs", options.epochs, whole(1, 1'000'000), "Passes over the training data");
  table.add("--batch", options.batch, whole(1, 1'000'000), "Images per step");
  table.add("--lr", options.lr, number(1e-9, 1e3), "Largest learning rate");
  table.add("--schedule", options.schedule, one_of({"polynomial", "one-cycle", "constant"}),
            "Learning rate, step by step: polynomial (of --power, behind a straight warm-up), one-cycle (two "
            "cosines, as torch's OneCycleLR), or constant");
  table
      .add("--power", options.power, number(1e-3, 100),
           "Power of the polynomial; InsightFace's published logs have 2, its code now has 1")
      .kept_unless("2");
  table.add("--warmup", options.warmup, number(0, 1),
            "Share of the run in which the learning rate rises (0.3 under one-cycle, else 0)");
  table.add("--momentum", options.momentum, number(0, 0.99999), "Momentum");
  table.add(
      "--cycle-momentum", options.cycle_momentum,
      "Under one-cycle, move the momentum from 0.95 down to 0.85 at the largest learning rate, and back");
  table.add("--weight-decay", options.weight_decay, number(0, 1e3), "Weight decay");
  table.add("--decay-norms,!--no-decay-norms", options.decay_norms,
            "Weight decay on batch norms, slopes and biases too (on, as InsightFace)");
  table.add("--clip", options.clip, number(0, 1e9), "Largest norm of the gradients; 0: no limit");
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
      .add("--embed-groups", options.embed_groups,
           "Give a row per folder: the mean of its images' embeddings, which keeps its length")
      .needs("--embed");
  table
      .add("--output", options.output, file(),
           "File for the embeddings: lines of path and numbers if it ends in .csv, else safetensors")
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
  add_html_report_row(table, options.report_html);
  table
      .add("--roc", options.roc, folder(),
           "Folder for the curve of each set of --verify, as roc-<name>.csv with threshold, false and true "
           "accept rate (a run's log folder)")
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
  for (const char* option : {"--dropout", "--init", "--train-features-weight"}) {
    if (options.is_given(option) && options.is_given("--backbone") && options.backbone.starts_with("mbf"))
      return fmt::format("{} is of iResNets, not of --backbone {}", option, options.backbone);
  }
  if (options.is_given("--power") && options.is_given("--schedule") && options.schedule != "polynomial")
    return "--power is of --schedule polynomial";
  return {};
}

/// Mistakes in how options go together; empty if there is none.
std::string check_together(const Options& options) {
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
  if (!options.trains() && (options.processes > 1 || options.gpus > 0))
    return fmt::format("{} is of one process", options.only());
  if (const std::string mistake = check_model(options); !mistake.empty()) return mistake;
  if (options.cycle_momentum && options.is_given("--schedule") && options.schedule != "one-cycle")
    return "--cycle-momentum is of --schedule one-cycle";
  if (options.cycle_momentum && options.is_given("--momentum"))
    return "--cycle-momentum moves the momentum: leave --momentum out";
  if (const std::string mistake = examples::check_html_report(options.report_html, options.job);
      !mistake.empty())
    return mistake;
  return check_common(options, {{"--save-weights", options.save_weights},
                                {"--export", options.exported.path},
                                {"--report", options.report},
                                {"--report-html", options.report_html}});
}

}  // namespace

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
       .check_together = [&] { return check_together(options); }},
      table_of(options), options);
}

void complete(Options& options, sinter::Device device) {
  complete_common(options, device);
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
  return table_of(values).recipe();
}

std::set<std::string> adopt(const Recipe& recipe, Options& options) {
  std::set<std::string> taken =
      table_of(options).adopt(recipe, [&](const std::string& flag) { return options.is_given(flag); });
  // Runs that move the momentum write down one all the same; nobody has asked for it.
  if (examples::value_or(recipe, "--cycle-momentum", "false") == "true") taken.erase("--momentum");
  return taken;
}

std::string describe(const Options& options) {
  const Margin margin = *margin_of(options);
  const std::string gradient = is_combined(margin) ? options.margin_gradient : "exact";
  const std::string centres =
      options.sub_centres > 1 ? fmt::format(", {} centres of each identity", options.sub_centres) : "";
  const std::string share = options.sample_rate < 1.0 ? fmt::format(", {:.4g} % of the identities a step",
                                                                    100 * options.sample_rate)
                                                      : "";
  return describe_rows(
      options,
      {
          {"model", fmt::format("{}, {} dimensions, {}, {}", options.backbone, options.dims,
                                *options.precision, to_string(*options.layout))},
          {"loss", fmt::format("{}, {} gradient{}{}", describe(margin), gradient, centres, share)},
          {"run", fmt::format("{} epochs, batch {}, seed {}", options.epochs, options.batch, options.seed)},
          {"sgd",
           fmt::format("learning rate {} ({}, warm-up {:.0f} %), momentum {}, weight decay {}", options.lr,
                       options.schedule, 100 * *options.warmup,
                       options.cycle_momentum ? "0.95 to 0.85 and back" : fmt::format("{}", options.momentum),
                       options.weight_decay)},
          {"clip", options.clip > 0
                       ? fmt::format("gradients of {} at {}",
                                     options.clip_of == "all" ? "all weights" : "the backbone", options.clip)
                       : "no"},
          {"images", fmt::format("{0}x{0}, {1}", options.image_size,
                                 options.flip ? "flipped at random" : "not flipped")},
          {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
      });
}

}  // namespace train_insightface
