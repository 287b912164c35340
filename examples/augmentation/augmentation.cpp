#include "augmentation/augmentation.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sinter/nn/augment/color_jitter.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/random_erasing.h>

#include "run/command_line.h"

namespace sinter::examples {
namespace {

constexpr double kMostAlpha = 1000;

/// The numbers of a list such as "0.4,0.4,0.4,0.1", none of them beyond its limit; none if it is not one.
template <class T>
std::optional<std::vector<T>> parse_list(std::string_view text, const std::vector<T>& limits) {
  std::vector<T> numbers;
  for (const T limit : limits) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !(number >= 0 && number <= limit)) return std::nullopt;
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (numbers.size() == limits.size()) break;
    if (!text.starts_with(',')) return std::nullopt;
    text.remove_prefix(1);
  }
  return text.empty() ? std::optional(numbers) : std::nullopt;
}

const std::vector<double> kJitterLimits = {100, 100, 100, 0.5};
const std::vector<int64_t> kRandAugmentLimits = {16, 30};

template <class T>
CLI::Validator list(const std::vector<T>& limits, const char* value, const std::string& expected) {
  return CLI::Validator(
      [&limits, expected](const std::string& text) {
        return parse_list(text, limits) ? std::string()
                                        : fmt::format("expected {} but got '{}'", expected, text);
      },
      value);
}

}  // namespace

void add_augmentation_options(CLI::App& app, AugmentationOptions& options) {
  app.add_option("--mixup", options.mixup,
                 "Mix images and labels of a batch, by shares from Beta(A, A); 0: not. The training accuracy "
                 "then counts the class with the larger share")
      ->capture_default_str()
      ->check(number(0, kMostAlpha));
  app.add_option(
         "--cutmix", options.cutmix,
         "The same, but with a box cut from another image; with --mixup, each batch takes one of them")
      ->capture_default_str()
      ->check(number(0, kMostAlpha));
  app.add_option("--random-erasing", options.random_erasing,
                 "Probability that a box of a training image is overwritten with the mean")
      ->capture_default_str()
      ->check(number(0, 1));
  const auto set_jitter = [&options](const std::string& text) {
    options.color_jitter = *parse_list(text, kJitterLimits);
    if (std::ranges::all_of(options.color_jitter, [](double amount) { return amount == 0; }))
      options.color_jitter.clear();
  };
  app.add_option_function<std::string>("--color-jitter", set_jitter,
                                       "Largest changes of brightness, contrast, saturation and hue, as in "
                                       "0.4,0.4,0.4,0.1; 0,0,0,0: none")
      ->check(list(kJitterLimits, "B,C,S,H", "B,C,S,H: three amounts from 0 to 100 and a hue up to 0.5"));
  const auto set_rand_augment = [&options](const std::string& text) {
    options.rand_augment = *parse_list(text, kRandAugmentLimits);
    if (options.rand_augment.front() == 0) options.rand_augment.clear();
  };
  app.add_option_function<std::string>("--randaugment", set_rand_augment,
                                       "Random steps of an image and their magnitude, as in 2,9; 0,0: none")
      ->check(list(kRandAugmentLimits, "N,M", "N,M: up to 16 steps and a magnitude up to 30"));
}

Recipe augmentation_recipe(const AugmentationOptions& options) {
  Recipe recipe;
  const auto add = [&recipe](const char* option, double value) {
    if (value > 0) recipe[option] = fmt::format("{}", value);
  };
  add("--mixup", options.mixup);
  add("--cutmix", options.cutmix);
  add("--random-erasing", options.random_erasing);
  if (!options.color_jitter.empty())
    recipe["--color-jitter"] = fmt::format("{}", fmt::join(options.color_jitter, ","));
  if (!options.rand_augment.empty())
    recipe["--randaugment"] = fmt::format("{}", fmt::join(options.rand_augment, ","));
  return recipe;
}

std::string describe(const AugmentationOptions& options) {
  std::string text;
  for (const auto& [option, value] : augmentation_recipe(options))
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option.substr(2), value);
  return text.empty() ? "none" : text;
}

std::vector<nn::data::Augmentation> augmentations(const AugmentationOptions& options) {
  std::vector<nn::data::Augmentation> list;
  if (const auto& counts = options.rand_augment; !counts.empty())
    list.emplace_back(nn::RandAugment({.steps = counts[0], .magnitude = counts[1]}));
  if (const auto& amounts = options.color_jitter; !amounts.empty()) {
    list.emplace_back(nn::ColorJitter(
        {.brightness = amounts[0], .contrast = amounts[1], .saturation = amounts[2], .hue = amounts[3]}));
  }
  if (options.random_erasing > 0)
    list.emplace_back(nn::RandomErasing({.probability = options.random_erasing}));
  return list;
}

nn::MixedBatch mix(const AugmentationOptions& options, const Tensor& images, const Tensor& labels,
                   int64_t classes, Layout layout) {
  if (!options.mixes()) return {.images = images, .targets = labels, .labels = labels};
  const bool both = options.mixup > 0 && options.cutmix > 0;
  const bool cuts = both ? default_generator().uniform() < 0.5F : options.cutmix > 0;
  if (!cuts) return nn::Mixup({.alpha = options.mixup, .classes = classes})(images, labels);
  return nn::CutMix({.alpha = options.cutmix, .classes = classes, .layout = layout})(images, labels);
}

}  // namespace sinter::examples
