// The options of train_resnet: what a command line means, and what the data fills in.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <typeinfo>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/optim/adam.h>
#include <sinter/nn/optim/lars_lamb.h>
#include <sinter/nn/optim/sgd.h>
#include <sinter/nn/predict/named_model.h>

#include "train_resnet/model.h"
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

TEST(TrainResnetOptions, AGpuLeavesTheProcessorsToTheLoader) {
  const int before = sinter::num_threads();
  for (const auto& [threads, on_gpu] : {std::pair{1, 1}, {2, 1}, {6, 5}, {16, 8}}) {
    sinter::set_num_threads(threads);
    EXPECT_EQ(completed(parse({}), 3).workers, 1);
    EXPECT_EQ(completed(parse({}), 3, sinter::Device::cuda()).workers, on_gpu) << threads;
    EXPECT_EQ(completed(parse({"--workers", "3"}), 3, sinter::Device::cuda()).workers, 3);
  }
  sinter::set_num_threads(before);
}

TEST(TrainResnetOptions, AugmentationIsOffUnlessAskedFor) {
  const auto none = parse({}).augmentation;
  EXPECT_FALSE(none.mixes());
  EXPECT_TRUE(sinter::examples::augmentations(none).empty());
  EXPECT_EQ(sinter::examples::describe(none), "none");
  const auto all = parse({"--randaugment", "3,5", "--color-jitter", "0.1,0.2,0.3,0.4", "--random-erasing",
                          "0.5", "--mixup", "0.2", "--cutmix", "1"})
                       .augmentation;
  EXPECT_TRUE(all.mixes());
  EXPECT_EQ(sinter::examples::augmentations(all).size(), 3u);
  EXPECT_EQ(all.rand_augment, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(all.color_jitter, (std::vector<double>{0.1, 0.2, 0.3, 0.4}));
  EXPECT_EQ(sinter::examples::describe(all),
            "color-jitter 0.1,0.2,0.3,0.4, cutmix 1, mixup 0.2, randaugment 3,5, random-erasing 0.5");
}

TEST(TrainResnetOptions, EachMixingOptionMixesInItsOwnWay) {
  using sinter::Tensor;
  const Tensor images = Tensor::from_values<float>({0, 0, 0, 0, 1, 1, 1, 1}, {2, 1, 2, 2});
  const Tensor labels = Tensor::from_values<int64_t>({0, 1}, {2});
  const auto mixed = [&](sinter::examples::AugmentationOptions options) {
    return sinter::examples::mix(options, images, labels, 2, sinter::Layout::kNCHW);
  };
  EXPECT_EQ(mixed({}).images.to_vector<float>(), images.to_vector<float>());
  EXPECT_EQ(mixed({}).targets.dtype(), sinter::DType::kInt64);
  const auto whole_pixels = [&](const sinter::nn::MixedBatch& batch) {
    for (const float value : batch.images.to_vector<float>()) {
      if (value != 0 && value != 1) return false;
    }
    return true;
  };
  sinter::manual_seed(1);
  int cut = 0;
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE(whole_pixels(mixed({.cutmix = 1})));
    EXPECT_FALSE(whole_pixels(mixed({.mixup = 1})));
    cut += whole_pixels(mixed({.mixup = 1, .cutmix = 1})) ? 1 : 0;
  }
  EXPECT_GE(cut, 10);
  EXPECT_LE(cut, 30);
}

TEST(TrainResnetOptions, AugmentationThatCannotBeIsRefused) {
  const auto code = [](std::initializer_list<const char*> arguments) {
    std::vector<char*> argv = {const_cast<char*>("train_resnet")};
    for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
    Options options;
    return parse_options(static_cast<int>(argv.size()), argv.data(), options).value_or(0);
  };
  for (const char* word :
       {"--mixup=-1", "--mixup=nan", "--cutmix=x", "--random-erasing=1.5", "--color-jitter=0.4",
        "--color-jitter=", "--color-jitter=0.4,0.4,0.4,0.6", "--color-jitter=0.4,0.4,0.4,0.1,",
        "--color-jitter=0.4,-1,0.4,0.1", "--randaugment=2", "--randaugment=2,31", "--randaugment=17,9",
        "--randaugment=2,9.5"}) {
    EXPECT_EQ(code({word}), 2) << word;
  }
  EXPECT_THROW(completed(parse({"--mixup=0.2", "--batch=1"}), 3), sinter::InvalidArgument);
  EXPECT_THROW(completed(parse({"--color-jitter=0,0,0.4,0.1"}), 1), sinter::InvalidArgument);
  EXPECT_NO_THROW(completed(parse({"--color-jitter=0.1,0,0.4,0.1"}), 1));
}

TEST(TrainResnetOptions, AReportIsWrittenWhereAsked) {
  EXPECT_EQ(parse({"--report", "run.json"}).report, "run.json");
  EXPECT_EQ(parse({"--report-html", "run.html"}).report_html, "run.html");
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

TEST(TrainResnetOptions, EnginesDecodeWhereImagesAreResized) {
  using sinter::nn::data::DecodeOn;
  const auto alone = sinter::Communicator::join(sinter::ProcessEnvironment{});
  const auto decode_of = [&](std::initializer_list<const char*> arguments) {
    const Options options = completed(parse(arguments), 3);
    const DecodeOn decode = train_loader_options(options, {}, one_image(3), {}, *alone).decode;
    EXPECT_EQ(test_loader_options(options, {}, {}).decode, decode);
    return decode;
  };
  EXPECT_EQ(decode_of({}), DecodeOn::kCpu);
  EXPECT_EQ(decode_of({"--image-size", "64"}), DecodeOn::kAuto);
  EXPECT_EQ(decode_of({"--image-size", "64", "--decode", "cpu"}), DecodeOn::kCpu);
  EXPECT_EQ(decode_of({"--image-size", "64", "--decode", "gpu"}), DecodeOn::kGpu);
}

TEST(TrainResnetOptions, MistakesGiveAnExitCode) {
  using Words = std::initializer_list<const char*>;
  for (const Words& words : {Words{"--lr", "nan"},
                             Words{"--momentum", "2"},
                             Words{"--seed", "-1"},
                             Words{"--chekpoints", "x"},
                             Words{"--evaluate"},
                             Words{"--report", ""},
                             Words{"--resume"},
                             Words{"--read-timeout", "5", "--workers", "0"},
                             Words{"--decode", "gpu"},
                             Words{"--decode", "fpga", "--image-size", "64"},
                             Words{"--trace", "x"},
                             Words{"--report-html", "x", "--eager"},
                             Words{"--report-html", "x", "--report", "x"},
                             Words{"--trace", "x", "--profile", "0"},
                             Words{"--write-recipe", "x", "--report", "x"},
                             Words{"--trace", "", "--profile", "2"},
                             Words{"--optimizer", "adagrad"},
                             Words{"--optimizer", "lamb", "--momentum", "0.9"},
                             Words{"--optimizer", "lars", "--beta1", "0.9"},
                             Words{"--trust-coefficient", "0.01"},
                             Words{"--accumulate", "0"},
                             Words{"--recipe", ""},
                             Words{"--recipe", "/nowhere.json"},
                             Words{"--write-recipe", ""}}) {
    std::vector<char*> argv = {const_cast<char*>("train_resnet")};
    for (const char* word : words) argv.push_back(const_cast<char*>(word));
    Options options;
    EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), 2) << *words.begin();
  }
}

TEST(TrainResnetOptions, ABatchOfMoreThanThereIsTakesAll) {
  const Options options = completed(parse({"--batch", "64", "--epochs", "1"}), 3);
  EXPECT_EQ(describe_length(options, 64, 0), "1 epoch, batch 64, seed 0");
  EXPECT_EQ(describe_length(options, 20, 0), "1 epoch, batch 20 (all images, fewer than --batch 64), seed 0");
  EXPECT_EQ(recipe_of(options).at("--batch"), "64") << "a run goes on with what it was given";
  EXPECT_EQ(options.shared_batch(100, 4), 64);
  EXPECT_EQ(options.shared_batch(20, 4), 20);
  const auto refusal = [&](int64_t images, int64_t processes) -> std::string {
    try {
      options.shared_batch(images, processes);
    } catch (const sinter::InvalidArgument& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal(100, 3), "--batch 64: 3 processes cannot share it equally");
  EXPECT_EQ(refusal(20, 3), "--batch 64: 3 processes cannot share all 20 images equally");
}

TEST(TrainResnetOptions, EachOptimiserHasItsDefaults) {
  EXPECT_EQ(completed(parse({}), 3).lr, 0.1);
  EXPECT_EQ(completed(parse({"--model", "resnet110"}), 3).lr, 0.1);
  EXPECT_EQ(completed(parse({"--model", "resnet18"}), 3).lr, 0.01);
  EXPECT_EQ(completed(parse({"--model", "resnet18", "--lr", "0.1"}), 3).lr, 0.1);
  EXPECT_EQ(completed(parse({}), 3).weight_decay, 5e-4);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw"}), 3).lr, 0.003);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw"}), 3).weight_decay, 0.05);
  EXPECT_EQ(completed(parse({"--optimizer", "adamw", "--lr", "0.01"}), 3).lr, 0.01);
  EXPECT_EQ(completed(parse({"--optimizer", "lars"}), 3).lr, 8.0);
  EXPECT_EQ(completed(parse({"--optimizer", "lars"}), 3).weight_decay, 1e-4);
  EXPECT_EQ(completed(parse({"--optimizer", "lamb"}), 3).lr, 0.01);
  EXPECT_EQ(completed(parse({"--optimizer", "lamb"}), 3).weight_decay, 0.02);
  EXPECT_EQ(completed(parse({}), 3).nesterov, true);
  EXPECT_EQ(completed(parse({"--optimizer", "lars"}), 3).nesterov, false);
  EXPECT_EQ(completed(parse({"--optimizer", "lars", "--nesterov"}), 3).nesterov, true);
}

template <class Optimizer>
bool makes(std::initializer_list<const char*> arguments) {
  const Options options = completed(parse(arguments), 1);
  const auto optimizer = make_optimizer(options, make_model(options, one_image(1)));
  const auto& made = *optimizer;
  return typeid(made) == typeid(Optimizer);
}

TEST(TrainResnetOptions, NameTheOptimiser) {
  EXPECT_TRUE(makes<sinter::nn::SGD>({}));
  EXPECT_TRUE(makes<sinter::nn::AdamW>({"--optimizer", "adamw"}));
  EXPECT_TRUE(makes<sinter::nn::LARS>({"--optimizer", "lars"}));
  EXPECT_TRUE(makes<sinter::nn::LAMB>({"--optimizer", "lamb"}));
}

TEST(TrainResnetOptions, NormsAndBiasesDecayOnRequestOnly) {
  const auto groups = [](std::initializer_list<const char*> arguments) {
    const Options options = completed(parse(arguments), 1);
    return make_optimizer(options, make_model(options, one_image(1)))->groups();
  };
  ASSERT_EQ(groups({}).size(), 2u);
  EXPECT_EQ(groups({}).back().weight_decay, 0.0);
  EXPECT_EQ(groups({"--decay-norms"}).size(), 1u);
}

TEST(TrainResnetOptions, NameTheModel) {
  const auto parameters = [](const char* name) {
    const Options options = completed(parse({"--model", name}), 3);
    return make_model(options, one_image(3)).parameter_count();
  };
  EXPECT_LT(parameters("resnet20"), parameters("resnet56"));
  EXPECT_LT(parameters("resnet56"), parameters("resnet18"));
  EXPECT_LT(parameters("resnet18"), parameters("resnet152"));
}

TEST(TrainResnetOptions, NameTheSchedule) {
  const auto rates = [](const char* name, const char* warmup) {
    const Options options =
        completed(parse({"--schedule", name, "--warmup", warmup, "--lr", "0.5", "--epochs", "10"}), 3);
    const sinter::nn::Schedule schedule = sinter::examples::make_schedule(options, 100 / *options.epochs);
    return std::vector<double>{schedule(0), schedule(20), schedule(50), schedule(99)};
  };
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
  };
  expect(rates("constant", "0"), {0.5, 0.5, 0.5, 0.5});
  expect(rates("step", "0"), {0.5, 0.5, 0.05, 0.0005});
  expect(rates("polynomial", "0"), {0.5, 0.5 * 0.64, 0.5 * 0.25, 0.5 * 1e-4});
  expect(rates("cosine", "0"),
         {0.5, 0.25 + 0.25 * std::cos(M_PI * 0.2), 0.25, 0.25 + 0.25 * std::cos(M_PI * 0.99)});
  const std::vector<double> cycle = rates("one-cycle", "0.2");
  EXPECT_LT(cycle[0], 0.05);
  EXPECT_GT(cycle[1], 0.45);
  EXPECT_LT(cycle[3], 0.01);
  // A warm-up takes its share of the run from the beginning.
  EXPECT_LT(rates("cosine", "0.2")[0], 0.06);
  EXPECT_NEAR(rates("cosine", "0.2")[1], 0.5, 1e-12);
}

TEST(TrainResnetOptions, SchedulesCountEpochs) {
  const auto schedule = [](std::initializer_list<const char*> words) {
    return sinter::examples::make_schedule(completed(parse(words), 3), 10);
  };
  const auto steps = schedule({"--schedule", "multi-step", "--milestones", "3,5", "--gamma", "0.2",
                               "--warmup-epochs", "2", "--lr", "0.5", "--epochs", "8"});
  EXPECT_NEAR(steps(10), 0.25, 1e-12);
  for (const auto& [step, rate] :
       {std::pair{20, 0.5}, {29, 0.5}, {30, 0.1}, {49, 0.1}, {50, 0.02}, {79, 0.02}})
    EXPECT_NEAR(steps(step), rate, 1e-12) << step;
  const auto cosine =
      schedule({"--schedule", "cosine", "--warmup-epochs", "1", "--lr", "0.5", "--epochs", "5"});
  EXPECT_NEAR(cosine(5), 0.25, 1e-12);
  EXPECT_NEAR(cosine(10), 0.5, 1e-12);
  EXPECT_NEAR(cosine(30), 0.25, 1e-12);
  // More epochs of warm-up than the run has: it never ends.
  EXPECT_LT(schedule({"--schedule", "cosine", "--warmup-epochs", "9", "--lr", "0.5", "--epochs", "2"})(19),
            0.5);
}

TEST(TrainResnetOptions, TheLastOfSeveralCounts) {
  EXPECT_EQ(parse({"--lr", "0.1", "--lr", "0.2"}).lr, 0.2);
  EXPECT_EQ(parse({"--flip", "--no-flip"}).flip, false);
  EXPECT_EQ(parse({"--no-flip", "--flip"}).flip, true);
  EXPECT_EQ(parse({"--no-nesterov", "--nesterov"}).nesterov, true);
}

TEST(TrainResnetOptions, WhatATestHasNoUseForIsTold) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse({"--evaluate", "--load-weights", "w", "--lr", "0.1", "--max-steps", "2", "--mixup", "0.2",
                   "--patience", "3", "--profile", "2", "--data", "d", "--report", "r"})
                .passed_over,
            (Names{"--lr", "--max-steps", "--mixup", "--patience", "--profile"}));
  EXPECT_EQ(parse({"--evaluate", "--checkpoints", "c", "--resume", "--threads", "2"}).passed_over, Names());
  EXPECT_EQ(parse({"--load-weights", "w", "--export", "e", "--epochs", "2"}).passed_over,
            (Names{"--epochs"}));
  EXPECT_EQ(parse({"--lr", "0.1", "--mixup", "0.2"}).passed_over, Names()) << "a run uses all";
}

TEST(TrainResnetOptions, WhatATestWouldNotWriteIsRefused) {
  for (const char* const option : {"--log", "--log-dir", "--checkpoints", "--report-html"}) {
    std::vector<char*> argv;
    for (const char* word : {"train_resnet", "--evaluate", "--load-weights", "w", option, "x"})
      argv.push_back(const_cast<char*>(word));
    Options options;
    testing::internal::CaptureStderr();
    EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), 2) << option;
    EXPECT_NE(testing::internal::GetCapturedStderr().find(std::string("--evaluate and ") + option +
                                                          " cannot go together"),
              std::string::npos)
        << option;
  }
}

TEST(TrainResnetOptions, RememberWhatWasGiven) {
  const Options options = parse({"--lr", "0.1", "--no-flip"});
  EXPECT_EQ(options.given, (std::set<std::string>{"--lr", "--flip"}));
}

// Weights that are trained can be predicted with: their model is made anew by its name.
TEST(TrainResnetModel, EveryModelIsKnownByItsName) {
  std::vector<char*> argv = {const_cast<char*>("train_resnet"), const_cast<char*>("--model=none")};
  Options options;
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse_options(2, argv.data(), options), 2);
  const std::string message = testing::internal::GetCapturedStderr();
  const std::vector<std::string> known = sinter::nn::model_names();
  size_t found = 0;
  for (size_t at = message.find("resnet"); at != std::string::npos; at = message.find("resnet", at + 1)) {
    const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789", at);
    const std::string name = message.substr(at, end - at);
    if (name == "resnet" || (at > 0 && message[at - 1] == '_')) continue;  // the program's own name
    EXPECT_EQ(std::count(known.begin(), known.end(), name), 1) << name;
    ++found;
  }
  EXPECT_GE(found, 10u) << message;
}

TEST(TrainResnetModel, WhatTheFileSaysMakesTheSameModel) {
  for (const char* const name : {"resnet20", "resnet18"}) {
    for (const int64_t channels : {1, 3}) {
      Options options = parse({"--model", name});
      const MemoryDataset data = one_image(channels);
      complete(options, data, sinter::Device::cpu());
      const auto metadata = describe_model(options, data, {.mean = {0.5f}, .std = {0.5f}});
      const auto own = make_model(options, data).state(), made = sinter::nn::make_model(metadata).state();
      ASSERT_EQ(own.size(), made.size());
      for (const auto& [key, tensor] : own) EXPECT_EQ(made.at(key).shape(), tensor.shape()) << key;
    }
  }
}

}  // namespace
