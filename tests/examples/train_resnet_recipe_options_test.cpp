// What a recipe says beside the usual: losses against timm's (timm 1.0.31, torch 2.15, float64; see
// tests/reference/class_loss_values.py), weights of classes, networks, test crops.
#include <initializer_list>
#include <typeinfo>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/base/error.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/rmsprop.h>

#include "common/error_message.h"
#include "train_resnet/class_loss.h"
#include "train_resnet/model.h"
#include "train_resnet/options.h"
#include "train_resnet/recipe_options.h"
#include "train_resnet/setup.h"

namespace {

using namespace train_resnet;
using sinter::Tensor;
using sinter::nn::data::MemoryDataset;
using sinter::test::message_of;

std::optional<int> parse(std::initializer_list<const char*> arguments, Options& options) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet")};
  for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
  return parse_options(static_cast<int>(argv.size()), argv.data(), options);
}

/// Images of 32x32 pixels with these labels.
MemoryDataset images(std::vector<int64_t> labels, int64_t classes = 3) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < classes; ++i) names.push_back(std::string(1, static_cast<char>('a' + i)));
  return MemoryDataset({.height = 32,
                        .width = 32,
                        .channels = 3,
                        .pixels = std::vector<uint8_t>(labels.size() * 32 * 32 * 3),
                        .labels = std::move(labels),
                        .class_names = std::move(names)});
}

Options completed(std::initializer_list<const char*> arguments) {
  Options options;
  EXPECT_EQ(parse(arguments, options), std::nullopt);
  complete(options, images({0, 1, 2, 2}), {});
  return options;
}

struct LossCase {
  ClassLoss loss;
  bool is_mixed;
  double value;
  std::vector<double> gradient;
};

TEST(ClassLoss, BinaryCrossEntropyIsTimms) {
  const Tensor weight = Tensor::from_values<float>({1.0f, 0.5f, 2.0f}, {3});
  const Tensor mixed = Tensor::from_values<double>({0.3, 0.0, 0.7, 0.7, 0.0, 0.3}, {2, 3});
  const Tensor labels = Tensor::from_values<int64_t>({2, 0}, {2});
  const std::vector<LossCase> cases = {{{.is_binary = true, .label_smoothing = 0.1},
                                        false,
                                        1.464802675128886,
                                        {0.13070685714338506, 0.05736788924413535, -0.061859472074589215,
                                         -0.13568840188520262, 0.10764089430700995, 0.15320679891485}},
                                       {{.is_binary = true, .label_smoothing = 0.1, .weight = weight},
                                        false,
                                        1.9214503600686221,
                                        {0.13070685714338506, 0.028683944622067675, -0.12371894414917843,
                                         -0.13568840188520262, 0.05382044715350497, 0.3064135978297}},
                                       {{.is_binary = true, .label_smoothing = 0.1},
                                        true,
                                        1.1835526639530152,
                                        {0.0857068553552457, 0.05736788924413535, -0.01685947028644987,
                                         -0.09068840009706329, 0.10764089430700995, 0.10820679712671066}},
                                       {{.is_binary = true, .label_smoothing = 0.1, .bce_threshold = 0.2},
                                        true,
                                        0.7606360084622196,
                                        {-0.030404253967726058, 0.0629234447996909, -0.07297058318570032,
                                         -0.14679951299631375, 0.1131964498625655, -0.007904312196261106}}};
  for (const LossCase& c : cases) {
    const Tensor logits =
        Tensor::from_values<double>({1.5, -0.5, 0.25, -2.0, 0.75, 3.0}, {2, 3}).set_requires_grad(true);
    const Tensor loss = c.loss(logits, c.is_mixed ? mixed : labels);
    // timm keeps mixed shares in float32.
    const double tolerance = c.is_mixed ? 1e-7 : 1e-12;
    EXPECT_NEAR(loss.item(), c.value, tolerance);
    sinter::backward(loss);
    const std::vector<double> gradient = logits.grad().to_vector<double>();
    for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(gradient[i], c.gradient[i], tolerance) << i;
  }
}

TEST(ClassLoss, CrossEntropyTakesWeightsOfClasses) {
  const Tensor logits = Tensor::from_values<float>({1.5f, -0.5f, 0.25f, -2.0f, 0.75f, 3.0f}, {2, 3});
  const Tensor labels = Tensor::from_values<int64_t>({2, 0}, {2});
  const Tensor weight = Tensor::from_values<float>({1.0f, 0.5f, 2.0f}, {3});
  EXPECT_EQ((ClassLoss{.label_smoothing = 0.1, .weight = weight}(logits, labels).item()),
            (sinter::nn::CrossEntropyLoss{.label_smoothing = 0.1, .weight = weight}(logits, labels).item()));
  EXPECT_EQ(ClassLoss{}(logits, labels).item(), sinter::nn::CrossEntropyLoss{}(logits, labels).item());
}

TEST(ClassLoss, WeightsComeFromTheDataOrTheOption) {
  const auto weights = [](const char* text, const MemoryDataset& data) {
    return make_loss(completed({"--class-weights", text}), data, {}).weight;
  };
  // Four images of three classes: 4 / (3 * count).
  EXPECT_EQ(weights("balanced", images({0, 1, 2, 2})).to_vector<float>(),
            (std::vector<float>{4.0f / 3, 4.0f / 3, 2.0f / 3}));
  // As a run without --image-size keeps its images.
  EXPECT_EQ(sinter::nn::data::preload(images({0, 1, 2, 2}))->labels(), (std::vector<int64_t>{0, 1, 2, 2}));
  EXPECT_EQ(weights("1,0.5,0", images({0, 1, 2})).to_vector<float>(), (std::vector<float>{1.0f, 0.5f, 0.0f}));
  EXPECT_FALSE(weights("none", images({0, 1, 2})).defined());
  EXPECT_EQ(message_of([&] {
              weights("balanced", images({0, 2}));
            }),
            "--class-weights balanced: class 1 has no training images");
  EXPECT_EQ(message_of([&] {
              weights("1,2", images({0, 1, 2}));
            }),
            "--class-weights gives 2 numbers, the data has 3 classes");
}

TEST(RecipeOptions, MistakesAreRefused) {
  const auto code = [](std::initializer_list<const char*> arguments) {
    Options options;
    return parse(arguments, options).value_or(0);
  };
  for (const char* word :
       {"--class-weights=1,-1", "--class-weights=nan", "--class-weights=1,", "--loss=mse", "--drop-path=1",
        "--milestones=30", "--bce-threshold=0.2", "--plateau-patience=3", "--test-crop=0", "--test-crop=1.1",
        "--test-crop=0.9", "--gamma=0.5", "--schedule=multi-step", "--beta1=0.8"})
    EXPECT_EQ(code({word}), 2) << word;
  for (const char* epochs : {"5,5", "5,3", "0,3", "1.5", "", "x"})
    EXPECT_EQ(code({"--schedule", "multi-step", "--milestones", epochs}), 2) << epochs;
  EXPECT_EQ(code({"--optimizer", "rmsprop", "--beta1", "0.8"}), 2);
  EXPECT_EQ(code({"--optimizer", "adam", "--momentum", "0.8"}), 2);
  EXPECT_EQ(
      code({"--loss", "bce", "--bce-threshold", "0.2", "--schedule", "multi-step", "--milestones", "3,5"}),
      0);
}

TEST(RecipeOptions, RecipesKeepThemAndGiveThemBack) {
  Options options = completed({"--loss",
                               "bce",
                               "--bce-threshold",
                               "0.2",
                               "--class-weights",
                               "1,2,0.5",
                               "--schedule",
                               "multi-step",
                               "--milestones",
                               "3,5",
                               "--gamma",
                               "0.5",
                               "--warmup-epochs",
                               "2",
                               "--patience",
                               "7",
                               "--drop-path",
                               "0.1",
                               "--zero-init-residual",
                               "--image-size",
                               "32",
                               "--test-crop",
                               "0.95",
                               "--model",
                               "seresnet50",
                               "--optimizer",
                               "rmsprop"});
  const Recipe recipe = recipe_of(options);
  Options again;
  adopt(recipe, again);
  complete(again, images({0, 1, 2, 2}), {});
  EXPECT_EQ(recipe_of(again), recipe);
  EXPECT_EQ(again.loss.class_weights, "1,2,0.5");
  EXPECT_EQ(again.course.milestones, "3,5");
  EXPECT_EQ(again.course.patience, 7);
  EXPECT_TRUE(again.network.zero_init_residual);
  // Checkpoints of before know none of them; those that are not in use are in no recipe.
  for (const auto& [flag, value] : recipe_of(completed({}))) {
    for (const char* name :
         {"--loss", "--bce-threshold", "--class-weights", "--milestones", "--gamma", "--warmup-epochs",
          "--plateau-patience", "--patience", "--drop-path", "--zero-init-residual", "--test-crop"})
      EXPECT_NE(flag, name) << value;
  }
}

TEST(RecipeOptions, NetworksAndOptimisersAreTheirs) {
  const MemoryDataset data = images({0, 1, 2});
  const Options options = completed({"--model", "seresnet18", "--drop-path", "0.2", "--zero-init-residual"});
  const sinter::nn::ResNet model = make_model(options, data);
  EXPECT_EQ(sinter::nn::to_string(model).find("StochasticDepth(0.2, row)") != std::string::npos, true);
  EXPECT_EQ(model.state().at("layer1.0.bn2.weight").to_vector<float>()[0], 0.0f);
  EXPECT_EQ(describe_model(options, data, {{0.5f, 0.5f, 0.5f}, {1.0f, 1.0f, 1.0f}}).model, "seresnet18");
  const auto adam = make_optimizer(completed({"--optimizer", "adam"}), model);
  const auto rmsprop = make_optimizer(completed({"--optimizer", "rmsprop"}), model);
  const sinter::nn::Optimizer &first = *adam, &second = *rmsprop;
  EXPECT_EQ(typeid(first), typeid(sinter::nn::Adam));
  EXPECT_EQ(typeid(second), typeid(sinter::nn::RMSprop));
}

TEST(RecipeOptions, TestCropsAreAShareOfTheResizedSide) {
  EXPECT_EQ(test_resize(completed({"--image-size", "224"})), 256);
  EXPECT_EQ(test_resize(completed({"--image-size", "176"})), 201);
  EXPECT_EQ(test_resize(completed({"--image-size", "224", "--test-crop", "1"})), 224);
  EXPECT_EQ(test_resize(completed({"--image-size", "288", "--test-crop", "0.95"})), 303);
  for (int64_t size = 1; size <= 1024; ++size) {
    Options options = completed({});
    options.image_size = size;
    EXPECT_EQ(test_resize(options), size * 256 / 224) << "as before there was an option";
  }
}

}  // namespace
