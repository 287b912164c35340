// What an epoch's images are made of: policies by name, sizes that grow, crops, and weights of classes from a
// file.
#include <fstream>
#include <initializer_list>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "augmentation/augment_list.h"
#include "common/error_message.h"
#include "common/temporary_folder.h"
#include "train_resnet/class_weights.h"
#include "train_resnet/options.h"
#include "train_resnet/setup.h"

namespace {

using namespace train_resnet;
using sinter::InvalidArgument;
using sinter::examples::parse_augment_list;
using sinter::nn::data::MemoryDataset;
using sinter::test::message_of;

int code(std::initializer_list<const char*> arguments) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet")};
  for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
  Options options;
  return parse_options(static_cast<int>(argv.size()), argv.data(), options).value_or(0);
}

MemoryDataset three_images(std::vector<std::string> names = {"ant", "bee", "wild cat"}) {
  return MemoryDataset({.height = 8,
                        .width = 8,
                        .channels = 1,
                        .pixels = std::vector<uint8_t>(3 * 64),
                        .labels = {0, 1, 2},
                        .class_names = std::move(names)});
}

TEST(AugmentList, KnowsPoliciesAndTheirNumbers) {
  EXPECT_EQ(parse_augment_list("3augment+blur:0.2,1,2+grey").size(), 3u);
  for (const char* text :
       {"trivialaugment", "randaugment", "randaugment:3", "timm-rand:7,0.5,2,0.5", "augmix",
        "autoaugment-imagenet", "autoaugment-cifar10", "autoaugment-svhn", "grey:1"})
    EXPECT_EQ(parse_augment_list(text).size(), 1u) << text;
  const auto refused = [](const char* text) {
    return message_of<InvalidArgument>([&] { parse_augment_list(text); });
  };
  EXPECT_EQ(refused("autoaugment"),
            "there is no 'autoaugment', but trivialaugment, randaugment, timm-rand, autoaugment-imagenet, "
            "autoaugment-cifar10, autoaugment-svhn, augmix, 3augment, grey, blur");
  EXPECT_EQ(refused("grey+").substr(0, 14), "there is no ''");
  EXPECT_EQ(refused("augmix:"), "there is nothing behind 'augmix:'");
  EXPECT_EQ(refused("3augment:1"), "3augment takes no numbers, but got '1'");
  EXPECT_EQ(refused("grey:0.1,2"), "grey takes probability, but got '0.1,2'");
  EXPECT_EQ(refused("randaugment:2.5"),
            "randaugment: expected steps from 1 to 16 in whole numbers but got '2.5'");
  EXPECT_EQ(refused("timm-rand:11"), "timm-rand: expected magnitude from 0 to 10 but got '11'");
  EXPECT_EQ(refused("grey:nan"), "grey: expected probability from 0 to 1 but got 'nan'");
}

TEST(ImageOptions, MistakesAreRefused) {
  for (const char* sizes :
       {"", "128", "128:", ":3", "128:3,", "128:3,160:3", "128:3,160:2", "0:3", "2000:3", "a:3"})
    EXPECT_EQ(code({"--image-size", "224", "--progressive", sizes}), 2) << sizes;
  for (const char* scale : {"0,1", "0.5", "0.5,0.4", "0.5,1.5", "a,b", "0.1,0.5,1"})
    EXPECT_EQ(code({"--image-size", "224", "--crop-scale", scale}), 2) << scale;
  EXPECT_EQ(code({"--image-size", "224", "--progressive", "128:3,160:5", "--crop-scale", "0.35,1",
                  "--crop-ratio", "1,1", "--interpolation", "bicubic"}),
            0);
  EXPECT_EQ(code({"--interpolation", "nearest"}), 2);
  EXPECT_EQ(code({"--rotation", "181"}), 2);
  EXPECT_EQ(code({"--repeated-augmentation", "0"}), 2);
  for (const char* word :
       {"--progressive=16:1", "--crop-scale=0.5,1", "--crop-ratio=1,1", "--interpolation=bicubic"})
    EXPECT_EQ(code({word}), 2) << word << " without --image-size";
}

TEST(ImageOptions, SizesGrowAfterTheirLastEpoch) {
  ImageOptions options;
  EXPECT_EQ(train_size(options, 224, 0), 224);
  options.progressive = "128:2,160:5";
  const int64_t wanted[] = {128, 128, 160, 160, 160, 224, 224};
  for (int64_t epoch = 0; epoch < 7; ++epoch)
    EXPECT_EQ(train_size(options, 224, epoch), wanted[epoch]) << epoch;
}

TEST(ImageOptions, AreNotInRecipesWithoutThem) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet")};
  Options options;
  parse_options(1, argv.data(), options);
  complete(options, three_images(), {});
  for (const auto& [flag, value] : recipe_of(options)) {
    for (const char* name :
         {"--vertical-flip", "--rotation", "--crop-scale", "--crop-ratio", "--interpolation", "--progressive",
          "--repeated-augmentation", "--augment", "--val-share"})
      EXPECT_NE(flag, name) << value;
  }
}

TEST(ClassWeights, ComeFromAFile) {
  const sinter::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "weights.csv").string();
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_class_weights(path, three_images());
  };
  EXPECT_EQ(read("\357\273\277bee,2\r\nwild cat, 0.25\n\nant\t1\n"), "1,2,0.25");
  EXPECT_EQ(read("1\n0.5\n3\n"), "1,0.5,3");
  EXPECT_EQ(read_class_weights("balanced", three_images()), "balanced");
  EXPECT_EQ(read_class_weights("", three_images()), "");
  const std::string name = "--class-weights " + path;
  const auto refused = [&](const std::string& text) {
    return message_of<InvalidArgument>([&] { read(text); });
  };
  EXPECT_EQ(refused(""), name + ": the file is empty");
  EXPECT_EQ(refused("ant,1\nbee,-1\n"),
            name + ", line 2: expected a class and its weight from 0 on, as in 'cat,0.5', but got 'bee,-1'");
  EXPECT_EQ(refused("ant,1\nant,1\n"), name + ", line 2: class 'ant' is there twice");
  EXPECT_EQ(refused("ant,1\n1\n"), name + ", line 2: expected a class on every line, or on none");
  EXPECT_EQ(refused("ant,1\nbee,1\n"), name + ": class 'wild cat' is missing");
  EXPECT_EQ(refused("ant,1\nbee,1\nwild cat,1\ndog,1\n"), name + ": the data has no class 'dog'");
  EXPECT_EQ(message_of<sinter::Error>([&] { read_class_weights(path + "x", three_images()); }),
            name + "x cannot be read: No such file or directory");
}

}  // namespace
