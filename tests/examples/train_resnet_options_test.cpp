// The options of train_resnet: what a command line means, and what the data fills in.

#include <initializer_list>

#include <gtest/gtest.h>

#include "train_resnet/options.h"
#include "train_resnet/setup.h"

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

/// A single image of 32x32 pixels.
MemoryDataset one_image(int64_t channels) {
  return MemoryDataset({.height = 32,
                        .width = 32,
                        .channels = channels,
                        .pixels = std::vector<uint8_t>(static_cast<size_t>(32 * 32 * channels)),
                        .labels = {0},
                        .class_names = {"only"}});
}

/// The options once the data are known.
Options completed(Options options, int64_t channels, sinter::Device device = {}) {
  complete(options, one_image(channels), device);
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

TEST(TrainResnetOptions, ATraceIsOfProfiledSteps) {
  const Options options = parse({"--profile", "20", "--trace", "steps.json"});
  EXPECT_EQ(options.trace, "steps.json");
  EXPECT_TRUE(options.leaves_files());
  EXPECT_EQ(parse({"--profile", "20"}).trace, "");
  EXPECT_FALSE(parse({"--profile", "20"}).leaves_files());
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

TEST(TrainResnetOptions, ReadingMayHaveATimeLimit) {
  EXPECT_EQ(parse({}).read_timeout, 0.0);
  const Options options = completed(parse({"--read-timeout", "30"}), 3);
  const auto alone = sinter::Communicator::join(sinter::ProcessEnvironment{});
  EXPECT_EQ(train_loader_options(options, {}, one_image(3), {}, *alone).read_timeout, 30.0);
  EXPECT_EQ(test_loader_options(options, {}, {}).read_timeout, 30.0);
}

TEST(TrainResnetOptions, MistakesGiveAnExitCode) {
  using Words = std::initializer_list<const char*>;
  for (const Words& words :
       {Words{"--lr", "nan"}, Words{"--momentum", "2"}, Words{"--seed", "-1"}, Words{"--chekpoints", "x"},
        Words{"--evaluate"}, Words{"--report", ""}, Words{"--resume"},
        Words{"--read-timeout", "5", "--workers", "0"}, Words{"--trace", "x"},
        Words{"--trace", "x", "--profile", "0"}, Words{"--trace", "", "--profile", "2"}}) {
    std::vector<char*> argv = {const_cast<char*>("train_resnet")};
    for (const char* word : words) argv.push_back(const_cast<char*>(word));
    Options options;
    EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), 2) << *words.begin();
  }
}

TEST(TrainResnetOptions, EachOptimiserHasItsDefaults) {
  EXPECT_EQ(completed(parse({}), 3).lr, 0.1);
  EXPECT_EQ(completed(parse({}), 3).weight_decay, 5e-4);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw"}), 3).lr, 0.003);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw"}), 3).weight_decay, 0.05);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw", "--lr", "0.01"}), 3).lr, 0.01);
}

TEST(TrainResnetOptions, TheLastOfSeveralCounts) {
  EXPECT_EQ(parse({"--lr", "0.1", "--lr", "0.2"}).lr, 0.2);
  EXPECT_EQ(parse({"--flip", "--no-flip"}).flip, false);
  EXPECT_EQ(parse({"--no-nesterov", "--nesterov"}).nesterov, true);
}

TEST(TrainResnetOptions, RememberWhatWasGiven) {
  const Options options = parse({"--lr", "0.1", "--no-flip"});
  EXPECT_EQ(options.given, (std::set<std::string>{"--lr", "--flip"}));
}

}  // namespace
