// The options of train_insightface: what a command line means, what it refuses, and what a checkpoint keeps.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "examples/train_insightface_support.h"
#include "train_insightface/model.h"

namespace {

using namespace train_insightface;
using sinter::examples::changes;
using sinter::nn::CombinedMargin;

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
  EXPECT_EQ(parse({"--synthetic", "5", "--backbone", "mbf", "--width", "8"}, options), 2);
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
                                    {"--width", "8"},
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
                                    {"--color-jitter", "0.4,0.3,0.2,0.1"},
                                    {"--randaugment", "2,9"},
                                    {"--schedule", "multi-step", "--milestones", "3,5"},
                                    {"--schedule", "plateau", "--gamma", "0.5"},
                                    {"--schedule", "plateau", "--plateau-patience", "3"},
                                    {"--optimizer", "lars", "--trust-coefficient", "0.02"},
                                    {"--optimizer", "lamb", "--beta2", "0.99"},
                                    {"--warmup-epochs", "2"},
                                    {"--patience", "3", "--verify", "x"},
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

TEST(TrainInsightfaceOptions, WhatIsNotTrainingHasNoUseForIsTold) {
  const auto passed_over = [](const Words& words) {
    Options options;
    EXPECT_EQ(parse(words, options), std::nullopt);
    return options.passed_over;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(passed_over({"--embed", "a", "--output", "b.csv", "--load-weights", "w", "--verify", "v", "--lr",
                         "0.1", "--epochs", "2", "--margin", "cosface", "--augment", "adaface"}),
            (Names{"--augment", "--epochs", "--lr", "--margin", "--verify"}));
  EXPECT_EQ(passed_over({"--evaluate", "--verify", "v", "--load-weights", "w", "--lr", "0.1", "--batch", "5",
                         "--report", "r", "--roc", "c"}),
            (Names{"--lr"}));
  EXPECT_EQ(passed_over({"--checkpoints", "c", "--resume", "--clean", "k", "--data", "d"}), Names());
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
           {{"--network", "r50"}, "did you mean --backbone?"},
           {{"--backbone", "r50"}, "but got 'r50'; did you mean 'iresnet50'?"},
           {{"--embedding-size", "512"}, "did you mean --dims?"},
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
           {{"--embed", "a", "--output", "b.csv", "--load-weights", "w", "--roc", "r"},
            "--embed and --roc cannot go together: --embed does not write it"},
           {{"--embed", "a", "--output", "b.csv", "--load-weights", "w", "--report", "r"},
            "--embed and --report cannot go together"},
           {{"--embed", "a", "--output", "b.csv", "--load-weights", "w", "--checkpoints", "c"},
            "--embed and --checkpoints cannot go together"},
           {{"--embed", "a", "--output", "b.csv", "--load-weights", "w", "--max-damaged", "3"},
            "--max-damaged is of training"},
           {{"--embed", "a", "--output", "b.txt", "--load-weights", "w"},
            "--output b.txt: expected a name that ends in .csv or .safetensors"},
           {{"--evaluate", "--verify", "v", "--load-weights", "w", "--max-damaged", "3"},
            "--max-damaged is of training"},
           {{"--evaluate", "--verify", "v", "--load-weights", "w", "--log", "l"},
            "--evaluate and --log cannot go together"},
           {{"--evaluate", "--verify", "v", "--load-weights", "w", "--save-weights", "s"},
            "--evaluate and --save-weights cannot go together"},
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
           {{"--synthetic", "5", "--save-weights", "x.pth.tar"},
            "--save-weights: expected a name that ends in .safetensors, .pth or .pt but got 'x.pth.tar'"},
           {{"--synthetic", "5", "--save-weights", "x.bin"}, "but got 'x.bin'"},
           {{"--synthetic", "5", "--save-weights", "x.PTH"}, "but got 'x.PTH'"},
           {{"--synthetic", "5", "--save-weights", "x.onnx"}, "but got 'x.onnx'"},
           {{"--synthetic", "5", "--export", "x.pth"},
            "--export: expected a name that ends in .onnx but got 'x.pth'"},
           {{"--synthetic", "5", "--export-preprocessing", "rgb"}, "requires --export"},
           {{"--synthetic", "5", "--export", "x", "--export-preprocessing", "bgr"}, "bgr"},
           {{"--ijb", "a", "--ijb-embeddings", "b", "--export", "x"}, "--export needs a backbone"},
           {{"--synthetic", "5", "--schedule", "multi-step"}, "multi-step needs --milestones"},
           {{"--synthetic", "5", "--schedule", "multi-step", "--milestones", "5,3"}, "in ascending order"},
           {{"--synthetic", "5", "--milestones", "3"}, "--milestones is of --schedule multi-step"},
           {{"--synthetic", "5", "--schedule", "cosine", "--gamma", "0.5"},
            "--gamma is of --schedule multi-step and plateau, not cosine"},
           {{"--synthetic", "5", "--plateau-patience", "3"}, "--plateau-patience is of --schedule plateau"},
           {{"--synthetic", "5", "--schedule", "plateau", "--gamma", "1"}, "--gamma: expected a number"},
           {{"--synthetic", "5", "--trust-coefficient", "0.1"}, "--trust-coefficient is of --optimizer lars"},
           {{"--synthetic", "5", "--beta1", "0.8"}, "--beta1 is of --optimizer"},
           {{"--synthetic", "5", "--optimizer", "adamw", "--momentum", "0.8"},
            "--momentum is of --optimizer"},
           {{"--synthetic", "5", "--optimizer", "lamb", "--sample-rate", "0.1"},
            "--sample-rate 1 alone fits"},
           {{"--synthetic", "5", "--optimizer", "adagrad"}, "--optimizer"},
           {{"--synthetic", "5", "--color-jitter", "0.4,0.4"}, "B,C,S,H"},
           {{"--synthetic", "5", "--randaugment", "17,9"}, "up to 16 steps"},
           {{"--synthetic", "5", "--augment", "dali"}, "--augment"},
           {{"--synthetic", "5", "--memory-limit", "1", "--eager"}, "--memory-limit is of jobs"},
           {{"--synthetic", "5", "--memory-limit", "nan"}, "--memory-limit: expected a number"},
           {{"--synthetic", "5", "--trace", "x"}, "--trace needs --profile <steps>"},
           {{"--synthetic", "5", "--trace", "x", "--profile", "2", "--log", "x"}, "cannot both be x"},
           {{"--synthetic", "5", "--decode", "fpga"}, "--decode"},
           {{"--synthetic", "5", "--accumulate", "0"}, "--accumulate: expected a whole number"},
           {{"--synthetic", "5", "--ema", "1"}, "--ema: expected a number"},
           {{"--data", ""}, "--data: expected a name but got nothing"}}) {
    Options options;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(parse(test.words, options), 2) << test.told;
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(test.told), std::string::npos) << said << "lacks: " << test.told;
  }
}

}  // namespace
