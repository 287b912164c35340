// The options of train_resnet: what a command line means, and what the data fills in.

#include <initializer_list>

#include <gtest/gtest.h>

#include "train_resnet/options.h"

namespace {

using namespace train_resnet;
using sinter::nn::data::MemoryDataset;

Options parse(std::initializer_list<const char*> arguments) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet")};
  for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
  Options options;
  const auto exit_code = parse_options(static_cast<int>(argv.size()), argv.data(), options);
  EXPECT_EQ(exit_code, std::nullopt);
  return options;
}

/// The options once the data are known: a single image of 32x32 pixels.
Options completed(Options options, int64_t channels, sinter::Device device = {}) {
  const MemoryDataset dataset({.height = 32,
                               .width = 32,
                               .channels = channels,
                               .pixels = std::vector<uint8_t>(static_cast<size_t>(32 * 32 * channels)),
                               .labels = {0},
                               .class_names = {"only"}});
  complete(options, dataset, device);
  return options;
}

TEST(TrainResnetOptions, ColourImagesAreFlippedUnlessToldOtherwise) {
  EXPECT_TRUE(completed(parse({}), 3).flip.value());
  EXPECT_FALSE(completed(parse({}), 1).flip.value());
  EXPECT_FALSE(completed(parse({"--no-flip"}), 3).flip.value());
  EXPECT_TRUE(completed(parse({"--flip"}), 1).flip.value());
}

TEST(TrainResnetOptions, AReportIsWrittenWhereAsked) {
  EXPECT_EQ(parse({"--report", "run.json"}).report, "run.json");
  EXPECT_EQ(parse({}).report, "");
}

TEST(TrainResnetOptions, WhatIsNotGivenDependsOnDataAndDevice) {
  const Options none = parse({});
  EXPECT_FALSE(none.epochs || none.batch || none.lr || none.precision || none.layout || none.crop_padding ||
               none.crop_mode || none.flip || none.label_smoothing);
  EXPECT_EQ(completed(none, 3).precision, "f32");
  EXPECT_EQ(completed(none, 3, sinter::Device::cuda()).precision, "mixed-f16");
  EXPECT_EQ(completed(none, 3, sinter::Device::cuda()).layout, sinter::Layout::kNHWC);
  EXPECT_EQ(completed(parse({"--precision", "tf32"}), 3, sinter::Device::cuda()).precision, "tf32");
}

}  // namespace
