// The options of train_insightface: what a command line means, what it refuses, and what a checkpoint keeps.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/base/error.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/random.h>

#include "train_insightface/data.h"
#include "train_insightface/model.h"
#include "train_insightface/options.h"

namespace {

using namespace train_insightface;
using sinter::examples::changes;
using sinter::nn::CombinedMargin;

using Words = std::vector<const char*>;

std::optional<int> parse(const Words& words, Options& options) {
  std::vector<char*> argv = {const_cast<char*>("train_insightface")};
  for (const char* word : words) argv.push_back(const_cast<char*>(word));
  return parse_options(static_cast<int>(argv.size()), argv.data(), options);
}

/// The complete options of a command line that trains on made-up faces.
Options options_of(Words words, sinter::Device device = {}) {
  words.insert(words.begin(), {"--synthetic", "20"});
  Options options;
  EXPECT_EQ(parse(words, options), std::nullopt);
  complete(options, device);
  return options;
}

std::shared_ptr<sinter::Communicator> alone() {
  return sinter::Communicator::join(sinter::ProcessEnvironment{});
}

TEST(TrainInsightfaceOptions, DefaultsAreInsightFaces) {
  const Options options = options_of({});
  EXPECT_EQ(options.backbone, "iresnet50");
  EXPECT_EQ(options.dims, 512);
  EXPECT_EQ(options.lr, 0.1);
  EXPECT_EQ(options.momentum, 0.9);
  EXPECT_EQ(options.weight_decay, 5e-4);
  EXPECT_EQ(options.clip, 5.0);
  EXPECT_EQ(options.clip_of, "backbone");
  EXPECT_EQ(options.sample_rate, 1.0);
  const CombinedMargin margin = std::get<CombinedMargin>(*margin_of(options));
  EXPECT_EQ(margin.scale, 64.0);
  EXPECT_EQ(margin.m2, 0.5);
  EXPECT_EQ(margin.gradient, sinter::nn::MarginGradient::kStraightThrough);
  EXPECT_EQ(options.precision, "f32");
  EXPECT_EQ(options.job, true);
  const Options gpu = options_of({}, sinter::Device::cuda());
  EXPECT_EQ(gpu.precision, "mixed-f16");
  EXPECT_EQ(gpu.layout, sinter::Layout::kNHWC);
  EXPECT_EQ(gpu.job, true);
}

TEST(TrainInsightfaceOptions, MarginsHaveNamesOrNumbers) {
  const auto margin = [](const char* text) {
    return std::get<CombinedMargin>(*margin_of(options_of({"--margin", text})));
  };
  EXPECT_EQ(margin("cosface").m2, 0.0);
  EXPECT_EQ(margin("cosface").m3, 0.4);
  EXPECT_EQ(margin("cosface,0.35").m3, 0.35);
  EXPECT_EQ(margin("arcface,0.3").m2, 0.3);
  const CombinedMargin numbers = margin("0.9,0.4,0.15");
  EXPECT_EQ(numbers.m1, 0.9);
  EXPECT_EQ(numbers.m2, 0.4);
  EXPECT_EQ(numbers.m3, 0.15);
  for (const char* text :
       {"archface", "1,2", "1,2,3,4", "1,,3", "0,0.5,0", "1,4,0", "1,-0.1,0", "1,0.5,-1", "nan,0,0",
        "1,0.5,0x", "", "arcface,0.3,0.2", "adaface,", "adaface,1", "elasticface", "elasticface-arc++",
        "magface,10", "curricularface,2", "cosface,-1"}) {
    Options options;
    EXPECT_EQ(parse({"--synthetic", "5", "--margin", text}, options), 2) << text;
  }
}

TEST(TrainInsightfaceOptions, MarginsThatDifferFromRowToRowHaveNamesAndNumbers) {
  namespace nn = sinter::nn;
  const auto margin = [](const char* text) {
    return *margin_of(options_of({"--margin", text, "--scale", "30"}));
  };
  EXPECT_EQ(std::get<nn::AdaFace>(margin("adaface")).margin, 0.4);
  EXPECT_EQ(std::get<nn::AdaFace>(margin("adaface,0.3,0.5")).h, 0.5);
  EXPECT_EQ(std::get<nn::AdaFace>(margin("adaface")).scale, 30.0);
  const auto arc = std::get<nn::ElasticFace>(margin("elasticface-arc")),
             cos = std::get<nn::ElasticFace>(margin("elasticface-cos+,0.3"));
  EXPECT_FALSE(arc.of_cosine || arc.sorted);
  EXPECT_EQ(arc.deviation, 0.05);
  EXPECT_TRUE(cos.of_cosine && cos.sorted);
  EXPECT_EQ(cos.mean, 0.3);
  EXPECT_EQ(cos.deviation, 0.02);
  EXPECT_EQ(std::get<nn::ElasticFace>(margin("elasticface-arc+")).deviation, 0.0175);
  EXPECT_EQ(std::get<nn::MagFace>(margin("magface,20")).weight, 20.0);
  EXPECT_EQ(std::get<nn::CurricularFace>(margin("curricularface,0.4")).margin, 0.4);
  Options options;
  EXPECT_EQ(parse({"--synthetic", "5", "--margin", "magface", "--scale", "128"}, options), 2)
      << "a weight of 35 is too small there";
  EXPECT_EQ(parse({"--synthetic", "5", "--margin", "adaface", "--interclass-filter", "0.3"}, options), 2);
  EXPECT_EQ(parse({"--synthetic", "5", "--backbone", "mbf", "--dropout", "0.3"}, options), 2);
  EXPECT_EQ(parse({"--synthetic", "5", "--schedule", "constant", "--power", "1"}, options), 2);
}

TEST(TrainInsightfaceOptions, CentresAndBackboneAreWhatTheOptionsSay) {
  const auto ranks = alone();
  const sinter::nn::PartialFC centres =
      make_centres(options_of({"--margin", "adaface", "--sub-centres", "3", "--dims", "8"}), 20, *ranks);
  EXPECT_EQ(centres.head().weight.shape(), (sinter::Shape{20, 24}));
  EXPECT_EQ(centres.head().buffers().size(), 2u);
  for (const char* precision : {"model", "f32"}) {
    const sinter::nn::PartialFC mixed = make_centres(options_of({"--head-precision", precision}), 20, *ranks);
    mixed.head().to_mixed(sinter::DType::kBFloat16);
    EXPECT_EQ(mixed.head().weight.is_mixed(), precision == std::string("model"));
  }
  EXPECT_EQ(make_backbone(options_of({"--backbone", "mbf"})).parameter_count(), 2'059'520);
  EXPECT_NEAR(sinter::examples::make_schedule(options_of({"--power", "1", "--epochs", "1"}), 100)(50), 0.05,
              1e-12);
  EXPECT_NEAR(sinter::examples::make_schedule(options_of({"--epochs", "1"}), 100)(50), 0.025, 1e-12);
}

TEST(TrainInsightfaceOptions, EachDoesWhatItSays) {
  EXPECT_EQ(options_of({"--scale", "30"}).scale, 30.0);
  EXPECT_EQ(std::get<CombinedMargin>(*margin_of(options_of({"--scale", "30"}))).scale, 30.0);
  EXPECT_EQ(std::get<CombinedMargin>(*margin_of(options_of({"--margin-gradient", "exact"}))).gradient,
            sinter::nn::MarginGradient::kExact);
  EXPECT_EQ(
      std::get<CombinedMargin>(*margin_of(options_of({"--interclass-filter", "0.3"}))).interclass_filter,
      0.3);
  EXPECT_EQ(options_of({"--verify", "a", "--verify", "b"}).verify, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(options_of({"--no-flip", "--flip"}).flip);
  EXPECT_TRUE(options_of({"--no-decay-norms", "--decay-norms"}).decay_norms);
  EXPECT_EQ(options_of({"--eager"}).job, false);
  EXPECT_EQ(options_of({"--job"}, sinter::Device::cuda()).job, true);
  EXPECT_EQ(options_of({"--layout", "nhwc"}).layout, sinter::Layout::kNHWC);
  EXPECT_EQ(compute_dtype(options_of({"--precision", "mixed-bf16"})), sinter::DType::kBFloat16);
  EXPECT_EQ(compute_dtype(options_of({"--precision", "tf32"})), sinter::DType::kFloat32);
  EXPECT_EQ(options_of({"--checkpoints", "a"}).log_folder(), "a");
  EXPECT_EQ(options_of({"--checkpoints", "a", "--log-dir", "b"}).log_folder(), "b");
  EXPECT_EQ(options_of({"--lr", "1", "--lr", "2"}).lr, 2.0) << "the last of several counts";
  EXPECT_TRUE(options_of({"--report", "x"}).leaves_files());
  EXPECT_FALSE(options_of({}).leaves_files());
  EXPECT_EQ(options_of({"--read-timeout", "7"}).read_timeout, 7.0);
  EXPECT_EQ(options_of({"--max-steps", "7", "--log-every", "2", "--log-dir", "x"}).log_every, 2);
  EXPECT_EQ(options_of({"--threads", "3"}).workers, 1);
  EXPECT_GE(options_of({}, sinter::Device::cuda()).workers, 1);
  EXPECT_EQ(options_of({"--workers", "7"}, sinter::Device::cuda()).workers, 7);
  EXPECT_EQ(options_of({"--threads", "3", "--workers", "0", "--device", "cpu"}).threads, 3);
}

TEST(TrainInsightfaceOptions, EverythingThatTheResultDependsOnIsKeptAndComesBack) {
  // Every option of the recipe in turn, away from its default.
  const std::vector<Words> lines = {{"--image-size", "96"},
                                    {"--no-flip"},
                                    {"--backbone", "iresnet200"},
                                    {"--dims", "128"},
                                    {"--dropout", "0.4"},
                                    {"--sub-centres", "3"},
                                    {"--head-precision", "f32"},
                                    {"--power", "1"},
                                    {"--init", "pytorch"},
                                    {"--train-features-weight"},
                                    {"--precision", "mixed-bf16"},
                                    {"--margin", "1,0.3,0.2"},
                                    {"--scale", "32"},
                                    {"--margin-gradient", "exact"},
                                    {"--interclass-filter", "0.4"},
                                    {"--sample-rate", "0.1"},
                                    {"--epochs", "7"},
                                    {"--batch", "13"},
                                    {"--lr", "0.0123"},
                                    {"--schedule", "one-cycle"},
                                    {"--warmup", "0.03"},
                                    {"--schedule", "one-cycle", "--warmup", "0"},
                                    {"--momentum", "0.8"},
                                    {"--schedule", "one-cycle", "--cycle-momentum"},
                                    {"--weight-decay", "1e-5"},
                                    {"--no-decay-norms"},
                                    {"--clip", "2.5"},
                                    {"--clip-of", "all"},
                                    {"--verify-every", "0"},
                                    {"--accumulate", "2"},
                                    {"--ema", "0.9"},
                                    {"--nesterov"},
                                    {"--optimizer", "adamw", "--beta1", "0.8"},
                                    {"--augment", "adaface"},
                                    {"--random-erasing", "0.2"},
                                    {"--warmup-epochs", "2"},
                                    {"--patience", "3"},
                                    {"--seed", "18446744073709551615"}};
  const Recipe defaults = recipe_of(options_of({}));
  for (const auto& [option, value] : defaults) {
    const auto names = [&flag = option](const Words& words) {
      return std::ranges::any_of(
          words, [&](const char* word) { return word == flag || word == "--no-" + flag.substr(2); });
    };
    EXPECT_TRUE(std::ranges::any_of(lines, names)) << option << " has no line";
  }
  for (const Words& line : lines) {
    const Recipe stored = recipe_of(options_of(line));
    EXPECT_NE(stored, defaults) << line.front();
    Options resumed;
    EXPECT_EQ(parse({"--checkpoints", "x", "--resume"}, resumed), std::nullopt);
    adopt(stored, resumed);
    complete(resumed, {});
    EXPECT_EQ(recipe_of(resumed), stored) << line.front();
    // The command line goes before the checkpoint.
    Options given;
    EXPECT_EQ(parse({"--checkpoints", "x", "--resume", "--lr", "0.7"}, given), std::nullopt);
    adopt(stored, given);
    EXPECT_EQ(given.lr, 0.7);
  }
  Options options;
  EXPECT_THROW(adopt(Recipe{{"--xyzzy", "1"}}, options), sinter::InvalidArgument);
}

TEST(TrainInsightfaceOptions, MistakesAreTold) {
  struct Case {
    Words words;
    const char* told;
  };
  for (const Case& test : std::vector<Case>{
           {{}, "there is nothing to train on: --data <path>, or --synthetic <identities>"},
           {{"--data", "a", "--synthetic", "5"}, "--data and --synthetic cannot go together"},
           {{"--backbon", "iresnet18"}, "there is no option --backbon; did you mean --backbone?"},
           {{"--marign", "arcface"}, "did you mean --margin?"},
           {{"--synthetic", "5", "--lr", "nan"}, "--lr: expected a number from 1e-09 to 1000 but got 'nan'"},
           {{"--synthetic", "5", "--sample-rate", "0"}, "--sample-rate: expected a number"},
           {{"--synthetic", "1"}, "--synthetic: expected a whole number from 2"},
           {{"--synthetic", "5", "--backbone", "iresnet99"}, "--backbone"},
           {{"--evaluate"},
            "--evaluate needs weights: --load-weights <file>, or --checkpoints <folder> --resume"},
           {{"--evaluate", "--load-weights", "w"}, "--evaluate needs pairs: --verify <path>"},
           {{"--embed", "a", "--load-weights", "w"}, "--embed needs --output <file>"},
           {{"--embed", "a", "--output", "b"}, "--embed needs weights"},
           {{"--embed", "a", "--output", "b", "--load-weights", "w", "--evaluate"}, "cannot go together"},
           {{"--output", "b", "--synthetic", "5"}, "--output requires --embed"},
           {{"--clean", "a"}, "--clean needs a run's centres: --checkpoints and --resume"},
           {{"--clean", "a", "--evaluate"}, "--clean and --evaluate cannot go together"},
           {{"--resume"}, "--resume requires --checkpoints"},
           {{"--synthetic", "5", "--checkpoint-every", "5"}, "--checkpoint-every requires --checkpoints"},
           {{"--synthetic", "5", "--cycle-momentum", "--schedule", "constant"}, "is of --schedule one-cycle"},
           {{"--synthetic", "5", "--cycle-momentum", "--momentum", "0.5"}, "leave --momentum out"},
           {{"--synthetic", "5", "--read-timeout", "5", "--workers", "0"}, "--read-timeout needs --workers"},
           {{"--synthetic", "5", "--log-every", "5"}, "--log-every needs --log-dir"},
           {{"--synthetic", "5", "--save-weights", "x", "--report", "x"}, "cannot both be x"},
           {{"--synthetic", "5", "--export", "x", "--report", "x"}, "cannot both be x"},
           {{"--synthetic", "5", "--export-preprocessing", "rgb"}, "requires --export"},
           {{"--synthetic", "5", "--export", "x", "--export-preprocessing", "bgr"}, "bgr"},
           {{"--ijb", "a", "--ijb-embeddings", "b", "--export", "x"}, "--export needs a backbone"},
           {{"--data", ""}, "--data: expected a name but got nothing"}}) {
    Options options;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(parse(test.words, options), 2) << test.told;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(test.told), std::string::npos) << said << "lacks: " << test.told;
  }
}

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

TEST(TrainInsightfaceModel, GroupsSetApartWhatIsClippedAndDecayed) {
  const auto groups = [](const Words& words) {
    Words all = {"--backbone", "iresnet18", "--image-size", "16", "--dims", "4"};
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
    Words all = {"--backbone", "iresnet18", "--image-size", "16", "--dims", "4"};
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
