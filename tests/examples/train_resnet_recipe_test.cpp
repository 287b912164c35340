// The recipe of train_resnet: what a checkpoint keeps of the options, what a resumed run takes from it, and
// what counts as a change.

#include <vector>

#include <gtest/gtest.h>

#include "train_resnet/options.h"

namespace {

using namespace train_resnet;
using sinter::examples::changes;
using sinter::examples::list_changes;
using sinter::nn::data::MemoryDataset;

/// The complete options of a command line, for a small set of grey images of 8x8 pixels.
Options options_of(const std::vector<const char*>& arguments, const Recipe* stored = nullptr) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet")};
  for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
  Options options;
  EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), std::nullopt);
  if (stored != nullptr) adopt(*stored, options);
  const MemoryDataset dataset({.height = 8,
                               .width = 8,
                               .channels = 1,
                               .pixels = std::vector<uint8_t>(64),
                               .labels = {0},
                               .class_names = {"only"}});
  complete(options, dataset, sinter::Device::cpu());
  return options;
}

Recipe recipe_of(const std::vector<const char*>& arguments, const Recipe* stored = nullptr) {
  return train_resnet::recipe_of(options_of(arguments, stored));
}

TEST(TrainResnetRecipe, SurvivesACheckpoint) {
  const Recipe recipe = recipe_of({"--lr", "0.1234567890123", "--no-nesterov", "--flip", "--clip", "1e-3"});
  sinter::nn::CheckpointData data;
  data.values = {
      {"model", std::string("resnet20")}, {"precision", std::string("f32")}, {"epochs", int64_t{30}}};
  EXPECT_FALSE(has_recipe(data));
  EXPECT_EQ(read_recipe(data), (Recipe{{"--model", "resnet20"}, {"--precision", "f32"}, {"--epochs", "30"}}));
  sinter::examples::write_recipe(recipe, data);
  EXPECT_TRUE(has_recipe(data));
  EXPECT_EQ(read_recipe(data), recipe);
}

TEST(TrainResnetRecipe, HoldsTheLayoutThatWasGiven) {
  EXPECT_FALSE(recipe_of({}).contains("--layout")) << "the default is another on a GPU";
  const Recipe recipe = recipe_of({"--layout", "nhwc"});
  EXPECT_EQ(recipe.at("--layout"), "nhwc");
  EXPECT_EQ(options_of({}, &recipe).layout, sinter::Layout::kNHWC);
  EXPECT_EQ(recipe_of({}, &recipe), recipe);
}

TEST(TrainResnetRecipe, HoldsTheAugmentationInUse) {
  const Recipe without = recipe_of({});
  for (const char* option : {"--mixup", "--cutmix", "--random-erasing", "--color-jitter", "--randaugment"}) {
    EXPECT_FALSE(without.contains(option)) << option;
  }
  const Recipe recipe = recipe_of({"--mixup", "0.2", "--cutmix=1", "--random-erasing", "0.25",
                                   "--color-jitter", "0.40,.4,0.5,0.1", "--randaugment", "2,9"});
  EXPECT_EQ(recipe.at("--mixup"), "0.2");
  EXPECT_EQ(recipe.at("--cutmix"), "1");
  EXPECT_EQ(recipe.at("--random-erasing"), "0.25");
  EXPECT_EQ(recipe.at("--color-jitter"), "0.4,0.4,0.5,0.1");
  EXPECT_EQ(recipe.at("--randaugment"), "2,9");
  // A resumed run takes them up; those that it names, or turns off, are changes.
  EXPECT_EQ(recipe_of({}, &recipe), recipe);
  EXPECT_EQ(changes(recipe, recipe_of({"--randaugment", "0,0"}, &recipe), true).size(), 1u);
  EXPECT_EQ(changes(recipe, recipe_of({"--color-jitter", "0,0,0,0"}, &recipe), true).front().now, "none");
  EXPECT_EQ(changes(without, recipe_of({"--mixup", "0.2"}, &without), true).front().before, "none");
}

TEST(TrainResnetRecipe, IsTakenFromTheCheckpointWhereTheCommandLineIsSilent) {
  // Every option in turn, away from its default.
  const std::vector<std::vector<const char*>> lines = {{"--model", "resnet18"},
                                                       {"--precision", "mixed-bf16"},
                                                       {"--image-size", "64"},
                                                       {"--data", "folder", "--split", "0.25"},
                                                       {"--epochs", "7"},
                                                       {"--batch", "13"},
                                                       {"--optimizer", "adamw"},
                                                       {"--optimizer", "lars"},
                                                       {"--optimizer", "lamb"},
                                                       {"--accumulate", "3"},
                                                       {"--ema", "0.99"},
                                                       {"--lr", "0.0123"},
                                                       {"--schedule", "cosine"},
                                                       {"--warmup", "0.03"},
                                                       {"--momentum", "0.8"},
                                                       {"--no-nesterov"},
                                                       {"--weight-decay", "1e-5"},
                                                       {"--decay-norms"},
                                                       {"--sync-batch-norm"},
                                                       {"--label-smoothing", "0.2"},
                                                       {"--clip", "2.5"},
                                                       {"--crop-padding", "3"},
                                                       {"--crop-mode", "reflect"},
                                                       {"--flip"},
                                                       {"--seed", "18446744073709551615"}};
  const Recipe defaults = recipe_of({});
  for (const auto& line : lines) {
    const Recipe stored = recipe_of(line);
    EXPECT_NE(stored, defaults) << line.front();
    EXPECT_EQ(recipe_of({}, &stored), stored) << line.front();
    EXPECT_TRUE(changes(stored, recipe_of({}, &stored), true).empty());
  }
  const Recipe betas = recipe_of({"--optimizer", "adamw", "--beta1", "0.8", "--beta2", "0.99"});
  EXPECT_EQ(recipe_of({}, &betas), betas);
  const Recipe trust = recipe_of({"--optimizer", "lars", "--trust-coefficient", "0.02", "--nesterov"});
  EXPECT_EQ(recipe_of({}, &trust), trust);
}

TEST(TrainResnetRecipe, TellsWhatTheCommandLineChanges) {
  const Recipe stored = recipe_of({"--lr", "0.05", "--epochs", "10"});
  const Recipe now = recipe_of({"--lr", "0.2", "--no-nesterov"}, &stored);
  EXPECT_EQ(list_changes(changes(stored, now, true)),
            "  --lr               0.05 -> 0.2\n"
            "  --nesterov         true -> false\n");
  EXPECT_TRUE(changes(stored, recipe_of({"--lr", "5e-2"}, &stored), true).empty());
}

TEST(TrainResnetRecipe, EpochsMayGrow) {
  const Recipe stored = recipe_of({"--epochs", "10"});
  EXPECT_TRUE(changes(stored, recipe_of({"--epochs", "11"}, &stored), true).empty());
  EXPECT_EQ(list_changes(changes(stored, recipe_of({"--epochs", "9"}, &stored), true)),
            "  --epochs           10 -> 9\n");
}

TEST(TrainResnetRecipe, AnotherOptimiserGetsItsOwnDefaults) {
  const Recipe stored = recipe_of({"--lr", "0.05", "--clip", "3"});
  const Recipe now = recipe_of({"--optimizer", "adamw"}, &stored);
  EXPECT_EQ(now.at("--lr"), "0.003");
  EXPECT_EQ(now.at("--clip"), "3");
  EXPECT_EQ(list_changes(changes(stored, now, true)),
            "  --beta1            none -> 0.9\n"
            "  --beta2            none -> 0.999\n"
            "  --lr               0.05 -> 0.003\n"
            "  --momentum         0.9 -> none\n"
            "  --nesterov         true -> none\n"
            "  --optimizer        sgd -> adamw\n"
            "  --weight-decay     0.0005 -> 0.05\n");
}

TEST(TrainResnetRecipe, OfAnEarlierVersionIsNotComparedBeyondWhatItHolds) {
  const Recipe stored = {{"--model", "resnet20"}, {"--precision", "f32"}, {"--epochs", "30"}};
  EXPECT_TRUE(changes(stored, recipe_of({"--lr", "0.3"}, &stored), false).empty());
  EXPECT_EQ(changes(stored, recipe_of({"--model", "resnet32"}, &stored), false).size(), 1u);
}

TEST(TrainResnetRecipe, OfAHostileCheckpointIsRefused) {
  for (const Recipe& stored :
       {Recipe{{"--lr", "nan"}}, Recipe{{"--xyzzy", "1"}}, Recipe{{"--epochs", "many"}}}) {
    Options options;
    EXPECT_THROW(adopt(stored, options), sinter::InvalidArgument);
  }
}

}  // namespace
