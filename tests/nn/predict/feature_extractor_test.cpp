// FeatureExtractor: rows of layers against the model's own members, and names that are none.
#include <gtest/gtest.h>

#include <sinter/nn/data/formats/load_image.h>

#include "nn/device_test_support.h"
#include "nn/predict/predict_samples.h"

namespace sinter::nn {
namespace {

using namespace testing;
using data::testing::message_of;
using data::testing::TemporaryFolder;

class FeatureExtractorTest : public OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(, FeatureExtractorTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         device_name);

TEST_P(FeatureExtractorTest, GivesWhatTheLayersGive) {
  const TemporaryFolder folder;
  const ModelMetadata metadata = small_metadata("resnet20", 24, 28);
  const auto weights = write_weights(folder, metadata);
  const State state = lively_model(metadata).state();
  const ResNet model = resnet20({.classes = 4});
  model.load_state(state);
  model.eval();
  const std::vector<Picture> pictures = sound_pictures();
  const NoGrad no_grad;
  for (const std::string layer : {"layer3", "avgpool", "flatten", "fc", "layer2.0.conv1"}) {
    const FeatureExtractor extractor(weights, layer,
                                     {.device = device(), .batch_size = 4, .decode = data::DecodeOn::kCpu});
    EXPECT_EQ(extractor.layer(), layer);
    const Tensor rows = extractor(pictures);
    ASSERT_EQ(rows.shape(), (Shape{static_cast<int64_t>(pictures.size()), extractor.dimensions()}));
    EXPECT_EQ(extractor.dimensions(), layer == "fc" ? 4 : layer == "layer2.0.conv1" ? 32 : 64);
    if (layer == "layer2.0.conv1") continue;
    for (size_t i = 0; i < pictures.size(); ++i) {
      const Tensor x = data::load_image(pictures[i].name(), {.transforms = {data::resize_center_crop(28, 24)},
                                                             .normalization = {metadata.mean, metadata.std},
                                                             .layout = Layout::kNCHW});
      const auto expected = (layer == "fc" ? model(x) : model.features(x)).to_vector<float>();
      const auto got = rows[static_cast<int64_t>(i)].to_vector<float>();
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::abs(value));
      for (size_t d = 0; d < got.size(); ++d)
        EXPECT_NEAR(got[d], expected[d], (device().is_cuda() ? 2e-2f : 1e-5f) * largest) << layer << " " << i;
    }
  }
}

TEST_P(FeatureExtractorTest, DamagedPicturesAreNamed) {
  const TemporaryFolder folder;
  const FeatureExtractor extractor(write_weights(folder, small_metadata("resnet20", 16, 20)), "layer1.0.bn2",
                                   {.device = device(), .batch_size = 2});
  EXPECT_EQ(extractor.dimensions(), 16);
  std::vector<Picture> pictures = sound_pictures();
  pictures.insert(pictures.begin() + 3, folder.path() / "missing.png");
  std::vector<int64_t> wrong;
  int64_t next = 0;
  extractor.for_each(pictures, [&](int64_t index, std::span<const float> row, const std::string& error) {
    EXPECT_EQ(index, next++);
    EXPECT_EQ(row.size(), 16u);
    if (!error.empty()) wrong.push_back(index);
    return true;
  });
  EXPECT_EQ(next, static_cast<int64_t>(pictures.size()));
  EXPECT_EQ(wrong, std::vector<int64_t>{3});
  EXPECT_NE(message_of<IoError>([&] { extractor(pictures); }).find("missing.png"), std::string::npos);
}

TEST(FeatureExtractor, ListsTheLayers) {
  const TemporaryFolder folder;
  const auto weights = write_weights(folder, small_metadata("resnet20", 16, 20));
  const std::string message = message_of<InvalidArgument>([&] { FeatureExtractor e(weights, "layer9"); });
  for (const char* const part : {"conv1, bn1", "layer3.2.conv2", "layer3, fc", "'layer9'"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_THROW(FeatureExtractor(weights, ""), InvalidArgument);
}

}  // namespace
}  // namespace sinter::nn
