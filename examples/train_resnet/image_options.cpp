#include "image_options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/text.h"
#include "run/command_line.h"
#include "trainer/step_options.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::number;
using examples::one_of;
using examples::OptionTable;
using examples::whole;

constexpr int64_t kLargestSize = 1024;
constexpr int64_t kMostEpochs = 1'000'000;

/// Takes a whole number from the front of a text; none if there is none from 1 to `most`.
std::optional<int64_t> take_number(std::string_view& text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1 || value > most) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// None unless all epochs are above those before them.
std::optional<std::vector<ProgressiveSize>> parse_sizes(std::string_view text) {
  std::vector<ProgressiveSize> sizes;
  while (true) {
    const std::optional<int64_t> size = take_number(text, kLargestSize);
    if (!size || !text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
    const std::optional<int64_t> epoch = take_number(text, kMostEpochs);
    if (!epoch || (!sizes.empty() && *epoch <= sizes.back().last_epoch)) return std::nullopt;
    sizes.push_back({*size, *epoch});
    if (text.empty()) return sizes;
    if (!text.starts_with(',')) return std::nullopt;
    text.remove_prefix(1);
  }
}

examples::Check sizes() {
  return {[](const std::string& text) {
            return text == "none" || parse_sizes(text)
                       ? std::string()
                       : fmt::format(
                             "expected sizes up to {} with the last epoch of each, in ascending order, as "
                             "in 128:10,160:20, but got '{}'",
                             kLargestSize, text);
          },
          "SIZES"};
}

examples::Check range(double most, const char* example) {
  return {[most, example](const std::string& text) {
            const auto numbers = examples::parse_numbers(text);
            const bool fits = numbers && numbers->size() == 2 && numbers->front() > 0 &&
                              numbers->front() <= numbers->back() && numbers->back() <= most;
            return fits ? std::string()
                        : fmt::format(
                              "expected the least and the largest of numbers above 0, up to {}, as in "
                              "{}, but got '{}'",
                              most, example, text);
          },
          "MIN,MAX"};
}

}  // namespace

void add_image_rows(OptionTable& table, ImageOptions& options) {
  table.add("--vertical-flip", options.vertical_flip, "Turn half of the training images upside down")
      .kept_unless("false");
  table
      .add("--rotation", options.rotation, number(0, 180),
           "Turn training images by up to so many degrees, either way; black comes in")
      .kept_unless("0");
  table
      .add("--crop-scale", options.crop_scale, range(1, "0.35,1"),
           "Least and largest part of a picture that a crop of --image-size takes")
      .kept_unless("0.08,1");
  table
      .add("--crop-ratio", options.crop_ratio, range(100, "0.75,1.3333"),
           "Least and largest width / height of these crops")
      .kept_unless("0.75,1.3333");
  table
      .add("--interpolation", options.interpolation, one_of({"bilinear", "bicubic"}),
           "How pictures are resized to --image-size, to train and to test on")
      .kept_unless("bilinear");
  table.add(
      "--progressive", options.progressive,
      [&options](const std::string& text) { options.progressive = text == "none" ? "" : text; }, sizes(),
      "Train on crops of other sizes at first: 128:10,160:20 are 128 pixels up to epoch 10, 160 up to epoch "
      "20, and then --image-size, which is always tested on; none");
  table
      .add("--repeated-augmentation", options.repeats, whole(1, 100),
           "Show each image so often in an epoch, augmented differently, and so many fewer of them")
      .kept_unless("1");
}

std::vector<ProgressiveSize> progressive_sizes(const std::string& text) {
  if (text.empty()) return {};
  const auto sizes = parse_sizes(text);
  if (!sizes) throw sinter::InvalidArgument(fmt::format("--progressive {}: expected 128:10,160:20", text));
  return *sizes;
}

int64_t train_size(const ImageOptions& options, int64_t image_size, int64_t epoch) {
  for (const ProgressiveSize& one : progressive_sizes(options.progressive)) {
    if (epoch < one.last_epoch) return one.size;
  }
  return image_size;
}

std::array<double, 2> range_of(const std::string& text) {
  const std::vector<double> numbers = examples::numbers_of("a range", text);
  return {numbers.front(), numbers.back()};
}

std::string check_images(const ImageOptions& options, int64_t image_size) {
  if (image_size > 0) return {};
  const ImageOptions plain;
  const char* option = !options.progressive.empty()                   ? "--progressive"
                       : options.crop_scale != plain.crop_scale       ? "--crop-scale"
                       : options.crop_ratio != plain.crop_ratio       ? "--crop-ratio"
                       : options.interpolation != plain.interpolation ? "--interpolation"
                                                                      : nullptr;
  return option == nullptr ? "" : fmt::format("{} needs --image-size: else images keep their size", option);
}

std::string describe(const ImageOptions& options, int64_t image_size) {
  std::string text;
  int64_t begin = 1;
  for (const ProgressiveSize& one : progressive_sizes(options.progressive)) {
    text += fmt::format(", of {} in epochs {} to {}", examples::counted(one.size, "pixel"), begin,
                        one.last_epoch);
    begin = one.last_epoch + 1;
  }
  const ImageOptions plain;
  if (image_size > 0 && options.crop_scale != plain.crop_scale)
    text += fmt::format(", parts of {} of a picture", options.crop_scale);
  if (image_size > 0 && options.crop_ratio != plain.crop_ratio)
    text += fmt::format(", width / height of {}", options.crop_ratio);
  if (options.interpolation != plain.interpolation) text += ", " + options.interpolation;
  if (options.vertical_flip) text += ", turned upside down at random";
  if (options.rotation > 0)
    text += fmt::format(", turned by up to {} {}", options.rotation,
                        options.rotation == 1 ? "degree" : "degrees");
  if (options.repeats > 1) text += fmt::format(", each {} times", options.repeats);
  return text;
}

}  // namespace train_resnet
