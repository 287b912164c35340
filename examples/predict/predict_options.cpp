#include "predict/predict_options.h"

#include <filesystem>

#include <fmt/core.h>

#include "run/command_line.h"

namespace sinter::examples {

void add_prediction_rows(OptionTable& table, PredictionOptions& options) {
  table.group("Predictions");
  table.add(
      "--predict", options.pictures, path(),
      "Only tell what pictures show: a picture, a folder of them and of folders, a list of them (.txt or "
      ".lst, a path a line), or - for such a list on standard input. Needs --load-weights");
  table
      .add("--output", options.output, file(),
           "File for what is told: .csv or .jsonl; of --features .safetensors (CSV on standard output)")
      .needs("--predict");
  table
      .add("--top-k", options.top_k, whole(1, 1'000'000), "Classes told of each picture, the likeliest first")
      .needs("--predict");
  table.add("--test-flip", options.flip, "Average over each picture and its mirror image").needs("--predict");
  table
      .add("--test-crops", options.crops, one_of({"1", "5"}),
           "Crops of each picture to average over: its middle, or the four corners too")
      .needs("--predict");
  table
      .add("--features", options.features,
           "Write what this layer makes of each picture in place of classes, as layer4 or layer3.1.conv2; "
           "maps "
           "as their means over the picture")
      .called("LAYER")
      .needs("--predict");
  table.add("--class-names", options.class_names, file(),
            "File with a class's name a line, for weights that do not say how theirs are called, with "
            "--predict or --export");
}

std::string check_prediction(const PredictionOptions& options, const TrainerOptions& others) {
  if (!options.wanted()) return {};
  if (others.load_weights.empty()) return "--predict needs --load-weights <file>";
  for (const char* const option :
       {"--data", "--split", "--evaluate", "--checkpoints", "--save-weights", "--export", "--report", "--log",
        "--log-dir", "--recipe", "--write-recipe", "--profile", "--trace", "--gpus", "--processes"}) {
    if (others.is_given(option))
      return fmt::format("--predict and {} cannot go together: predictions are all that is done", option);
  }
  const std::string ending = std::filesystem::path(options.output).extension().string();
  if (options.features.empty()) {
    if (!options.output.empty() && ending != ".csv" && ending != ".jsonl")
      return fmt::format("--output {}: expected a name that ends in .csv or .jsonl", options.output);
    return {};
  }
  if (ending != ".safetensors") return "--features needs --output <file>.safetensors";
  if (others.is_given("--top-k")) return "--top-k is of classes: --features has none";
  return {};
}

}  // namespace sinter::examples
