// What the trainers say of weights that do not fit, and of data that are others than before.
#include "run/model_files.h"

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/models/resnet_names.h>

#include "common/error_message.h"
#include "common/temporary_folder.h"
#include "train_resnet/model.h"

namespace {

using namespace sinter::examples;
using namespace train_resnet;
using sinter::Error;
using sinter::nn::ModelMetadata;
using sinter::nn::data::MemoryDataset;
using sinter::test::message_of;
using sinter::testing::TemporaryFolder;

/// Images of 8x8 pixels, one of each class.
std::shared_ptr<const MemoryDataset> images(int64_t classes, int64_t channels = 3) {
  MemoryDataset::Content content{
      .height = 8, .width = 8, .channels = channels, .pixels = {}, .labels = {}, .class_names = {}};
  content.pixels.resize(static_cast<size_t>(classes * 64 * channels));
  for (int64_t i = 0; i < classes; ++i) {
    content.labels.push_back(i);
    content.class_names.push_back(std::string("name ") + static_cast<char>('a' + i));
  }
  return std::make_shared<MemoryDataset>(content);
}

Options options_of(const char* model) {
  Options options;
  options.model = model;
  options.layout = sinter::Layout::kNCHW;
  return options;
}

sinter::nn::State weights_of(const char* model, int64_t classes, int64_t channels = 3) {
  return make_model(options_of(model), *images(classes, channels)).state();
}

ModelMetadata metadata_of(const char* model, int64_t classes, int64_t channels = 3) {
  return describe_model(options_of(model), *images(classes, channels), {{0.5f}, {0.25f}});
}

TEST(ModelFiles, EveryModelIsRecognised) {
  for (const char* model : {"resnet20", "resnet32", "resnet44", "resnet56", "resnet18", "resnet34",
                            "resnet50", "resnet18d", "seresnet18", "resnext50_32x4d"})
    EXPECT_EQ(sinter::nn::recognise_resnet(weights_of(model, 2)), model);
  EXPECT_EQ(sinter::nn::recognise_resnet({}), "");
}

TEST(ModelFiles, WeightsOfARelatedModelAreOneSentence) {
  EXPECT_EQ(
      message_of<Error>([] {
        check_weights("--load-weights w", weights_of("seresnet18", 10), metadata_of("resnet18", 10));
      }),
      "--load-weights w: these are weights of a seresnet18, --model says resnet18; --model seresnet18 fits");
}

TEST(ModelFiles, WeightsOfAnotherModelAreOneSentence) {
  const auto refused = [](const sinter::nn::State& state, const ModelMetadata& now) {
    return message_of<Error>([&] { check_weights("--load-weights w", state, now); });
  };
  EXPECT_EQ(
      refused(weights_of("resnet20", 10), metadata_of("resnet18", 10)),
      "--load-weights w: these are weights of a resnet20, --model says resnet18; --model resnet20 fits");
  EXPECT_EQ(refused(weights_of("resnet20", 16), metadata_of("resnet20", 10)),
            "--load-weights w: these are weights with 16 classes, the data has 10");
  EXPECT_EQ(refused(weights_of("resnet20", 10, 1), metadata_of("resnet20", 10)),
            "--load-weights w: these are weights for images of 1 channel, the data's have 3");
  EXPECT_EQ(refused(weights_of("resnet20", 10), metadata_of("resnet20", 10)), "no error");
}

TEST(ModelFiles, AMisfitNamesThree) {
  const auto model = make_model(options_of("resnet20"), *images(10));
  sinter::nn::State state = model.state();
  load_weights("w", state, model);
  state.erase("bn1.num_batches_tracked");  // as in old files
  load_weights("w", state, model);
  state["\x1b[2J"] = state.at("fc.bias");
  EXPECT_EQ(message_of<Error>([&] { load_weights("w", state, model); }),
            "w does not fit the model: there is ?[2J");
  sinter::nn::ModelMetadata metadata = metadata_of("resnet18", 10);
  metadata.model = "iresnet18";
  EXPECT_EQ(message_of<Error>([&] { load_weights("w", state, model, metadata); }),
            "w (weights of iresnet18) does not fit the model: there is ?[2J");
  const std::string text = message_of<Error>([&] { load_weights("w", weights_of("resnet18", 10), model); });
  EXPECT_TRUE(
      text.starts_with("w does not fit the model: bn1.bias has shape (64,), not (16,), bn1.running_mean has "
                       "shape (64,), not (16,), bn1.running_var has shape (64,), not (16,) and "))
      << text;
  EXPECT_TRUE(text.ends_with(" more")) << text;
}

TEST(ModelFiles, CheckpointsOfAnotherProgramAreToldSo) {
  sinter::nn::LoadedCheckpoint checkpoint;
  checkpoint.folder = "run/checkpoint-00000001";
  checkpoint.data.tensors["backbone"] = {};
  check_program(checkpoint, "backbone", "model", "train_resnet");
  EXPECT_EQ(message_of<Error>([&] { check_program(checkpoint, "model", "backbone", "train_insightface"); }),
            "run/checkpoint-00000001 is a checkpoint of train_insightface, which goes on with it");
}

TEST(ModelFiles, MetadataMakeTheModelAgain) {
  Options options = options_of("resnet18");
  options.image_size = 32;
  const auto data = images(3);
  const ModelMetadata metadata = describe_model(options, *data, {{0.5f}, {0.25f}});
  EXPECT_EQ(metadata.classes, (std::vector<std::string>{"name a", "name b", "name c"}));
  EXPECT_EQ(metadata.resize, "shorter_side");
  EXPECT_EQ(metadata.resize_size, 36);
  EXPECT_EQ(metadata.height, 32);
  EXPECT_EQ(metadata.train_images, 3);
  ASSERT_EQ(metadata.model, "resnet18");
  const auto model = sinter::nn::resnet18({.classes = std::stoll(metadata.options.at("classes")),
                                           .in_channels = std::stoll(metadata.options.at("in_channels")),
                                           .small_stem = metadata.options.at("small_stem") == "true"});
  EXPECT_TRUE(model.load_state(make_model(options, *data).state()).unexpected.empty());
}

TEST(ModelFiles, AFileOfWeightsSaysWhatItIsOf) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "w.safetensors").string();
  Options trained = options_of("resnet32");
  trained.image_size = 48;
  sinter::nn::State parallel;
  for (const auto& [name, tensor] : weights_of("resnet32", 3)) parallel["module." + name] = tensor;
  sinter::nn::write_safetensors(
      path, parallel, to_safetensors_metadata(describe_model(trained, *images(3), {{0.5f}, {0.25f}})));
  ::testing::internal::CaptureStdout();
  const WeightsFile weights = read_weights(path);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "--load-weights " + path + ": 'module.' is taken off its names\n");
  EXPECT_TRUE(weights.state.contains("fc.weight"));
  Options options;
  adopt(weights, options);
  EXPECT_EQ(options.model, "resnet32");
  EXPECT_EQ(options.image_size, 48);
  Options given;
  given.given = {"--model", "--image-size"};
  adopt(weights, given);
  EXPECT_EQ(given.model, "resnet20");
  EXPECT_EQ(given.image_size, 0);

  sinter::nn::write_safetensors(path, weights.state);
  ::testing::internal::CaptureStdout();
  const WeightsFile bare = read_weights(path);
  EXPECT_FALSE(bare.metadata);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");  // there may be no data
  ::testing::internal::CaptureStdout();
  tell_of_data(bare);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "--load-weights " + path +
                " does not say which classes and images it is of; those of the data are taken for them\n");
}

TEST(ModelFiles, ARunGoesOnWithItsOwnDataAlone) {
  ModelMetadata before = metadata_of("resnet20", 4), now = before;
  const auto refused = [&] {
    return message_of<Error>([&] { check_same_data("r/checkpoint-1", before, now, false); });
  };
  EXPECT_TRUE(check_same_data("r", before, now, false));
  now.classes[3] = "z";
  EXPECT_EQ(
      refused(),
      "r/checkpoint-1 is of other data: class 3 was 'name d', is 'z' now; --change-recipe goes on with them");
  now = before;
  now.train_images = 3;
  EXPECT_EQ(refused(),
            "r/checkpoint-1 is of other data: there were 4 images, there are 3 now; --change-recipe goes on "
            "with them");
  now = before;
  now.data_fingerprint = "0";
  EXPECT_EQ(refused(),
            "r/checkpoint-1 is of other data: names, sizes or labels of the 4 images are others; "
            "--change-recipe goes on "
            "with them");
  EXPECT_FALSE(check_same_data("r", before, now, true));
  now.classes.pop_back();
  EXPECT_EQ(message_of<Error>([&] { check_same_data("r", before, now, true); }),
            "r is of other classes: there were 4 classes, there are 3 now; gone: 'name d'");
}

}  // namespace
