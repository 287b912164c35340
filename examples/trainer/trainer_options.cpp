#include "trainer/trainer_options.h"

#include <algorithm>
#include <filesystem>

#include <CLI/CLI.hpp>

#include <sinter/core/runtime/thread_pool.h>

#include "common/console.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "run/model_files.h"
#include "trainer/html_report.h"

namespace sinter::examples {

void add_arithmetic_rows(OptionTable& table, TrainerOptions& options) {
  table.add(
      "--layout", options.given_layout,
      [&options](const std::string& name) {
        options.given_layout = name;
        options.layout = name == "nhwc" ? Layout::kNHWC : Layout::kNCHW;
      },
      one_of({"nchw", "nhwc"}), "Order of the axes inside the network (nhwc on a GPU, else nchw)");
  table.add("--precision", options.precision, one_of({"f32", "tf32", "mixed-f16", "mixed-bf16"}),
            "Arithmetic: float32, float32 with products in TF32, or 16 bits with float32 weights beside them "
            "(mixed-f16 on a GPU, else f32)");
}

void add_sync_batch_norm_row(OptionTable& table, TrainerOptions& options) {
  table
      .add("--sync-batch-norm", options.sync_batch_norm,
           "Batch norms see the batch of all processes together, else each that of its own part")
      .kept_unless("false");
}

void add_seed_row(OptionTable& table, TrainerOptions& options) {
  table.add("--seed", options.seed, whole(0, UINT64_MAX), "Seed of everything random");
}

namespace {

void add_file_rows(OptionTable& table, TrainerOptions& options, const CommonHelp& help) {
  table.group("Files");
  table.add("--recipe", options.recipe, file(),
            "JSON file with options of the group Recipe, as {\"optimizer\": \"sgd\", \"lr\": 0.4}; what the "
            "command line says goes before. A name alone is also looked for among the recipes that ship with "
            "Sinter");
  table
      .add("--write-recipe", options.write_recipe, file(),
           "Write the run's recipe, defaults included, to such a file")
      .writes();
  table.add("--checkpoints", options.checkpoints, folder(), help.checkpoints).writes();
  table
      .add("--checkpoint-every", options.checkpoint_every, whole(0, kMany),
           "Steps between checkpoints; 0: each epoch")
      .needs("--checkpoints");
  table
      .add("--resume", options.resume,
           "Go on from the newest sound checkpoint, if there is one, with its options; --epochs may grow")
      .needs("--checkpoints");
  table
      .add("--change-recipe", options.change_recipe,
           "Let --resume go on with other options than the checkpoint's")
      .needs("--resume");
  table.add("--load-weights", options.load_weights, file(), help.load_weights);
  table
      .add(
          "--key", options.key,
          "Which dict of a PyTorch file the weights are: state_dict, or ema.params, with dots between names. "
          "Default: the one that is there under a name which checkpoints use, else the top")
      .called("KEY")
      .needs("--load-weights");
  table.add("--save-weights", options.save_weights, file(), help.save_weights).writes();
  table
      .add("--export", options.exported.path, file(),
           "Write the model with its final weights to an ONNX file, for ONNX Runtime and others")
      .writes();
  table
      .add("--export-preprocessing", options.exported.preprocessing, one_of({"none", "rgb", "uint8"}),
           "What that file takes: none (normalised images), rgb (pixels from 0 to 255, NCHW) or uint8 "
           "(bytes, NHWC)")
      .needs("--export");
  table.add("--report", options.report, file(), help.report).writes();
  add_html_report_row(table, options.report_html);
  table
      .add("--trace", options.trace, file(),
           "Write every call of the steps of --profile to a JSON file for ui.perfetto.dev")
      .writes();
  table.add("--log", options.log, file(), "Add a line per epoch to a CSV file").writes();
  table
      .add("--log-dir", options.log_dir, folder(),
           "Folder for the run's log: scalars for TensorBoard and as lines of JSON, the picture "
           "curves.svg, options and result as run.json and report.json (that of --checkpoints)")
      .writes();
  table.add("--log-every", options.log_every, whole(0, kMany),
            "Steps between training losses in that log; 0: twenty times an epoch, but at least every 50 "
            "steps");
}

void add_system_rows(OptionTable& table, TrainerOptions& options, const CommonHelp& help) {
  table.group(kSystemGroup);
  table.add("--device", options.device, device_name(),
            "cpu, cuda, cuda:<index>, or auto: a GPU if there is one");
  table.add("--gpus", options.gpus, whole(1, 1024), help.gpus).without_default();
  table.add("--processes", options.processes, whole(1, 1024), "The same on the CPU").without_default();
  table.add("--rank-timeout", options.rank_timeout, number(0.001, 1e9),
            "Seconds that one operation may wait for the other processes of the run; then it ends with an "
            "error that names who is behind");
  table.add("--threads", options.threads, whole(0, 1024),
            "Threads that compute; 0: one per processor, shared with other processes of the run");
  table.add("--workers", options.workers, whole(0, 256),
            "Threads that prepare batches; 0: none, in turns with training (1; on a GPU one less than "
            "--threads, at most 8)");
  table.add("--decode", options.decode, one_of({"auto", "cpu", "gpu"}), help.steps.decode);
  table.add("--read-timeout", options.read_timeout, number(0, 1e9), help.read_timeout);
  table.add("--max-damaged", options.max_damaged, whole(0, kMany), help.max_damaged);
  table.add("--max-steps", options.max_steps, whole(0, kMany),
            "Stop after so many steps, as Ctrl-C would; 0: train to the end");
  table
      .add(
          "--profile", options.profile, whole(0, kMany),
          "Time so many steps op by op (the eleventh and later, of one epoch), and print where the time went")
      .without_default();
  table.add("--job,!--eager", options.job,
            "Make one job of the model's code and repeat it, or run that code op by op at every step (on)");
  table.add("--memory-limit", options.memory_limit, number(0, 1e6),
            "GiB that results inside a job's step may take; norms and activations are computed again to "
            "keep to it, as far as that goes: a warning tells what is taken beyond. Weights, inputs and "
            "scratch come on top; 0: no limit");
  add_plan_rows(table, options);
  table.add("--evaluate", options.evaluate, help.evaluate);
}

}  // namespace

void add_common_rows(OptionTable& table, TrainerOptions& options, const CommonHelp& help) {
  add_file_rows(table, options, help);
  add_system_rows(table, options, help);
}

std::optional<int> parse_options(int argc, char** argv, const TrainerProgram& program,
                                 const OptionTable& table, TrainerOptions& options) {
  CLI::App app(program.description, program.name);
  table.attach(app);
  set_help_and_version(app, {.first = program.first, .examples = program.examples, .notes = kExitCodes});
  if (const auto code = parse(app, argc, argv, options.given)) return code;
  options.words.assign(argv + 1, argv + argc);
  options.typed = options.given;
  if (const auto code = take_recipe(app, options.recipe, options.given, program.adopt)) return code;
  if (options.batch_auto && options.resume) options.given.erase("--batch");  // that of the checkpoint
  std::string mistake = program.check_together();
  const std::optional<OtherMode> mode = program.mode();
  if (mode && mistake.empty()) mistake = table.unwritten(*mode, options.typed);
  if (!mistake.empty()) return refuse(app, mistake);
  if (mode) {
    for (const std::string& option : options.typed) {
      if (option != mode->option && !mode->uses.contains(option)) options.passed_over.push_back(option);
    }
  }
  return std::nullopt;
}

OtherMode mode_with_weights(const char* option, const TrainerOptions& options,
                            std::initializer_list<const char*> more) {
  OtherMode mode{.option = option,
                 .uses = {"--load-weights", "--key", "--recipe", "--layout", "--precision", "--device",
                          "--threads", "--workers", "--read-timeout", "--export", "--export-preprocessing"}};
  if (options.resume) mode.uses.insert({"--checkpoints", "--resume"});  // which are the weights
  mode.uses.insert(more.begin(), more.end());
  return mode;
}

void tell_passed_over(const TrainerOptions& options) {
  if (!options.passed_over.empty())
    complain("passed over, as nothing is trained: {}", fmt::join(options.passed_over, ", "));
}

OutputFiles TrainerOptions::output_files() const {
  return {{"--save-weights", save_weights},
          {"--export", exported.path},
          {"--report", report},
          {"--log", log},
          {"--trace", trace},
          {"--report-html", report_html},
          {"--write-recipe", write_recipe}};
}

std::set<std::string> adopt_recipe(const OptionTable& table, const Recipe& recipe,
                                   const TrainerOptions& options) {
  const bool other_optimizer = options.is_given("--optimizer") &&
                               options.optimizer != value_or(recipe, "--optimizer", options.optimizer);
  std::set<std::string> taken = table.adopt(recipe, [&](const std::string& flag) {
    return options.is_given(flag) || (other_optimizer && table.is_of_optimizers(flag));
  });
  // Runs that move the momentum write down one all the same; nobody has asked for it.
  if (value_or(recipe, "--cycle-momentum", "false") == "true") taken.erase("--momentum");
  return taken;
}

std::string check_common(const TrainerOptions& options, const OutputFiles& files) {
  if (const std::string mistake = check_plan(options); !mistake.empty()) return mistake;
  if (options.memory_limit > 0 && !options.job) return "--memory-limit is of jobs: leave --eager out";
  if (!options.trace.empty() && options.profile == 0) return "--trace needs --profile <steps>";
  if (const std::string mistake = check_html_report(options.report_html, options.job); !mistake.empty())
    return mistake;
  if (options.course.cycle_momentum && options.is_given("--momentum"))
    return "--cycle-momentum moves the momentum: leave --momentum out";
  if (const std::string mistake = check_course(options, options.given); !options.resume && !mistake.empty())
    return mistake;
  if (options.read_timeout > 0 && options.workers == 0)
    return "--read-timeout needs --workers of at least 1: training cannot leave its own thread";
  if (options.processes > 1 && options.gpus > 0) return "--processes and --gpus cannot both be given";
  if (options.gpus > 0 && options.device != "auto") return "--gpus chooses the devices; leave --device out";
  if (options.is_given("--log-every") && options.log_folder().empty())
    return "--log-every needs --log-dir <folder> or --checkpoints <folder>";
  if (const std::string mistake = check_weights_name("--save-weights", options.save_weights);
      !mistake.empty())
    return mistake;
  const std::filesystem::path exported = options.exported.path;
  if (exported.has_extension() && exported.extension() != ".onnx") {
    return fmt::format("--export: expected a name that ends in .onnx but got '{}'", options.exported.path);
  }
  for (const auto& [first, path] : files) {
    for (const auto& [second, other] : files) {
      if (first != second && !path.empty() && path == other)
        return fmt::format("{} and {} cannot both be {}", first, second, path);
    }
  }
  return {};
}

std::string needs_weights(const char* option, const TrainerOptions& options) {
  return fmt::format("{} needs weights: {}", option,
                     options.checkpoints.empty()
                         ? "--load-weights <file>, or --checkpoints <folder> --resume"
                         : "add --resume for the newest checkpoint in " + options.checkpoints);
}

void complete_common(TrainerOptions& options, Device device) {
  const bool on_gpu = device.is_cuda();
  // Computing is the GPU's there, and the processors are free.
  if (!options.workers) options.workers = on_gpu ? std::clamp(num_threads() - 1, 1, 8) : 1;
  if (!options.precision) options.precision = on_gpu ? "mixed-f16" : "f32";
  if (!options.layout) options.layout = on_gpu ? Layout::kNHWC : Layout::kNCHW;
}

DType compute_dtype(const TrainerOptions& options) {
  if (*options.precision == "mixed-f16") return DType::kFloat16;
  return *options.precision == "mixed-bf16" ? DType::kBFloat16 : DType::kFloat32;
}

std::string describe_rows(const TrainerOptions& options,
                          const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string text;
  if (!options.recipe.empty()) text += fmt::format("  {:<8} {}\n", "recipe", options.recipe);
  for (const auto& [row, value] : rows) text += fmt::format("  {:<8} {}\n", row, value);
  return text;
}

}  // namespace sinter::examples
