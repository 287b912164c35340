#include "options.h"

#include <set>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "run/command_line.h"
#include "run/help.h"
#include "run/model_files.h"

namespace sinter_convert {
namespace {

namespace examples = sinter::examples;

void add_options(CLI::App& app, Options& options) {
  app.add_option(
         "input", options.input,
         "File of weights: .safetensors, or .pth or .pt of PyTorch; its contents say which, not its name")
      ->required()
      ->check(examples::file());
  app.add_option("output", options.output, "File to write: .safetensors, or .pth or .pt, as its name ends")
      ->check(examples::file());
  app.option_defaults()->group("Weights");
  app.add_option(
         "--key", options.key,
         "Which dict of a PyTorch file: state_dict, or ema.params, with dots between names. Default: the "
         "one that is there under a name which checkpoints use, else the top")
      ->type_name("KEY");
  app.add_flag("--list", options.list,
               "Print name, dtype and shape of each tensor, and write nothing unless an output is given");
  app.add_flag("--force", options.force, "Replace an output that is there");
  app.option_defaults()->group(examples::kSystemGroup);
  examples::set_help_and_version(
      app,
      {.first = {"--key", "--list"},
       .examples = {"sinter_convert resnet18.pth resnet18.safetensors",
                    "sinter_convert checkpoint.pth --list",
                    "sinter_convert checkpoint.pth ema.safetensors --key state_dict_ema",
                    "sinter_convert run1/best.safetensors best.pth"},
       .notes = "Exit code: 0 all is done; 1 an error, and the output is as it was; 2 a mistake on the "
                "command line. Nothing in a PyTorch file is run. What is written as .pth is a state dict, "
                "which torch.load(path, weights_only=True) reads."});
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app("Converts files of weights between PyTorch's own format and safetensors, without Python.",
               "sinter_convert");
  add_options(app, options);
  std::set<std::string> given;
  if (const auto exit_code = examples::parse(app, argc, argv, given)) return exit_code;
  if (options.output.empty() && !options.list) return examples::refuse(app, "expected an output, or --list");
  if (!options.output.empty() && !examples::weights_format(options.output)) {
    return examples::refuse(
        app, fmt::format("output: expected a name that ends in .safetensors, .pth or .pt but got '{}'",
                         options.output));
  }
  return std::nullopt;
}

}  // namespace sinter_convert
