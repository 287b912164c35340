#include "options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <sinter/core/runtime/thread_pool.h>

#include "ijb_options.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "run/help.h"

namespace train_insightface {
namespace {

namespace examples = sinter::examples;
using examples::file;
using examples::folder;
using examples::kMany;
using examples::number;
using examples::one_of;
using examples::path;
using examples::whole;
using sinter::nn::CombinedMargin;

/// "1,0.5,0"; none unless these are three finite numbers.
std::optional<std::vector<double>> three_numbers(std::string_view text) {
  std::vector<double> values;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (values.size() < 3) {
    double value = 0.0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
    values.push_back(value);
    if (stop == end) break;
    if (*stop != ',') return std::nullopt;
    at = stop + 1;
    if (values.size() == 3) return std::nullopt;
  }
  return values.size() == 3 ? std::optional(values) : std::nullopt;
}

CLI::Validator margin_text() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        Options options;
        options.margin = text;
        if (margin_of(options)) return {};
        return fmt::format(
            "expected arcface, cosface, or m1,m2,m3 with m1 > 0, m2 in [0, pi) and m3 >= 0, such as "
            "1,0.3,0.2, "
            "but got '{}'",
            text);
      },
      "MARGIN");
}

void add_data_options(CLI::App& app, Options& options) {
  app.add_option(
         "--data", options.data,
         "Faces to train on: a folder with train.rec, train.idx and property, a .rec file, or a folder "
         "of people, <person>/*.jpg, *.jpeg, *.png, *.webp, *.pgm and *.ppm")
      ->check(path());
  app.add_option("--synthetic", options.synthetic,
                 "Train on so many made-up identities of ten images each, in place of --data")
      ->check(whole(2, 100'000'000));
  app.add_option("--image-size", options.image_size, "Pixels a side; images of other sizes are resized")
      ->capture_default_str()
      ->check(whole(16, 1024));
  app.add_flag("--flip,!--no-flip", options.flip, "Mirror half of the training images (on)");
  app.add_option(
         "--verify", options.verify,
         "Pairs of faces to test with: lfw.bin and its like, a list of pairs, a folder with pairs.txt, or "
         "a folder of people, none of whom should be trained on. May be given several times")
      ->check(path())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--verify-every", options.verify_every,
                 "Steps between tests with these pairs; 0: at the end of each epoch")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.add_option("--verify-flip", options.verify_flip,
                 "What is compared: the sum of an image's embedding and its mirror image's, or (off) its own")
      ->capture_default_str()
      ->check(one_of({"sum", "off"}));
}

void add_model_options(CLI::App& app, Options& options) {
  app.add_option("--backbone", options.backbone, "Network")
      ->capture_default_str()
      ->check(one_of({"iresnet18", "iresnet34", "iresnet50", "iresnet100", "iresnet200"}));
  app.add_option("--dims", options.dims, "Dimensions of an embedding")
      ->capture_default_str()
      ->check(whole(1, 65536));
  app.add_option("--dropout", options.dropout, "Share of features dropped before the last layer")
      ->capture_default_str()
      ->check(number(0, 0.99));
  app.add_option("--init", options.init,
                 "How convolutions start: normal with deviation 0.1, or as PyTorch's do by themselves")
      ->capture_default_str()
      ->check(one_of({"insightface", "pytorch"}));
  app.add_flag("--train-features-weight", options.train_features_weight,
               "Train the weight of the last norm too, which InsightFace keeps at 1");
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
}

void add_loss_options(CLI::App& app, Options& options) {
  app.add_option(
         "--margin", options.margin,
         "Margin between identities: arcface (1,0.5,0), cosface (1,0,0.4), or m1,m2,m3 of cos(m1 t + m2) "
         "- m3")
      ->capture_default_str()
      ->check(margin_text());
  app.add_option("--scale", options.scale, "Factor on the cosines")
      ->capture_default_str()
      ->check(number(1e-3, 1e4));
  app.add_option(
         "--margin-gradient", options.margin_gradient,
         "Gradient of the margin: straight-through (as InsightFace: that of the cosine without the margin) "
         "or exact")
      ->capture_default_str()
      ->check(one_of({"straight-through", "exact"}));
  app.add_option(
         "--interclass-filter", options.interclass_filter,
         "Leave out identities whose centre is nearer than this cosine, for labels with errors; 0: none")
      ->capture_default_str()
      ->check(number(0, 0.999));
  app.add_option("--sample-rate", options.sample_rate,
                 "Partial FC: share of the identities whose centres take part in a step; 1: all")
      ->capture_default_str()
      ->check(number(1e-6, 1));
}

void add_recipe_options(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "Passes over the training data")
      ->capture_default_str()
      ->check(whole(1, 1'000'000));
  app.add_option("--batch", options.batch, "Images per step")
      ->capture_default_str()
      ->check(whole(1, 1'000'000));
  app.add_option("--lr", options.lr, "Largest learning rate")
      ->capture_default_str()
      ->check(number(1e-9, 1e3));
  app.add_option(
         "--schedule", options.schedule,
         "Learning rate, step by step: polynomial (of power 2, behind a straight warm-up), one-cycle (two "
         "cosines, as torch's OneCycleLR), or constant")
      ->capture_default_str()
      ->check(one_of({"polynomial", "one-cycle", "constant"}));
  app.add_option("--warmup", options.warmup,
                 "Share of the run in which the learning rate rises (0.3 under one-cycle, else 0)")
      ->check(number(0, 1));
  app.add_option("--momentum", options.momentum, "Momentum")
      ->capture_default_str()
      ->check(number(0, 0.99999));
  app.add_flag(
      "--cycle-momentum", options.cycle_momentum,
      "Under one-cycle, move the momentum from 0.95 down to 0.85 at the largest learning rate, and back");
  app.add_option("--weight-decay", options.weight_decay, "Weight decay")
      ->capture_default_str()
      ->check(number(0, 1e3));
  app.add_flag("--decay-norms,!--no-decay-norms", options.decay_norms,
               "Weight decay on batch norms, slopes and biases too (on, as InsightFace)");
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: no limit")
      ->capture_default_str()
      ->check(number(0, 1e9));
  app.add_option("--clip-of", options.clip_of, "Whose gradients count for --clip: the backbone's, or all")
      ->capture_default_str()
      ->check(one_of({"backbone", "all"}));
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norms see the batch of all processes together, else each that of its own part");
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
         "Train on so many GPUs of this machine, a process on each; --batch is that of all together, and "
         "each has its part of the identities. mpirun, srun and torchrun start as many processes themselves")
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
         "--read-timeout", options.read_timeout,
         "Seconds that a worker may take for one image; then the run ends with an error; 0: no limit. Needs "
         "--workers")
      ->capture_default_str()
      ->check(number(0, 1e9));
  app.add_option(
         "--max-damaged", options.max_damaged,
         "Put up with so many damaged images: each is named and replaced by the next sound one; 0: the "
         "first ends the run")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.add_option("--max-steps", options.max_steps,
                 "Stop after so many steps, as Ctrl-C would; 0: train to the end")
      ->capture_default_str()
      ->check(whole(0, kMany));
  app.add_flag(
      "--job,!--eager", options.job,
      "Make one job of the model's code and repeat it, or run that code op by op at every step (on)");
  app.add_flag("--evaluate", options.evaluate,
               "Only test with the pairs of --verify: --load-weights, or a checkpoint by --checkpoints and "
               "--resume");
  app.add_option("--embed", options.embed,
                 "Only turn the images of a folder, and of those in it, into embeddings; needs weights as "
                 "--evaluate does, and --output")
      ->check(folder());
  app.add_flag("--embed-groups", options.embed_groups,
               "Give a row per folder: the mean of its images' embeddings, which keeps its length")
      ->needs("--embed");
  app.add_option("--output", options.output,
                 "File for the embeddings: lines of path and numbers if it ends in .csv, else safetensors")
      ->check(file())
      ->needs("--embed");
  add_ijb_options(app, options);
}

void add_file_options(CLI::App& app, Options& options) {
  app.add_option("--checkpoints", options.checkpoints,
                 "Folder for checkpoints, of which the last three are kept, and for best.safetensors, the "
                 "backbone that did best with the pairs of --verify")
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
                 "Start from a backbone in a safetensors file, or one of PyTorch's (.pth, .pt), with "
                 "InsightFace's names")
      ->check(file());
  app.add_option("--save-weights", options.save_weights,
                 "Write the final backbone to such a file; what was reached, if the run is stopped")
      ->check(file());
  examples::add_export_options(app, options.exported);
  app.add_option("--report", options.report,
                 "Write what came out to a JSON file: accuracies, seconds, samples per second, memory")
      ->check(file());
  app.add_option("--roc", options.roc,
                 "Folder for the curve of each set of --verify, as roc-<name>.csv with threshold, false and "
                 "true accept rate (a run's log folder)")
      ->check(folder());
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
  add_data_options(app, options);
  add_model_options(app, options);
  add_loss_options(app, options);
  add_recipe_options(app, options);
  app.option_defaults()->group("Files");
  examples::add_recipe_file_options(app, options.recipe, options.write_recipe);
  add_file_options(app, options);
  app.option_defaults()->group(examples::kSystemGroup);
  add_run_options(app, options);
  app.set_version_flag("--version", "train_insightface of Sinter " SINTER_VERSION,
                       "Print the version and exit");
  examples::set_help(
      app, {.first = {"--data", "--verify", "--backbone", "--epochs", "--batch", "--lr"},
            .examples = {"train_insightface --data faces --verify faces/lfw.bin --checkpoints run1",
                         "train_insightface --checkpoints run1 --resume",
                         "train_insightface --evaluate --load-weights w.safetensors --verify lfw.bin",
                         "train_insightface --embed photos --output p.csv --load-weights w.safetensors"},
            .notes = examples::kExitCodes});
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
  if (!options.trains() && !options.resume && options.load_weights.empty() &&
      options.ijb_embeddings.empty()) {
    return fmt::format("{} needs weights: {}", options.only(),
                       options.checkpoints.empty()
                           ? "--load-weights <file>, or --checkpoints <folder> --resume"
                           : "add --resume for the newest checkpoint in " + options.checkpoints);
  }
  if (options.evaluate && options.verify.empty() && options.exported.path.empty() && !options.resume)
    return "--evaluate needs pairs: --verify <path>";
  if (!options.ijb_embeddings.empty() && !options.exported.path.empty())
    return "--export needs a backbone: --ijb-embeddings are made elsewhere";
  if (!options.embed.empty() && options.output.empty()) return "--embed needs --output <file>";
  if (options.trains() && !has_data && !options.resume)
    return "there is nothing to train on: --data <path>, or --synthetic <identities>";
  if (options.read_timeout > 0 && options.workers == 0)
    return "--read-timeout needs --workers of at least 1: training cannot leave its own thread";
  if (options.is_given("--log-every") && options.log_folder().empty())
    return "--log-every needs --log-dir <folder> or --checkpoints <folder>";
  if (options.processes > 1 && options.gpus > 0) return "--processes and --gpus cannot both be given";
  if (options.gpus > 0 && options.device != "auto") return "--gpus chooses the devices; leave --device out";
  if (!options.trains() && (options.processes > 1 || options.gpus > 0))
    return fmt::format("{} is of one process", options.only());
  if (options.cycle_momentum && options.is_given("--schedule") && options.schedule != "one-cycle")
    return "--cycle-momentum is of --schedule one-cycle";
  if (options.cycle_momentum && options.is_given("--momentum"))
    return "--cycle-momentum moves the momentum: leave --momentum out";
  const std::pair<const char*, const std::string&> files[] = {{"--save-weights", options.save_weights},
                                                              {"--export", options.exported.path},
                                                              {"--report", options.report}};
  for (const auto& [first, path] : files) {
    for (const auto& [second, other] : files) {
      if (first != second && !path.empty() && path == other)
        return fmt::format("{} and {} cannot both be {}", first, second, path);
    }
  }
  return {};
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app("Trains a network that tells faces apart, as InsightFace does: iResNet, ArcFace, Partial FC.",
               "train_insightface");
  add_options(app, options);
  if (const auto code = examples::parse(app, argc, argv, options.given)) return code;
  options.words.assign(argv + 1, argv + argc);
  if (const auto code = examples::take_recipe(app, options.recipe, options.given,
                                              [&](const Recipe& recipe) { return adopt(recipe, options); }))
    return code;
  if (const std::string mistake = check_together(options); !mistake.empty())
    return examples::refuse("train_insightface", mistake);
  return std::nullopt;
}

void complete(Options& options, sinter::Device device) {
  // Computing is the GPU's there, and the processors are free.
  if (!options.workers) options.workers = device.is_cuda() ? std::clamp(sinter::num_threads() - 1, 1, 8) : 1;
  if (!options.precision) options.precision = device.is_cuda() ? "mixed-f16" : "f32";
  if (!options.layout) options.layout = device.is_cuda() ? sinter::Layout::kNHWC : sinter::Layout::kNCHW;
  if (!options.warmup) options.warmup = options.schedule == "one-cycle" ? 0.3 : 0.0;
}

sinter::DType compute_dtype(const Options& options) {
  if (*options.precision == "mixed-f16") return sinter::DType::kFloat16;
  if (*options.precision == "mixed-bf16") return sinter::DType::kBFloat16;
  return sinter::DType::kFloat32;
}

std::optional<CombinedMargin> margin_of(const Options& options) {
  CombinedMargin margin{.scale = options.scale,
                        .interclass_filter = options.interclass_filter,
                        .gradient = options.margin_gradient == "exact"
                                        ? sinter::nn::MarginGradient::kExact
                                        : sinter::nn::MarginGradient::kStraightThrough};
  if (options.margin == "arcface") return margin;
  if (options.margin == "cosface") {
    margin.m2 = 0.0;
    margin.m3 = 0.4;
    return margin;
  }
  const auto values = three_numbers(options.margin);
  if (!values) return std::nullopt;
  margin.m1 = (*values)[0];
  margin.m2 = (*values)[1];
  margin.m3 = (*values)[2];
  if (margin.m1 <= 0.0 || margin.m2 < 0.0 || margin.m2 >= 3.141592653589793 || margin.m3 < 0.0)
    return std::nullopt;
  return margin;
}

Recipe recipe_of(const Options& options) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  Recipe recipe = {{"--image-size", text(options.image_size)},
                   {"--flip", text_of(options.flip)},
                   {"--backbone", options.backbone},
                   {"--dims", text(options.dims)},
                   {"--dropout", text(options.dropout)},
                   {"--init", options.init},
                   {"--train-features-weight", text_of(options.train_features_weight)},
                   {"--precision", *options.precision},
                   {"--margin", options.margin},
                   {"--scale", text(options.scale)},
                   {"--margin-gradient", options.margin_gradient},
                   {"--interclass-filter", text(options.interclass_filter)},
                   {"--sample-rate", text(options.sample_rate)},
                   {"--epochs", text(options.epochs)},
                   {"--batch", text(options.batch)},
                   {"--lr", text(options.lr)},
                   {"--schedule", options.schedule},
                   {"--warmup", text(*options.warmup)},
                   {"--momentum", text(options.momentum)},
                   {"--cycle-momentum", text_of(options.cycle_momentum)},
                   {"--weight-decay", text(options.weight_decay)},
                   {"--decay-norms", text_of(options.decay_norms)},
                   {"--clip", text(options.clip)},
                   {"--clip-of", options.clip_of},
                   {"--verify-every", text(options.verify_every)},
                   {"--seed", text(options.seed)}};
  // Checkpoints of earlier versions do not have these.
  if (options.sync_batch_norm) recipe["--sync-batch-norm"] = "true";
  if (options.verify_flip != "sum") recipe["--verify-flip"] = options.verify_flip;
  return recipe;
}

std::set<std::string> adopt(const Recipe& recipe, Options& options) {
  std::vector<std::string> words;
  std::set<std::string> taken;
  for (const auto& [option, value] : recipe) {
    if (options.is_given(option.c_str())) continue;
    words.push_back(option + "=" + value);
    // Runs that move the momentum write down one all the same; nobody has asked for it.
    const auto cycles = recipe.find("--cycle-momentum");
    if (option == "--momentum" && cycles != recipe.end() && cycles->second == "true") continue;
    taken.insert(option);
  }
  CLI::App app;
  add_options(app, options);
  examples::apply(app, words);
  return taken;
}

std::string describe(const Options& options) {
  const CombinedMargin margin = *margin_of(options);
  const std::string share = options.sample_rate < 1.0 ? fmt::format(", {:.4g} % of the identities a step",
                                                                    100 * options.sample_rate)
                                                      : "";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"model", fmt::format("{}, {} dimensions, {}, {}", options.backbone, options.dims, *options.precision,
                            to_string(*options.layout))},
      {"loss", fmt::format("margins {}, {} and {}, scale {}, {} gradient{}", margin.m1, margin.m2, margin.m3,
                           margin.scale, options.margin_gradient, share)},
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
      {"images",
       fmt::format("{0}x{0}, {1}", options.image_size, options.flip ? "flipped at random" : "not flipped")},
      {"steps", options.job ? "a job: traced, rewritten and planned once" : "eager"},
  };
  std::string text;
  if (!options.recipe.empty()) text += fmt::format("  {:<8} {}\n", "recipe", options.recipe);
  for (const auto& [row, value] : rows) text += fmt::format("  {:<8} {}\n", row, value);
  return text;
}

}  // namespace train_insightface
