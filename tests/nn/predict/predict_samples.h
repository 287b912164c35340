// Weights and pictures for the tests of predictions.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/nn/nn.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::testing {

/// What a network for pictures of four classes is of, cut out of the middle if there is a `resize_size`.
inline ModelMetadata small_metadata(const std::string& model, int64_t size, int64_t resize_size,
                                    int64_t channels = 3) {
  ModelMetadata metadata;
  metadata.task = "image-classification";
  metadata.model = model;
  metadata.classes = {"ant", "bee", "cat", "dog"};
  metadata.options = {{"classes", "4"}, {"in_channels", fmt::format("{}", channels)}};
  metadata.height = metadata.width = size;
  metadata.channels = channels;
  if (resize_size > 0) {
    metadata.resize = "shorter_side";
    metadata.resize_size = resize_size;
  }
  metadata.mean.assign(static_cast<size_t>(channels), 0.45f);
  metadata.std.assign(static_cast<size_t>(channels), 0.2f);
  return metadata;
}

/// A network with weights and statistics that are all different, so that outputs are.
inline AnyModule lively_model(const ModelMetadata& metadata, Layout layout = Layout::kNCHW) {
  manual_seed(5);
  AnyModule model = make_model(metadata, layout);
  State state = model.state();
  for (auto& [name, tensor] : state) {
    if (name.ends_with("running_mean")) tensor = Tensor::randn(tensor.shape()) * 0.1;
    if (name.ends_with("running_var")) tensor = Tensor::rand(tensor.shape()) + 0.5;
    if (name == "fc.weight") tensor = Tensor::randn(tensor.shape());
  }
  model.load_state(state);
  model.eval();
  return model;
}

/// Writes such weights, with or without what they are of.
inline std::filesystem::path write_weights(const data::testing::TemporaryFolder& folder,
                                           const ModelMetadata& metadata, bool named = true) {
  const auto path = folder.path() / (named ? "w.safetensors" : "bare.safetensors");
  write_safetensors(path, lively_model(metadata).state(),
                    named ? to_safetensors_metadata(metadata) : std::map<std::string, std::string>());
  return path;
}

/// The test pictures of several kinds and colours: grey, RGB, CMYK, turned, JPEG and PNM.
inline std::vector<Picture> sound_pictures() {
  std::vector<Picture> pictures;
  for (const char* const name : {"rgb.jpg", "gray.jpg", "cmyk.jpg", "orientation_6.jpg", "progressive.jpg",
                                 "rgb.ppm", "gray.pgm", "box_9x7.ppm", "ycck.jpg"})
    pictures.emplace_back(test::test_data() / "images" / name);
  return pictures;
}

/// Class by class, as nearly equal ones may stand in another order.
inline void expect_near(const Prediction& got, const Prediction& expected, Device device) {
  ASSERT_EQ(got.top.size(), expected.top.size());
  // Batches of other sizes take other kernels; products on a GPU may be in TF32.
  const double tolerance = device.is_cuda() ? 1e-2 : 1e-5;
  for (const ClassScore& score : got.top) {
    for (const ClassScore& other : expected.top) {
      if (score.index == other.index) {
        EXPECT_NEAR(score.probability, other.probability, tolerance);
      }
    }
  }
}

/// Indices and probabilities as text, so that equal texts are equal bits.
inline std::string text_of(const Prediction& prediction) {
  std::string text = prediction.error;
  for (const ClassScore& score : prediction.top)
    text += fmt::format("{} {} {:a}; ", score.index, score.name, score.probability);
  return text;
}

}  // namespace sinter::nn::testing
