#include "augmentation/augmentation.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <sinter/nn/augment/color_jitter.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/random_erasing.h>

#include "augmentation/augment_list.h"
#include "recipe/recipe_file.h"
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
Check list(const std::vector<T>& limits, const char* value, const std::string& expected) {
  return {[&limits, expected](const std::string& text) {
            return parse_list(text, limits) ? std::string()
                                            : fmt::format("expected {} but got '{}'", expected, text);
          },
          value};
}

}  // namespace

void add_augmentation_rows(OptionTable& table, AugmentationOptions& options) {
  table
      .add("--mixup", options.mixup, number(0, kMostAlpha),
           "Mix images and labels of a batch, by shares from Beta(A, A); 0: not. The training accuracy "
           "then counts the class with the larger share")
      .kept_unless("0");
  table
      .add("--cutmix", options.cutmix, number(0, kMostAlpha),
           "The same, but with a box cut from another image; with --mixup, each batch takes one of them")
      .kept_unless("0");
  add_pixel_rows(table, options);
  table.add(
      "--augment", options.augment,
      [&options](const std::string& text) { options.augment = text == "none" ? "" : text; }, augment_list(),
      "Policies by name, with numbers and joined by + where there are several: trivialaugment, "
      "randaugment:2,9, timm-rand:9,0.5, autoaugment-imagenet (-cifar10, -svhn), augmix:3, 3augment, "
      "grey:0.1, blur:0.5; none");
}

void add_pixel_rows(OptionTable& table, AugmentationOptions& options) {
  table
      .add("--random-erasing", options.random_erasing, number(0, 1),
           "Probability that a box of a training image is overwritten with the mean")
      .kept_unless("0");
  table.add(
      "--color-jitter", options.color_jitter,
      [&options](const std::string& text) {
        options.color_jitter = *parse_list(text, kJitterLimits);
        if (std::ranges::count(options.color_jitter, 0.0) == 4) options.color_jitter.clear();
      },
      list(kJitterLimits, "B,C,S,H", "B,C,S,H: three amounts from 0 to 100 and a hue up to 0.5"),
      "Largest changes of brightness, contrast, saturation and hue, as in 0.4,0.4,0.4,0.1; 0,0,0,0: none");
  table.add(
      "--randaugment", options.rand_augment,
      [&options](const std::string& text) {
        options.rand_augment = *parse_list(text, kRandAugmentLimits);
        if (options.rand_augment.front() == 0) options.rand_augment.clear();
      },
      list(kRandAugmentLimits, "N,M", "N,M: up to 16 steps and a magnitude up to 30"),
      "Random steps of an image and their magnitude, as in 2,9, the same as --augment randaugment:2,9; 0,0: "
      "none");
}

std::string describe(const AugmentationOptions& options) {
  AugmentationOptions values = options;
  OptionTable table;
  table.group(kRecipeGroup);
  add_augmentation_rows(table, values);
  std::string text;
  for (const auto& [option, value] : table.recipe())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option.substr(2), value);
  return text.empty() ? "none" : text;
}

std::vector<nn::data::Augmentation> augmentations(const AugmentationOptions& options) {
  std::vector<nn::data::Augmentation> list;
  if (const auto& counts = options.rand_augment; !counts.empty())
    list.emplace_back(nn::RandAugment({.steps = counts[0], .magnitude = counts[1]}));
  if (!options.augment.empty()) {
    for (nn::data::Augmentation& one : parse_augment_list(options.augment)) list.push_back(std::move(one));
  }
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
