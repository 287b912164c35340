// Classifier: the same inputs and classes as the trainers' tests, from files, bytes and tensors, on any
// number of threads; damaged pictures; weights that say too little.
#include <algorithm>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/nn/data/formats/load_image.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/softmax/softmax.h>

#include "nn/device_test_support.h"
#include "nn/predict/predict_samples.h"

namespace sinter::nn {
namespace {

using namespace testing;
using data::testing::message_of;
using data::testing::TemporaryFolder;

class ClassifierTest : public OnEachDevice {
 protected:
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(, ClassifierTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         device_name);

/// The probabilities of a picture, by the loader's own path and the model's code.
std::vector<float> by_hand(const AnyModule& model, const Picture& picture, const ModelMetadata& metadata,
                           const data::Transforms& transforms) {
  const Tensor x =
      data::load_image(picture.name(), {.decode = {.channels = static_cast<int>(metadata.channels)},
                                        .transforms = transforms,
                                        .normalization = {metadata.mean, metadata.std},
                                        .layout = Layout::kNCHW});
  const NoGrad no_grad;
  return ops::softmax(model(x), 1).to_vector<float>();
}

TEST_P(ClassifierTest, GivesWhatTheModelGivesForTheLoadersImages) {
  const ModelMetadata metadata = small_metadata("resnet20", 24, 28);
  const AnyModule model = lively_model(metadata);
  const Classifier classifier(write_weights(folder_, metadata),
                              {{.device = device(), .batch_size = 4, .decode = data::DecodeOn::kCpu}});
  EXPECT_EQ(classifier.classes(), metadata.classes);
  const std::vector<Picture> pictures = sound_pictures();
  const std::vector<Prediction> predictions = classifier(pictures);
  ASSERT_EQ(predictions.size(), pictures.size());
  std::vector<float> of_one_class;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::vector<float> expected =
        by_hand(model, pictures[i], metadata, {data::resize_center_crop(28, 24)});
    const auto& top = predictions[i].top;
    ASSERT_EQ(top.size(), 4u) << pictures[i].name();
    EXPECT_EQ(predictions[i].error, "");
    float before = 1, sum = 0;
    for (const ClassScore& score : top) {
      EXPECT_NEAR(score.probability, expected[static_cast<size_t>(score.index)],
                  2e-3 * (device().is_cuda() ? 5 : 0.01));
      EXPECT_EQ(score.name, metadata.classes[static_cast<size_t>(score.index)]);
      EXPECT_LE(score.probability, before);
      before = score.probability;
      sum += score.probability;
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    of_one_class.push_back(expected[0]);
  }
  const auto [least, most] = std::ranges::minmax(of_one_class);
  EXPECT_GT(most - least, 0.01f) << "equal results for all pictures would hide a lot";
}

TEST_P(ClassifierTest, FilesBytesAndPixelsGiveTheSame) {
  const ModelMetadata metadata = small_metadata("resnet20", 24, 28);
  const Classifier classifier(write_weights(folder_, metadata), {{.device = device()}});
  const data::testing::Bytes bytes = data::testing::load_picture("rgb.ppm");
  data::Image image;
  data::decode_image(bytes, "rgb.ppm", {}, {}, image);
  const Tensor pixels =
      Tensor::from_values<uint8_t>(image.pixels, {image.height, image.width, image.channels});
  const std::string expected = text_of(classifier((test::test_data() / "images/rgb.ppm").string()));
  EXPECT_EQ(text_of(classifier(Picture(bytes))), expected);
  EXPECT_EQ(text_of(classifier(Picture(pixels))), expected);
  EXPECT_EQ(text_of(classifier(Picture(pixels.to(device())))), expected);
  EXPECT_EQ(text_of(classifier(pixels.unsqueeze(0)).at(0)), expected);
  // An opaque alpha changes nothing; a transparent picture is white.
  std::vector<uint8_t> opaque;
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    opaque.push_back(image.pixels[i]);
    if (i % 3 == 2) opaque.push_back(255);
  }
  const Shape with_alpha{image.height, image.width, 4};
  EXPECT_EQ(text_of(classifier(Picture(Tensor::from_values<uint8_t>(opaque, with_alpha)))), expected);
  const std::vector<uint8_t> white(image.pixels.size(), 255), nothing(opaque.size(), 0);
  EXPECT_EQ(text_of(classifier(Picture(Tensor::from_values<uint8_t>(nothing, with_alpha)))),
            text_of(classifier(Picture(Tensor::from_values<uint8_t>(white, pixels.shape())))));
  // Grey alone is RGB of three equal values.
  const Tensor grey = Tensor::full({30, 26, 1}, 77, {.dtype = DType::kUInt8});
  EXPECT_EQ(text_of(classifier(Picture(grey))),
            text_of(classifier(Picture(Tensor::full({30, 26, 3}, 77, {.dtype = DType::kUInt8})))));
}

TEST_P(ClassifierTest, InputsOfTheNetworkGoInAsTheyAre) {
  const ModelMetadata metadata = small_metadata("resnet20", 24, 28);
  const Classifier classifier(write_weights(folder_, metadata),
                              {{.device = device(), .batch_size = 2, .decode = data::DecodeOn::kCpu}});
  std::vector<Tensor> inputs;
  const std::vector<Picture> pictures = sound_pictures();
  for (const Picture& picture : pictures) {
    inputs.push_back(data::load_image(picture.name(), {.transforms = {data::resize_center_crop(28, 24)},
                                                       .normalization = {metadata.mean, metadata.std},
                                                       .layout = Layout::kNCHW}));
  }
  const std::vector<Prediction> from_inputs = classifier(ops::concat(inputs, 0));
  const std::vector<Prediction> from_files = classifier(pictures);
  ASSERT_EQ(from_inputs.size(), from_files.size());
  for (size_t i = 0; i < from_files.size(); ++i) {
    expect_near(from_inputs[i], from_files[i], device());
  }
  for (const Tensor& wrong :
       {Tensor::zeros({1, 3, 24, 25}), Tensor::zeros({1, 1, 24, 24}), Tensor::zeros({3, 24, 24}),
        Tensor::zeros({1, 3, 24, 24}, {.dtype = DType::kInt64}), Tensor()}) {
    EXPECT_NE(message_of<InvalidArgument>([&] { classifier(wrong); }).find("(N, 3, 24, 24)"),
              std::string::npos);
  }
}

TEST_P(ClassifierTest, EightThreadsGetEqualBits) {
  const ModelMetadata metadata = small_metadata("resnet20", 16, 20);
  const Classifier classifier(write_weights(folder_, metadata),
                              {{.device = device(), .batch_size = 4, .concurrency = 3}});
  const std::vector<Picture> pictures = sound_pictures();
  std::vector<std::string> expected;
  for (const Picture& picture : pictures) expected.push_back(text_of(classifier(picture)));
  std::string together;
  for (const Prediction& prediction : classifier(pictures)) together += text_of(prediction);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = 0; i < pictures.size(); ++i) {
          const size_t at = (i + thread) % pictures.size();
          right += text_of(classifier(pictures[at])) == expected[at] ? 1 : 0;
        }
        std::string all;
        for (const Prediction& prediction : classifier(pictures)) all += text_of(prediction);
        right += all == together ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(right, 8 * (static_cast<int>(pictures.size()) + 1));
}

TEST_P(ClassifierTest, BatchesAndWorkersChangeNothingButTheLastBits) {
  const ModelMetadata metadata = small_metadata("resnet20", 16, 20);
  const auto weights = write_weights(folder_, metadata);
  const std::vector<Picture> pictures = sound_pictures();
  const std::vector<Prediction> one = Classifier(weights, {{.device = device(), .batch_size = 1}})(pictures);
  for (const int64_t batch : {2, 3, 7, 64}) {
    for (const int workers : {0, 2}) {
      const Classifier classifier(weights, {{.device = device(), .batch_size = batch, .workers = workers}});
      const std::vector<Prediction> many = classifier(pictures);
      ASSERT_EQ(many.size(), one.size());
      for (size_t i = 0; i < one.size(); ++i) {
        expect_near(many[i], one[i], device());
      }
    }
  }
}

TEST_P(ClassifierTest, DamagedPicturesKeepTheirPlaces) {
  const ModelMetadata metadata = small_metadata("resnet20", 16, 20);
  const auto weights = write_weights(folder_, metadata);
  data::testing::Bytes cut = data::testing::load_picture("rgb.jpg");
  cut.resize(cut.size() / 2);
  const auto half = folder_.write("half.jpg", cut);
  std::vector<Picture> pictures = sound_pictures();
  pictures.insert(pictures.begin(), half);
  pictures.insert(pictures.begin() + 4, folder_.path() / "missing.png");
  pictures.insert(pictures.end(), Picture(std::span<const uint8_t>(), "an empty upload"));
  for (const int workers : {0, 3}) {
    const Classifier classifier(weights, {{.device = device(), .batch_size = 4, .workers = workers}});
    const std::vector<Prediction> all = classifier(pictures);
    const std::vector<Prediction> sound = classifier(sound_pictures());
    ASSERT_EQ(all.size(), pictures.size());
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_wrong = i == 0 || i == 4 || i + 1 == all.size();
      EXPECT_EQ(all[i].error.empty(), !is_wrong) << i;
      EXPECT_EQ(all[i].top.empty(), is_wrong);
      if (is_wrong) {
        EXPECT_NE(all[i].error.find(pictures[i].name()), std::string::npos) << all[i].error;
      } else {
        expect_near(all[i], sound[next++], device());
      }
    }
    EXPECT_NE(message_of<IoError>([&] { classifier(half); }).find("half.jpg"), std::string::npos);
  }
}

TEST_P(ClassifierTest, ViewsAreAveraged) {
  const ModelMetadata metadata = small_metadata("resnet20", 16, 24);
  const auto weights = write_weights(folder_, metadata);
  const AnyModule model = lively_model(metadata);
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const int crops : {1, 5}) {
      for (const bool flip : {false, true}) {
        PredictOptions options{.device = device(), .layout = layout, .flip = flip, .crops = crops};
        const Classifier classifier(weights, {options});
        for (const Picture& picture : sound_pictures()) {
          const Tensor square = data::load_image(
              picture.name(), {.transforms = {data::resize_center_crop(24, crops == 1 ? 16 : 24)},
                               .normalization = {metadata.mean, metadata.std},
                               .layout = Layout::kNCHW});
          // The mean over views that are cut out and mirrored by hand.
          const std::vector<float> values = square.to_vector<float>();
          const int64_t side = square.size(3), margin = side - 16;
          std::vector<double> mean(4);
          int count = 0;
          std::vector<std::pair<int64_t, int64_t>> corners = {{margin / 2, margin / 2}};
          if (crops == 5) corners.insert(corners.end(), {{0, 0}, {0, margin}, {margin, 0}, {margin, margin}});
          for (const auto& [top, left] : corners) {
            for (int mirror = 0; mirror <= (flip ? 1 : 0); ++mirror, ++count) {
              std::vector<float> view;
              for (int64_t c = 0; c < 3; ++c)
                for (int64_t y = 0; y < 16; ++y)
                  for (int64_t x = 0; x < 16; ++x) {
                    const int64_t column = left + (mirror == 1 ? 15 - x : x);
                    view.push_back(values[static_cast<size_t>((c * side + top + y) * side + column)]);
                  }
              const NoGrad no_grad;
              const auto shares =
                  ops::softmax(model(Tensor::from_values<float>(view, {1, 3, 16, 16})), 1).to_vector<float>();
              for (size_t i = 0; i < 4; ++i) mean[i] += shares[i];
            }
          }
          for (const ClassScore& score : classifier(picture).top)
            EXPECT_NEAR(score.probability, mean[static_cast<size_t>(score.index)] / count,
                        device().is_cuda() ? 1e-2 : 1e-5);
        }
      }
    }
  }
}

TEST_P(ClassifierTest, HalfPrecisionIsNear) {
  const ModelMetadata metadata = small_metadata("resnet20", 16, 20);
  const auto weights = write_weights(folder_, metadata);
  const Classifier exact(weights, {{.device = device()}});
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Classifier half(weights, {{.device = device(), .precision = dtype}});
    for (const Picture& picture : sound_pictures()) {
      const Prediction expected = exact(picture), got = half(picture);
      for (const ClassScore& score : got.top) {
        for (const ClassScore& other : expected.top) {
          if (other.index == score.index) {
            EXPECT_NEAR(score.probability, other.probability, 0.06);
          }
        }
      }
    }
  }
}

// The trainer decodes pictures of one size once, and this reads them one by one.
TEST_P(ClassifierTest, PicturesOfTheRightSizeAreNotTouched) {
  const ModelMetadata metadata = small_metadata("resnet20", 8, 0, 1);
  const AnyModule model = lively_model(metadata);
  const Classifier classifier(write_weights(folder_, metadata), {{.device = device()}});
  data::Image image;
  image.reshape(8, 8, 1);
  for (size_t i = 0; i < 64; ++i) image.pixels[i] = static_cast<uint8_t>(37 * i);
  const auto file = folder_.write("p.pgm", [&] {
    data::testing::Bytes bytes;
    for (const char c : std::string("P5 8 8 255\n")) bytes.push_back(static_cast<uint8_t>(c));
    bytes.insert(bytes.end(), image.pixels.begin(), image.pixels.end());
    return bytes;
  }());
  std::vector<float> values;
  for (const uint8_t pixel : image.pixels) values.push_back((static_cast<float>(pixel) / 255 - 0.45f) / 0.2f);
  const NoGrad no_grad;
  const auto expected =
      ops::softmax(model(Tensor::from_values<float>(values, {1, 1, 8, 8})), 1).to_vector<float>();
  for (const ClassScore& score : classifier(file).top)
    EXPECT_NEAR(score.probability, expected[static_cast<size_t>(score.index)],
                device().is_cuda() ? 1e-2 : 1e-5);
  EXPECT_EQ(classifier(test::test_data() / "images/rgb.jpg").top.size(), 4u);  // resized to 8 x 8, and grey
}

TEST(Classifier, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const ModelMetadata metadata = small_metadata("resnet20", 24, 28);
  const auto bare = write_weights(folder, metadata, false);
  EXPECT_NE(
      message_of<InvalidArgument>([&] { Classifier c(bare); }).find("does not say what its weights are of"),
      std::string::npos);
  const auto with = [&](UnnamedWeights unnamed) {
    ClassifierOptions options;
    options.unnamed = std::move(unnamed);
    return Classifier(bare, options)(test::test_data() / "images/rgb.jpg");
  };
  EXPECT_NE(message_of<InvalidArgument>([&] { with({.model = "resnet19"}); }).find("resnet101"),
            std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              with({.model = "resnet20", .class_names = {"a"}});
            }).find("4 classes but got 1 names"),
            std::string::npos);
  EXPECT_THROW(with({.model = "resnet20", .image_size = 0}), InvalidArgument);
  EXPECT_THROW(with({.model = "resnet32"}), InvalidArgument);
  EXPECT_EQ(with({.model = "resnet20", .image_size = 24}).top.size(), 4u);
  const Prediction named = with({.model = "resnet20", .class_names = {"w", "x", "y", "z"}, .image_size = 24});
  EXPECT_EQ(named.top[0].name, std::string(1, static_cast<char>('w' + named.top[0].index)));
  // PyTorch's files too.
  write_pytorch(folder.path() / "w.pth", lively_model(metadata).state());
  ClassifierOptions options;
  options.unnamed = {.model = "resnet20", .image_size = 24};
  EXPECT_EQ(text_of(Classifier(folder.path() / "w.pth", options)(test::test_data() / "images/rgb.jpg")),
            text_of(with({.model = "resnet20", .image_size = 24})));
}

TEST(Classifier, NormalisesImagesOfUnnamedWeightsAsItIsTold) {
  const TemporaryFolder folder;
  const auto of = [&](int64_t channels, std::optional<data::Normalization> normalization) {
    ModelMetadata metadata = small_metadata("resnet20", 16, 20, channels);
    ClassifierOptions options;
    options.unnamed = {.model = "resnet20", .image_size = 16, .normalization = std::move(normalization)};
    return Classifier(write_weights(folder, metadata, false), options).metadata();
  };
  EXPECT_EQ(of(3, {}).mean, data::imagenet_normalization().mean);
  EXPECT_EQ(of(3, {}).std, data::imagenet_normalization().std);
  EXPECT_EQ(of(1, data::Normalization{{0.5f}, {0.25f}}).mean, std::vector<float>{0.5f});
  EXPECT_EQ(of(1, data::Normalization{{0.5f}, {0.25f}}).std, std::vector<float>{0.25f});
  // Of grey images there is none that is usual.
  EXPECT_NE(
      message_of<InvalidArgument>([&] { of(1, {}); }).find("expected mean and deviation of grey images"),
      std::string::npos);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              of(3, data::Normalization{{0.5f}, {0.25f}});
            }).find("expected 3 means and deviations of the images' channels but got 1 and 1"),
            std::string::npos);
}

TEST(Classifier, ResizesPicturesOfUnnamedWeightsAsItIsTold) {
  const TemporaryFolder folder;
  const auto weights = write_weights(folder, small_metadata("resnet20", 16, 20), false);
  const auto of = [&](int64_t size, const char* interpolation) {
    ClassifierOptions options;
    options.unnamed = {
        .model = "resnet20", .image_size = 16, .resize_size = size, .interpolation = interpolation};
    return Classifier(weights, options).metadata();
  };
  EXPECT_EQ(of(0, "bilinear").resize_size, 18);  // 256/224 of it
  EXPECT_EQ(of(16, "bicubic").resize_size, 16);
  EXPECT_EQ(of(16, "bicubic").interpolation, "bicubic");
  EXPECT_NE(
      message_of<InvalidArgument>([&] { of(15, "bilinear"); }).find("at least the 16 pixels of an input"),
      std::string::npos);
  EXPECT_THROW(of(20, "lanczos"), InvalidArgument);
}

// As torchvision's names say nothing of it.
TEST(Classifier, KnowsStemsForSmallPicturesByTheirShape) {
  const TemporaryFolder folder;
  ModelMetadata metadata = small_metadata("resnet18", 16, 20);
  metadata.options["small_stem"] = "true";
  ClassifierOptions options;
  options.unnamed = {.model = "resnet18", .image_size = 16};
  EXPECT_EQ(Classifier(write_weights(folder, metadata, false), options).metadata().options, metadata.options);
}

TEST(Classifier, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  const ModelMetadata metadata = small_metadata("resnet20", 16, 20);
  const auto weights = write_weights(folder, metadata);
  EXPECT_THROW(Classifier(weights, {{.batch_size = 0}}), InvalidArgument);
  EXPECT_THROW(Classifier(weights, {{.crops = 3}}), InvalidArgument);
  EXPECT_THROW(Classifier(weights, {{.concurrency = 0}}), InvalidArgument);
  EXPECT_THROW(Classifier(weights, {{.precision = DType::kFloat64}}), InvalidArgument);
  EXPECT_THROW(Classifier(weights, {{}, 0}), InvalidArgument);
  EXPECT_THROW(Classifier(folder.path() / "none.safetensors"), IoError);
  EXPECT_THROW(Picture(Tensor::zeros({4, 4, 3})), InvalidArgument);
  EXPECT_THROW(Picture(Tensor::zeros({4, 4, 5}, {.dtype = DType::kUInt8})), InvalidArgument);
  EXPECT_TRUE(Classifier(weights)(std::vector<Picture>()).empty());
  const auto refused = [&](auto change) {
    ModelMetadata other = metadata;
    change(other);
    write_safetensors(weights, lively_model(metadata).state(), to_safetensors_metadata(other));
    return message_of<InvalidArgument>([&] { Classifier c(weights); });
  };
  EXPECT_NE(refused([](auto& m) { m.options["stem"] = "deep"; }).find("stem"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.options["classes"] = "4x"; }).find("4x"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.options.erase("classes"); }).find("classes"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.classes.pop_back(); }).find("classes but got"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.classes.push_back("one more"); }).find("classes but got"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.task = "image-feature-extraction"; }).find("feature"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.resize = "longest"; }).find("longest"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.mean.pop_back(); }).find("3 channels but got 2"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.height = 0; }).find("0 x 16"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.channels = 2; }).find("got 2"), std::string::npos);
}

}  // namespace
}  // namespace sinter::nn
