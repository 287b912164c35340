#include "speedrun/options.h"

#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "run/command_line.h"
#include "run/help.h"

namespace speedrun {

namespace examples = sinter::examples;

std::optional<sinter::DType> Options::precision_on(sinter::Device chosen) const {
  if (precision.empty() ? chosen.is_cpu() : precision == "f32") return std::nullopt;
  return precision == "mixed-bf16" ? sinter::DType::kBFloat16 : sinter::DType::kFloat16;
}

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  const std::vector<std::string> parts = {"whitening", "freezing", "identity", "smoothing", "nesterov",
                                          "bias-rate", "mirror",   "crops",    "lookahead", "views"};
  CLI::App app("Trains a small network on CIFAR-10 as fast as it can (docs/speedrun.md)", "speedrun");
  app.option_defaults()->group("Run");
  app.add_option("--data,folder", options.data,
                 "Folder of train/<class>/*.jpg and test/<class>/*.jpg, or of CIFAR's binary files")
      ->required()
      ->check(CLI::Validator(CLI::ExistingDirectory).description("FOLDER"));
  app.add_option("--runs", options.runs, "Runs, each of a network of its own")
      ->capture_default_str()
      ->check(examples::whole(1, 10'000));
  app.add_flag("--whole", options.whole, "Count from the start of the process");
  app.add_option("--without", options.without, "Leave out this part of the recipe; may be repeated")
      ->check(examples::one_of(parts));
  app.add_option("--epochs", options.epochs, "Passes over the pictures")
      ->capture_default_str()
      ->check(examples::number(1e-3, 1e4));
  app.add_option("--batch", options.batch, "Pictures per step")
      ->capture_default_str()
      ->check(examples::whole(1, 1'000'000));
  app.add_option("--width", options.width, "Channels of the first block; the others have four times as many")
      ->capture_default_str()
      ->check(examples::whole(1, 1024));
  app.add_option("--seed", options.seed, "Decides the first run; the second has the next seed, and so on")
      ->capture_default_str()
      ->check(examples::whole(0, examples::kMany));
  app.option_defaults()->group(examples::kSystemGroup);
  app.add_option("--device", options.device, "cpu, cuda or cuda:<number>; auto: a GPU if there is one")
      ->capture_default_str()
      ->check(examples::device_name());
  app.add_option(
         "--precision", options.precision,
         "Arithmetic: float32, or 16 bits with float32 weights beside them (mixed-f16 on a GPU, else f32)")
      ->check(examples::one_of({"f32", "mixed-f16", "mixed-bf16"}));
  examples::set_help_and_version(
      app, {.first = {"--data", "--runs", "--epochs", "--batch"},
            .examples = {"speedrun cifar10", "speedrun cifar10 --runs 10", "speedrun cifar10 --whole",
                         "speedrun cifar10 --without lookahead --without crops"},
            .notes = "Exit code: 0 it has run; 1 an error; 2 a mistake on the command line."});
  std::set<std::string> given;
  return examples::parse(app, argc, argv, given);
}

}  // namespace speedrun
