// What options of fine-tuning mean: groups, classifiers, stems, and the mistakes that a run shows.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/nn/models/resnet_names.h>

#include "common/error_message.h"
#include "finetune/finetune.h"
#include "train_resnet/mistakes.h"
#include "train_resnet/model.h"
#include "train_resnet/setup.h"

namespace {

using namespace sinter;
using namespace train_resnet;
using examples::check_finetune;
using examples::FinetuneOptions;
using examples::group_rules;
using test::message_of;

TEST(FinetuneOptions, RatesOfTheirOwnMakeRules) {
  const std::vector<std::vector<std::string>> layers = {{"conv1.", "bn1."}, {"layer1.0."}, {"fc."}};
  EXPECT_TRUE(group_rules({}, layers, 0.1).empty());
  const auto shares = [&](const FinetuneOptions& options) {
    std::vector<std::pair<std::string, double>> pairs;
    for (const nn::GroupRule& rule : group_rules(options, layers, 0.1))
      pairs.emplace_back(rule.prefix, rule.lr_scale);
    return pairs;
  };
  using Shares = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(shares({.head_lr = 0.2}), (Shares{{"fc.", 2.0}, {"", 1.0}}));
  EXPECT_EQ(shares({.trunk_lr = 0.25}), (Shares{{"fc.", 1.0}, {"", 0.25}}));
  EXPECT_EQ(shares({.head_lr = 0.4, .trunk_lr = 0.5, .layer_decay = 0.5}),
            (Shares{{"fc.", 4.0}, {"conv1.", 0.125}, {"bn1.", 0.125}, {"layer1.0.", 0.25}, {"", 0.5}}));
}

Options options_of(const char* model) {
  Options options;
  options.model = model;
  options.layout = Layout::kNCHW;
  options.lr = 0.1;
  options.weight_decay = 1e-4;
  options.nesterov = true;
  return options;
}

nn::data::MemoryDataset images_of(int64_t side, int64_t count = 1) {
  nn::data::MemoryDataset::Content content;
  content.height = content.width = side;
  content.channels = 3;
  content.pixels.resize(static_cast<size_t>(count * side * side * 3), 128);
  content.labels.assign(static_cast<size_t>(count), 0);
  content.class_names = {"a", "b"};
  return nn::data::MemoryDataset(content);
}

TEST(FinetuneOptions, EachBlockOfAResNetIsALayer) {
  Options options = options_of("resnet20");
  options.finetune.layer_decay = 0.5;
  const nn::ResNet model = make_model(options, images_of(8));
  const auto optimizer = make_optimizer(options, model);
  std::map<std::string, double> scales;
  for (const nn::ParameterGroup& group : optimizer->groups()) {
    for (const nn::Parameter& parameter : group.parameters) scales[parameter.name()] = group.lr_scale;
  }
  EXPECT_EQ(scales.size(), model.parameters().size());
  EXPECT_EQ(scales.at("fc.bias"), 1.0);
  EXPECT_EQ(scales.at("layer3.2.bn2.weight"), 0.5);
  EXPECT_EQ(scales.at("layer3.0.conv1.weight"), std::pow(0.5, 3));
  EXPECT_EQ(scales.at("layer1.0.conv1.weight"), std::pow(0.5, 9));
  EXPECT_EQ(scales.at("bn1.bias"), std::pow(0.5, 10));
  EXPECT_EQ(make_optimizer(options_of("resnet20"), model)->groups().size(), 2u) << "else as before";
}

TEST(FinetuneOptions, AFrozenTrunkLeavesTheClassifier) {
  const nn::ResNet model = make_model(options_of("resnet20"), images_of(8));
  const auto learning = [&] {
    int64_t count = 0;
    for (const nn::Parameter& parameter : model.parameters())
      count += parameter.tensor().requires_grad() ? 1 : 0;
    return count;
  };
  const int64_t all = learning();
  examples::freeze_trunk(model, "fc.", true);
  EXPECT_EQ(learning(), 2);
  EXPECT_FALSE(model.bn1.training());
  examples::freeze_trunk(model, "fc.", false);
  EXPECT_EQ(learning(), all);
  EXPECT_TRUE(model.bn1.training());
}

TEST(FinetuneOptions, ANewClassifierIsTheModelsOwn) {
  const nn::ResNet other = nn::resnet20({.classes = 7}), model = nn::resnet20({.classes = 2});
  nn::State weights = other.state();
  weights["fc.extra"] = Tensor::zeros({1});
  const nn::State state = examples::with_own_head(weights, model, "fc.");
  model.load_state(state);
  EXPECT_EQ(model.parameters()[0].tensor().to_vector<float>(),
            other.parameters()[0].tensor().to_vector<float>());
  EXPECT_EQ(state.at("fc.weight").shape(), (Shape{2, 64}));
}

TEST(FinetuneOptions, AModelWithinAnotherIsFound) {
  const nn::State own = make_model(options_of("resnet20"), images_of(8)).state();
  examples::WeightsFile weights{
      "w", {{"head.0.weight", Tensor::zeros({1})}, {"plain", Tensor::zeros({1})}}, {}};
  find_model(weights);
  EXPECT_EQ(weights.state.size(), 2u) << "there is none";
  for (const auto& [name, tensor] : own) weights.state["backbone." + name] = tensor;
  find_model(weights);
  EXPECT_EQ(weights.state.size(), own.size());
  EXPECT_EQ(nn::recognise_resnet(weights.state), "resnet20");
}

TEST(FinetuneOptions, StemsFollowTheWeights) {
  Options large = options_of("resnet18");
  large.finetune.stem = "imagenet";
  const auto images = images_of(8);
  const examples::WeightsFile weights{"--load-weights w", make_model(large, images).state(), {}};
  Options options = options_of("resnet18");
  settle_stem({}, images, options);
  EXPECT_EQ(options.finetune.stem, "auto");
  settle_stem(weights, images, options);
  EXPECT_EQ(options.finetune.stem, "imagenet");
  EXPECT_EQ(make_model(options, images).parameters()[0].tensor().shape(), (Shape{64, 3, 7, 7}));
  options = options_of("resnet18");
  options.image_size = 224;  // whose own stem it is
  settle_stem(weights, images, options);
  EXPECT_EQ(options.finetune.stem, "auto");
  options.finetune.stem = "small";
  EXPECT_EQ(
      message_of<Error>([&] { settle_stem(weights, images, options); }),
      "--load-weights w: these are weights with the stem imagenet (7x7), --stem says small; --stem imagenet "
      "fits");
}

TEST(FinetuneOptions, DeepStemsFollowWhatIsSaidOfThem) {
  const auto images = images_of(8);
  Options options = options_of("resnet18d");
  examples::WeightsFile weights{"w", make_model(options, images).state(), {}};
  settle_stem(weights, images, options);
  EXPECT_EQ(options.finetune.stem, "auto") << "their filters are of one size";
  weights.metadata.emplace().options["small_stem"] = "false";
  settle_stem(weights, images, options);
  EXPECT_EQ(options.finetune.stem, "imagenet");
}

TEST(FinetuneOptions, MistakesAreNamed) {
  EXPECT_EQ(check_finetune({}, false, true), "");
  EXPECT_EQ(check_finetune({.new_head = true, .freeze_trunk = 2}, true, false), "");
  EXPECT_TRUE(check_finetune({.new_head = true}, true, true).starts_with("--new-head makes"));
  EXPECT_TRUE(check_finetune({.new_head = true}, false, false).starts_with("--new-head needs"));
  EXPECT_TRUE(check_finetune({.freeze_trunk = 1}, false, false).starts_with("--freeze-trunk needs"));
}

TEST(WorstMistakes, TheSurestAreKept) {
  WorstMistakes mistakes(0, 2);
  mistakes.add(Tensor::from_values<float>({3, 0, /**/ 0, 1, /**/ 0, 5}, {3, 2}),
               Tensor::from_values<int64_t>({0, 0, 0}, {3}));
  mistakes.add(Tensor::from_values<float>({2, 0, /**/ NAN, 0}, {2, 2}),
               Tensor::from_values<int64_t>({1, 1}, {2}));
  ASSERT_EQ(mistakes.worst().size(), 2u);
  EXPECT_EQ(mistakes.worst()[0].index, 2);
  EXPECT_EQ(mistakes.worst()[0].taken, 1);
  EXPECT_NEAR(mistakes.worst()[0].probability, 1 / (1 + std::exp(-5.0)), 1e-6);
  EXPECT_EQ(mistakes.worst()[1].index, 3);
  EXPECT_EQ(mistakes.worst()[1].target, 1);
}

TEST(WorstMistakes, ClassesOfAReport) {
  nn::ConfusionMatrix confusion(3);
  confusion.add(Tensor::from_values<int64_t>({0, 1, 0}, {3}), Tensor::from_values<int64_t>({0, 0, 0}, {3}));
  const std::vector<std::string> names = {"cat", "a name that is very long", "bird"};
  const auto rows = per_class(confusion, names);
  EXPECT_EQ(rows[0].dump(),
            R"({"class":"cat","images":3,"precision":1.0,"recall":0.6666666666666666,"f1":0.8})");
  EXPECT_EQ(rows[2].dump(), R"({"class":"bird","images":0,"precision":null,"recall":null,"f1":null})");
  EXPECT_EQ(weakest_classes(confusion, names), "weakest      a name that .. (F1 0.0 %), cat (80.0 %)\n");
  nn::ConfusionMatrix sound(2);
  sound.add(Tensor::from_values<int64_t>({0, 1}, {2}), Tensor::from_values<int64_t>({0, 1}, {2}));
  EXPECT_EQ(weakest_classes(sound, {"a", "b"}), "");
}

}  // namespace
