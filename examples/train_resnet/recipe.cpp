#include "recipe.h"

#include <array>
#include <charconv>

#include <fmt/core.h>

namespace train_resnet {
namespace {

constexpr std::string_view kPrefix = "recipe.";

/// Options whose good values are another optimiser's.
constexpr std::array kOfOptimizer = {"--lr",       "--weight-decay", "--momentum",
                                     "--nesterov", "--beta1",        "--beta2"};

int64_t to_number(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

const std::string& at_or(const Recipe& recipe, const std::string& option, const std::string& other) {
  const auto found = recipe.find(option);
  return found == recipe.end() ? other : found->second;
}

}  // namespace

Recipe recipe_of(const Options& options) {
  Recipe recipe = {{"--model", options.model},
                   {"--precision", *options.precision},
                   {"--image-size", fmt::format("{}", options.image_size)},
                   {"--epochs", fmt::format("{}", *options.epochs)},
                   {"--batch", fmt::format("{}", *options.batch)},
                   {"--optimizer", options.optimizer},
                   {"--lr", fmt::format("{}", *options.lr)},
                   {"--schedule", options.schedule},
                   {"--warmup", fmt::format("{}", options.warmup)},
                   {"--weight-decay", fmt::format("{}", *options.weight_decay)},
                   {"--decay-norms", fmt::format("{}", options.decay_norms)},
                   {"--label-smoothing", fmt::format("{}", *options.label_smoothing)},
                   {"--clip", fmt::format("{}", options.clip)},
                   {"--crop-padding", fmt::format("{}", *options.crop_padding)},
                   {"--crop-mode", *options.crop_mode},
                   {"--flip", fmt::format("{}", *options.flip)},
                   {"--seed", fmt::format("{}", options.seed)}};
  if (options.optimizer == "adamw") {
    recipe["--beta1"] = fmt::format("{}", options.beta1);
    recipe["--beta2"] = fmt::format("{}", options.beta2);
  } else {
    recipe["--momentum"] = fmt::format("{}", options.momentum);
    recipe["--nesterov"] = fmt::format("{}", options.nesterov);
  }
  return recipe;
}

void write_recipe(const Recipe& recipe, sinter::nn::CheckpointData& data) {
  for (const auto& [option, value] : recipe) data.values[std::string(kPrefix) + option.substr(2)] = value;
}

bool has_recipe(const sinter::nn::CheckpointData& data) {
  return data.values.contains(std::string(kPrefix) + "lr");
}

Recipe read_recipe(const sinter::nn::CheckpointData& data) {
  Recipe recipe = {{"--model", data.value<std::string>("model")},
                   {"--precision", data.value<std::string>("precision")},
                   {"--epochs", fmt::format("{}", data.value<int64_t>("epochs"))}};
  for (const auto& [key, value] : data.values) {
    if (key.starts_with(kPrefix)) recipe["--" + key.substr(kPrefix.size())] = data.value<std::string>(key);
  }
  return recipe;
}

void adopt(const Recipe& recipe, Options& options) {
  const std::string& optimizer = at_or(recipe, "--optimizer", options.optimizer);
  const bool other_optimizer = options.is_given("--optimizer") && options.optimizer != optimizer;
  std::vector<std::string> words;
  for (const auto& [option, value] : recipe) {
    const bool is_of_other =
        other_optimizer && std::find(kOfOptimizer.begin(), kOfOptimizer.end(), option) != kOfOptimizer.end();
    if (!options.is_given(option.c_str()) && !is_of_other) words.push_back(option + "=" + value);
  }
  apply_words(words, options);
}

std::vector<Change> changes(const Recipe& before, const Recipe& now, bool whole) {
  static const std::string kNone = "none";
  Recipe all = now;
  all.insert(before.begin(), before.end());
  std::vector<Change> found;
  for (const auto& [option, value] : all) {
    if (!whole && !before.contains(option)) continue;
    const std::string &old_value = at_or(before, option, kNone), &new_value = at_or(now, option, kNone);
    if (old_value == new_value) continue;
    if (option == "--epochs" && to_number(new_value) > to_number(old_value)) continue;
    found.push_back({option, old_value, new_value});
  }
  return found;
}

std::string list_changes(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes)
    text += fmt::format("  {:<18} {} -> {}\n", change.option, change.before, change.now);
  return text;
}

}  // namespace train_resnet
