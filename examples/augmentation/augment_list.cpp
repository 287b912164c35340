#include "augmentation/augment_list.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <string_view>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/policies/aug_mix.h>
#include <sinter/nn/augment/policies/auto_augment.h>
#include <sinter/nn/augment/policies/three_augment.h>
#include <sinter/nn/augment/policies/timm_rand_augment.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/trivial_augment.h>

namespace sinter::examples {
namespace {

using nn::data::Augmentation;

/// A number that a name takes, all from the left being optional.
struct Parameter {
  const char* name;
  double least, most;
  double otherwise;
  bool is_whole = false;
};

struct Entry {
  const char* name;
  std::vector<Parameter> parameters;
  std::function<Augmentation(const std::vector<double>&)> make;
};

int64_t whole(double value) {
  return static_cast<int64_t>(value);
}

Entry auto_augment(const char* name, nn::AutoAugmentPolicy policy) {
  return {name, {}, [policy](const auto&) { return nn::AutoAugment({.policy = policy}); }};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"trivialaugment", {}, [](const auto&) { return nn::TrivialAugment(); }},
      {"randaugment",
       {{"steps", 1, 16, 2, true}, {"magnitude", 0, 30, 9, true}},
       [](const auto& p) { return nn::RandAugment({.steps = whole(p[0]), .magnitude = whole(p[1])}); }},
      {"timm-rand",
       {{"magnitude", 0, 10, 9},
        {"deviation", 0, 100, 0.5},
        {"steps", 1, 16, 2, true},
        {"probability", 0, 1, 0.5}},
       [](const auto& p) {
         return nn::TimmRandAugment(
             {.steps = whole(p[2]), .magnitude = p[0], .deviation = p[1], .probability = p[3]});
       }},
      auto_augment("autoaugment-imagenet", nn::AutoAugmentPolicy::kImageNet),
      auto_augment("autoaugment-cifar10", nn::AutoAugmentPolicy::kCifar10),
      auto_augment("autoaugment-svhn", nn::AutoAugmentPolicy::kSvhn),
      {"augmix",
       {{"severity", 1, 10, 3, true},
        {"width", 1, 16, 3, true},
        {"depth", 0, 16, 0, true},
        {"alpha", 0.001, 1000, 1}},
       [](const auto& p) {
         return nn::AugMix(
             {.severity = whole(p[0]), .width = whole(p[1]), .depth = whole(p[2]), .alpha = p[3]});
       }},
      {"3augment", {}, [](const auto&) { return nn::ThreeAugment(); }},
      {"grey",
       {{"probability", 0, 1, 0.1}},
       [](const auto& p) { return nn::RandomGreyscale({.probability = p[0]}); }},
      {"blur",
       {{"probability", 0, 1, 0.5}, {"least sigma", 0.01, 2, 0.1}, {"largest sigma", 0.01, 2, 2}},
       [](const auto& p) {
         return nn::RandomBlur({.probability = p[0], .min_sigma = p[1], .max_sigma = p[2]});
       }}};
  return all;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

const Entry& entry_of(const std::string& name) {
  const auto found = std::ranges::find(entries(), name, [](const Entry& entry) { return entry.name; });
  if (found != entries().end()) return *found;
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  throw InvalidArgument(fmt::format("there is no '{}', but {}", name, fmt::join(names, ", ")));
}

/// The numbers behind a name.
std::vector<double> values_of(const Entry& entry, const std::string& text) {
  std::vector<double> values;
  for (const Parameter& parameter : entry.parameters) values.push_back(parameter.otherwise);
  if (text.empty()) return values;
  const std::vector<std::string> words = split(text, ',');
  if (words.size() > values.size()) {
    std::vector<std::string> names;
    for (const Parameter& parameter : entry.parameters) names.emplace_back(parameter.name);
    throw InvalidArgument(
        names.empty() ? fmt::format("{} takes no numbers, but got '{}'", entry.name, text)
                      : fmt::format("{} takes {}, but got '{}'", entry.name, fmt::join(names, ", "), text));
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const Parameter& parameter = entry.parameters[i];
    const char* const end = words[i].data() + words[i].size();
    const auto [stop, error] = std::from_chars(words[i].data(), end, values[i]);
    const bool fits = error == std::errc() && stop == end && values[i] >= parameter.least &&
                      values[i] <= parameter.most &&
                      (!parameter.is_whole || values[i] == std::floor(values[i]));
    if (!fits) {
      throw InvalidArgument(fmt::format("{}: expected {} from {} to {}{} but got '{}'", entry.name,
                                        parameter.name, parameter.least, parameter.most,
                                        parameter.is_whole ? " in whole numbers" : "", words[i]));
    }
  }
  return values;
}

}  // namespace

std::vector<Augmentation> parse_augment_list(const std::string& text) {
  std::vector<Augmentation> list;
  for (const std::string& item : split(text, '+')) {
    const size_t colon = item.find(':');
    const std::string name = item.substr(0, colon);
    const Entry& entry = entry_of(name);
    const std::string numbers = colon == item.npos ? "" : item.substr(colon + 1);
    if (colon != item.npos && numbers.empty())
      throw InvalidArgument(fmt::format("there is nothing behind '{}'", item));
    list.push_back(entry.make(values_of(entry, numbers)));
  }
  return list;
}

Check augment_list() {
  return {[](const std::string& text) -> std::string {
            if (text == "none") return {};
            try {
              parse_augment_list(text);
              return {};
            } catch (const Error& error) {
              return error.what();
            }
          },
          "NAMES"};
}

}  // namespace sinter::examples
