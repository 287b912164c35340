#include "normalization.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/console.h"
#include "common/text.h"
#include "trainer/step_options.h"

namespace train_resnet {

namespace examples = sinter::examples;
using sinter::Error;
using sinter::nn::data::Normalization;

namespace {

constexpr const char *kAuto = "auto", *kImagenet = "imagenet", *kData = "data";
constexpr int64_t kColours = 3;

/// One value for all channels, or three; none for other texts.
std::optional<Normalization> parse_values(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto mean = examples::parse_numbers(std::string_view(text).substr(0, slash)),
             deviation = examples::parse_numbers(std::string_view(text).substr(slash + 1));
  if (!mean || !deviation || mean->size() != deviation->size()) return std::nullopt;
  if (mean->size() != 1 && mean->size() != static_cast<size_t>(kColours)) return std::nullopt;
  Normalization values{{}, {}};
  for (const double value : *mean) values.mean.push_back(static_cast<float>(value));
  for (const double value : *deviation) values.std.push_back(static_cast<float>(value));
  const bool fits = std::ranges::all_of(values.mean, [](float value) { return value <= 1; }) &&
                    std::ranges::all_of(values.std, [](float value) { return value > 0 && value <= 1; });
  return fits ? std::optional(values) : std::nullopt;
}

examples::Check choices() {
  return {[](const std::string& text) {
            const bool known = text == kAuto || text == kImagenet || text == kData || parse_values(text);
            return known ? std::string()
                         : fmt::format(
                               "expected auto, imagenet, data, or means and deviations of pixels from 0 to "
                               "1, as in 0.5/0.25 or 0.5,0.4,0.4/0.3,0.2,0.2, but got '{}'",
                               text);
          },
          "MEANS/DEVIATIONS"};
}

}  // namespace

void add_normalization_row(examples::OptionTable& table, std::string& choice) {
  table
      .add("--normalization", choice, choices(),
           "How the images of --load-weights are normalised, where these do not say it, as PyTorch's do not: "
           "imagenet; data, as the training images are; or mean/deviation of pixels from 0 to 1. auto: "
           "imagenet for colour images that are told apart by such weights as they are, else data")
      .kept_unless(kAuto);
}

std::optional<Normalization> assumed_normalization(const std::string& choice, const std::string& source,
                                                   int64_t channels) {
  if (choice == kData || (choice == kAuto && channels != kColours)) return std::nullopt;
  Normalization values = sinter::nn::data::imagenet_normalization();
  if (const auto given = parse_values(choice)) values = *given;
  const auto count = static_cast<size_t>(channels);
  if (values.mean.size() == 1) {
    values.mean.resize(count, values.mean.front());
    values.std.resize(count, values.std.front());
  }
  if (values.mean.size() != count) {
    throw Error(fmt::format("--normalization {} is of {}, {} of images with {}", choice,
                            examples::counted(values.mean.size(), "channel"), source, channels));
  }
  return values;
}

void tell_assumed(const std::string& choice, const std::string& source, int64_t channels) {
  if (choice != kAuto || channels != kColours) return;
  examples::complain(
      "{} does not say how its images are normalised; as ImageNet's are, unless --normalization says "
      "otherwise",
      source);
}

void check_no_choice(const std::string& choice, const std::string& source, const std::string& own) {
  if (choice != own)
    throw Error(fmt::format("{} says how its images are normalised; leave --normalization out", source));
}

}  // namespace train_resnet
