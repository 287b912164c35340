// What train_insightface's options make: learning rates, optimisers, weights and batches.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/lars_lamb.h>
#include <sinter/nn/optim/rmsprop.h>
#include <sinter/nn/optim/sgd.h>

#include "examples/train_insightface_support.h"
#include "train_insightface/data.h"
#include "train_insightface/model.h"

namespace {

using namespace train_insightface;

TEST(TrainInsightfaceModel, TheLearningRateRisesAndFallsStepByStep) {
  const sinter::nn::Schedule schedule =
      sinter::examples::make_schedule(options_of({"--lr", "0.4", "--warmup", "0.2", "--epochs", "1"}), 100);
  EXPECT_EQ(schedule(0), 0.0);
  EXPECT_NEAR(schedule(10), 0.2, 1e-12);
  EXPECT_NEAR(schedule(20), 0.4, 1e-12);
  EXPECT_NEAR(schedule(60), 0.4 * 0.25, 1e-12) << "of power 2";
  EXPECT_NEAR(schedule(100), 0.0, 1e-12);
  const sinter::nn::Schedule cycle = sinter::examples::make_schedule(
      options_of({"--lr", "0.05", "--schedule", "one-cycle", "--epochs", "1"}), 200);
  EXPECT_NEAR(cycle(0), 0.05 / 25, 1e-12);
  EXPECT_NEAR(cycle(59), 0.05, 1e-12) << "torch's 0.3 of the run";
  EXPECT_EQ(sinter::examples::make_schedule(
                options_of({"--lr", "0.3", "--schedule", "constant", "--epochs", "1"}), 10)(9),
            0.3);
}

TEST(TrainInsightfaceModel, TheLearningRateFallsAtMilestonesAndPlateaus) {
  const sinter::nn::Schedule steps = sinter::examples::make_schedule(
      options_of({"--schedule", "multi-step", "--milestones", "2,3", "--gamma", "0.5", "--lr", "0.4",
                  "--warmup-epochs", "1", "--epochs", "5"}),
      10);
  EXPECT_NEAR(steps(5), 0.2, 1e-12);
  EXPECT_NEAR(steps(19), 0.4, 1e-12)
      << "milestones count from the start of the run, not from the warm-up's end";
  EXPECT_NEAR(steps(20), 0.2, 1e-12);
  EXPECT_NEAR(steps(30), 0.1, 1e-12);
  auto plateau = sinter::examples::make_plateau(
      options_of({"--schedule", "plateau", "--gamma", "0.25", "--plateau-patience", "1"}));
  ASSERT_TRUE(plateau.has_value());
  std::vector<double> rates;
  for (const double loss : {3.0, 3.0, 3.0, 2.0}) {
    plateau->update(loss);
    rates.push_back(plateau->rate());
  }
  EXPECT_EQ(rates, (std::vector<double>{1.0, 1.0, 0.25, 0.25}))
      << "one epoch without a smaller loss is put up with";
  EXPECT_FALSE(sinter::examples::make_plateau(options_of({})).has_value());
}

TEST(TrainInsightfaceModel, EachOptimizerIsItselfWithItsUsualNumbers) {
  namespace nn = sinter::nn;
  const auto made = [](const Words& words) {
    const nn::Linear layer(3, 2);
    return sinter::examples::make_optimizer(options_of(words), {{.parameters = layer.parameters()}});
  };
  const auto is = [&]<class T>(const char* name, double lr, double decay, T* /*type*/) {
    EXPECT_NE(dynamic_cast<T*>(made({"--optimizer", name}).get()), nullptr) << name;
    const Options options = options_of({"--optimizer", name});
    EXPECT_EQ(options.lr, lr) << name;
    EXPECT_EQ(options.weight_decay, decay) << name;
  };
  is("sgd", 0.1, 5e-4, static_cast<nn::SGD*>(nullptr));
  is("adamw", 0.001, 0.1, static_cast<nn::AdamW*>(nullptr));
  is("adam", 0.001, 1e-5, static_cast<nn::Adam*>(nullptr));
  is("rmsprop", 0.001, 1e-5, static_cast<nn::RMSprop*>(nullptr));
  is("lars", 8.0, 1e-4, static_cast<nn::LARS*>(nullptr));
  is("lamb", 0.01, 0.02, static_cast<nn::LAMB*>(nullptr));

  // A step of LARS without momentum and decay is learning rate times trust coefficient of a weight's length.
  const nn::Linear layer(3, 2);
  const auto lars =
      sinter::examples::make_optimizer(options_of({"--optimizer", "lars", "--trust-coefficient", "0.5",
                                                   "--momentum", "0", "--weight-decay", "0"}),
                                       {{.parameters = layer.parameters()}});
  const sinter::Tensor& weight = layer.weight.tensor();
  const auto before = weight.to_vector<float>();
  layer.weight.tensor().set_grad(sinter::Tensor::full({2, 3}, 7.0));
  layer.bias.tensor().set_grad(sinter::Tensor::zeros({2}));
  lars->step(0.1);
  const auto after = weight.to_vector<float>();
  double length = 0.0, moved = 0.0;
  for (size_t i = 0; i < before.size(); ++i) {
    length += std::pow(static_cast<double>(before[i]), 2.0);
    moved += std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2.0);
  }
  EXPECT_NEAR(std::sqrt(moved), 0.1 * 0.5 * std::sqrt(length), 1e-6);
}

TEST(TrainInsightfaceModel, StepsKeepToMemoryAndToTheDecoderThatIsAskedFor) {
  using sinter::nn::data::DecodeOn;
  EXPECT_EQ(options_of({"--memory-limit", "1.5"}).memory_bytes(), size_t{3} << 29U);
  EXPECT_EQ(options_of({}).memory_bytes(), std::nullopt);
  const auto faces = synthetic_faces(2, 20);
  const auto decoder = [&](const Words& words) {
    Options options = options_of(words);
    options.synthetic = 0;  // but --data
    return train_loader_options(options, {}, *faces, *alone()).decode;
  };
  EXPECT_EQ(decoder({}), DecodeOn::kCpu) << "faces are small";
  EXPECT_EQ(decoder({"--decode", "auto"}), DecodeOn::kAuto);
  EXPECT_EQ(decoder({"--decode", "gpu"}), DecodeOn::kGpu);
  EXPECT_EQ(loader_options(options_of({"--decode", "gpu"}), {}, *faces).decode, DecodeOn::kCpu) << "of tests";
  EXPECT_THROW(decoder({"--decode", "gpu", "--augment", "adaface"}), sinter::InvalidArgument);
  EXPECT_THROW(train_loader_options(options_of({"--decode", "gpu"}), {}, *faces, *alone()),
               sinter::InvalidArgument)
      << "made-up faces are decoded by nobody";
}

TEST(TrainInsightfaceModel, GroupsSetApartWhatIsClippedAndDecayed) {
  const auto groups = [](const Words& words) {
    Words all = {"--backbone", "iresnet18", "--width", "8", "--image-size", "16", "--dims", "4"};
    all.insert(all.end(), words.begin(), words.end());
    const Options options = options_of(all);
    const sinter::nn::PartialFC centres = make_centres(options, 6, *alone());
    return parameter_groups(options, FaceModel(make_backbone(options), centres.head()));
  };
  const auto usual = groups({});
  ASSERT_EQ(usual.size(), 2u);
  EXPECT_TRUE(usual[0].clip);
  EXPECT_FALSE(usual[1].clip);
  EXPECT_EQ(usual[1].parameters.front().name(), "head.weight");
  EXPECT_FALSE(usual[0].weight_decay.has_value());
  EXPECT_TRUE(groups({"--clip-of", "all"})[1].clip);
  const auto split = groups({"--no-decay-norms"});
  ASSERT_EQ(split.size(), 3u);
  EXPECT_EQ(split[1].weight_decay, 0.0);
}

TEST(TrainInsightfaceModel, PartialFcTakesAtLeastABatch) {
  EXPECT_EQ(make_centres(options_of({"--dims", "4", "--sample-rate", "0.1", "--batch", "30"}), 1000, *alone())
                .sampled_classes(),
            100);
  EXPECT_EQ(
      make_centres(options_of({"--dims", "4", "--sample-rate", "0.1", "--batch", "300"}), 1000, *alone())
          .sampled_classes(),
      300);
}

TEST(TrainInsightfaceModel, TheInitIsInsightFacesOrPyTorchs) {
  const auto deviation = [](const char* init) {
    sinter::manual_seed(1);
    const auto backbone = make_backbone(
        options_of({"--backbone", "iresnet18", "--image-size", "16", "--dims", "4", "--init", init}));
    double squares = 0.0;
    const auto values = backbone.state().at("conv1.weight").to_vector<float>();
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(deviation("insightface"), 0.1, 0.01);
  EXPECT_NEAR(deviation("pytorch"), 1.0 / std::sqrt(3.0 * 27.0), 0.01);  // uniform within 1 / sqrt(fan in)
  const auto weight = [](const Words& words) {
    Words all = {"--backbone", "iresnet18", "--width", "8", "--image-size", "16", "--dims", "4"};
    all.insert(all.end(), words.begin(), words.end());
    for (const sinter::nn::Parameter& parameter : make_backbone(options_of(all)).parameters()) {
      if (parameter.name() == "features.weight") return parameter.tensor().requires_grad();
    }
    throw sinter::Error("there is no features.weight");
  };
  EXPECT_FALSE(weight({}));
  EXPECT_TRUE(weight({"--train-features-weight"}));
}

TEST(TrainInsightfaceData, MadeUpFacesAreAlwaysTheSame) {
  const auto faces = synthetic_faces(3, 20), again = synthetic_faces(3, 20);
  EXPECT_EQ(faces->size(), 30);
  EXPECT_EQ(faces->num_classes(), 3);
  EXPECT_EQ(faces->get(14).image.pixels, again->get(14).image.pixels);
  EXPECT_EQ(faces->get(14).label, 1);
  EXPECT_NE(faces->get(14).image.pixels, faces->get(15).image.pixels);
  // Images of one identity are nearer to each other than to those of another.
  const auto distance = [&](int64_t a, int64_t b) {
    const auto x = faces->get(a).image.pixels, y = faces->get(b).image.pixels;
    int64_t sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += std::abs(int{x[i]} - int{y[i]});
    return sum;
  };
  EXPECT_LT(distance(0, 1), distance(0, 11));
}

TEST(TrainInsightfaceData, ImagesOfOtherSizesAreResized) {
  const auto faces = synthetic_faces(2, 48);
  for (const char* size : {"20", "48"}) {
    const Options options = options_of({"--image-size", size, "--batch", "20", "--workers", "0"});
    sinter::nn::data::DataLoader loader(faces, loader_options(options, {}, *faces));
    const auto batch = loader.next();
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->images.shape(), (sinter::Shape{20, 3, options.image_size, options.image_size}));
    // The pictures are the same: the mean colour stays, in [-1, 1].
    const auto values = batch->images.to_vector<float>();
    double expected = 0.0;
    for (int64_t i = 0; i < 20; ++i) {
      const auto pixels = faces->get(i).image.pixels;
      expected +=
          std::accumulate(pixels.begin(), pixels.end(), 0.0) / static_cast<double>(pixels.size()) / 20.0;
    }
    const double mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    EXPECT_NEAR(mean, expected / 127.5 - 1.0, 0.01);
  }
}

TEST(TrainInsightfaceData, OnlyTrainingMirrorsAndShuffles) {
  const auto faces = synthetic_faces(2, 20);
  const Options options = options_of({"--image-size", "20", "--seed", "3"});
  const auto train = train_loader_options(options, {}, *faces, *alone()),
             test = loader_options(options, {}, *faces);
  EXPECT_EQ(train.transforms.size(), 1u);
  EXPECT_TRUE(train.shuffle && train.drop_last && train.seed == 3);
  EXPECT_TRUE(test.transforms.size() == 1 && !test.shuffle && !test.drop_last);
  EXPECT_TRUE(train_loader_options(options_of({"--no-flip"}), {}, *faces, *alone()).transforms.empty());
  EXPECT_EQ(test.normalization.mean, (std::vector<float>{0.5f}));
  EXPECT_EQ(test.normalization.std, (std::vector<float>{0.5f}));
}

TEST(TrainInsightfaceData, AugmentationsChangeImagesToTrainOnAlone) {
  const auto faces = synthetic_faces(4, 32);
  const auto pixels = [&](const Words& words, bool trains) {
    Words all = {"--image-size", "32", "--no-flip", "--batch", "40", "--workers", "0"};
    all.insert(all.end(), words.begin(), words.end());
    const Options options = options_of(all);
    sinter::nn::data::DataLoader loader(faces, trains ? train_loader_options(options, {}, *faces, *alone())
                                                      : loader_options(options, {}, *faces));
    return loader.next()->images.to_vector<float>();
  };
  const auto plain = pixels({}, true), tested = pixels({}, false);
  for (const Words& words : std::vector<Words>{{"--augment", "insightface"},
                                               {"--augment", "adaface"},
                                               {"--random-erasing", "0.5"},
                                               {"--color-jitter", "0.4,0.4,0.4,0.1"},
                                               {"--randaugment", "2,9"}}) {
    const auto changed = pixels(words, true);
    EXPECT_NE(changed, plain) << words.back();
    EXPECT_EQ(changed, pixels(words, true)) << words.back() << ": the seed alone draws";
    EXPECT_EQ(pixels(words, false), tested) << words.back();
    for (const float value : changed) {
      ASSERT_GE(value, -1.001F) << words.back();
      ASSERT_LE(value, 1.001F) << words.back();
    }
  }
  EXPECT_EQ(pixels({"--color-jitter", "0,0,0,0", "--randaugment", "0,0", "--augment", "none"}, true), plain);
}

TEST(TrainInsightfaceModel,
     ACopyOfTheBackboneStandsAlone) {  // which a GPU's first look at convolutions needs
  const Options options = options_of({"--backbone", "iresnet18", "--image-size", "16", "--dims", "4"});
  const auto backbone = make_backbone(options);
  const auto before = backbone.state();
  const auto copy = sinter::nn::clone(backbone);
  const sinter::Tensor embeddings = copy(sinter::Tensor::zeros({2, 3, 16, 16}));
  backward(embeddings, {.gradient = sinter::Tensor::zeros({2, 4})});
  for (const auto& [name, value] : backbone.state()) {
    if (value.dtype() == sinter::DType::kFloat32) {
      EXPECT_EQ(value.to_vector<float>(), before.at(name).to_vector<float>()) << name;
    }
  }
  EXPECT_FALSE(backbone.parameters().front().grad().defined());
}

}  // namespace
