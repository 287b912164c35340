#include "recipe.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

namespace train_resnet {
namespace {

/// Options whose good values are another optimiser's.
constexpr std::array kOfOptimizer = {"--lr",    "--weight-decay", "--momentum",         "--nesterov",
                                     "--beta1", "--beta2",        "--trust-coefficient"};

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
  recipe.merge(sinter::examples::augmentation_recipe(options.augmentation));
  if (options.split > 0) recipe["--split"] = fmt::format("{}", options.split);
  if (options.has_momentum()) {
    recipe["--momentum"] = fmt::format("{}", options.momentum);
    recipe["--nesterov"] = fmt::format("{}", *options.nesterov);
  } else {
    recipe["--beta1"] = fmt::format("{}", options.beta1);
    recipe["--beta2"] = fmt::format("{}", options.beta2);
  }
  if (options.optimizer == "lars")
    recipe["--trust-coefficient"] = fmt::format("{}", options.trust_coefficient);
  // Checkpoints of earlier versions do not have these.
  if (options.ema > 0) recipe["--ema"] = fmt::format("{}", options.ema);
  if (options.accumulate > 1) recipe["--accumulate"] = fmt::format("{}", options.accumulate);
  if (options.sync_batch_norm) recipe["--sync-batch-norm"] = "true";
  return recipe;
}

bool has_recipe(const sinter::nn::CheckpointData& data) {
  return data.values.contains("recipe.lr");
}

Recipe read_recipe(const sinter::nn::CheckpointData& data) {
  Recipe recipe = sinter::examples::read_recipe(data);
  recipe.insert({{"--model", data.value<std::string>("model")},
                 {"--precision", data.value<std::string>("precision")},
                 {"--epochs", fmt::format("{}", data.value<int64_t>("epochs"))}});
  return recipe;
}

std::set<std::string> adopt(const Recipe& recipe, Options& options) {
  const std::string optimizer = sinter::examples::value_or(recipe, "--optimizer", options.optimizer);
  const bool other_optimizer = options.is_given("--optimizer") && options.optimizer != optimizer;
  std::vector<std::string> words;
  std::set<std::string> taken;
  for (const auto& [option, value] : recipe) {
    const bool is_of_other =
        other_optimizer && std::find(kOfOptimizer.begin(), kOfOptimizer.end(), option) != kOfOptimizer.end();
    if (options.is_given(option.c_str()) || is_of_other) continue;
    words.push_back(option + "=" + value);
    taken.insert(option);
  }
  apply_words(words, options);
  return taken;
}

}  // namespace train_resnet
