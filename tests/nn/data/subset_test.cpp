// Parts of data sets, and single pictures.
#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/load_image.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::message_of;

/// Images of one pixel whose value and label are their index.
std::shared_ptr<const Dataset> pixels(int64_t count) {
  MemoryDataset::Content content{
      .height = 1, .width = 1, .channels = 1, .pixels = {}, .labels = {}, .class_names = {}};
  for (int64_t i = 0; i < count; ++i) {
    content.pixels.push_back(static_cast<uint8_t>(i));
    content.labels.push_back(i);
    content.class_names.push_back(std::to_string(i));
  }
  return std::make_shared<MemoryDataset>(content);
}

TEST(Subset, ReadsWhatItsIndicesName) {
  const Subset subset(pixels(10), {7, 2, 7});
  EXPECT_EQ(subset.size(), 3);
  EXPECT_EQ(subset.num_classes(), 10);
  EXPECT_EQ(subset.get(0).label, 7);
  EXPECT_EQ(subset.get(1).image.pixels[0], 2);
  ASSERT_TRUE(subset.view(2));
  EXPECT_EQ(subset.view(2)->label, 7);
  EXPECT_EQ(message_of<InvalidArgument>([&] { (void)subset.get(3); }),
            "[dataset] expected an index from 0 to 2 but got 3");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              Subset(pixels(10), {1, 10});
            }),
            "[subset] expected indices from 0 to 9 but index 1 is 10");
}

TEST(RandomSplit, DealsEverySampleOutOnce) {
  const auto all = pixels(103);
  const auto parts = random_split(all, {0.5, 0.3, 0.2}, 5);
  ASSERT_EQ(parts.size(), 3u);
  // 51.5, 30.9 and 20.6 rounded down leave two, for the first two parts.
  EXPECT_EQ(parts[0]->size(), 52);
  EXPECT_EQ(parts[1]->size(), 31);
  EXPECT_EQ(parts[2]->size(), 20);
  std::set<int64_t> seen;
  std::vector<int64_t> first;
  for (const auto& part : parts) {
    for (int64_t i = 0; i < part->size(); ++i) seen.insert(part->get(i).label);
  }
  EXPECT_EQ(seen.size(), 103u);
  for (int64_t i = 0; i < parts[0]->size(); ++i) first.push_back(parts[0]->get(i).label);
  EXPECT_FALSE(std::ranges::is_sorted(first));
  const auto indices = [](const auto& split) { return static_cast<const Subset&>(*split[0]).indices(); };
  EXPECT_EQ(indices(random_split(all, {0.5, 0.5}, 5)), indices(random_split(all, {0.5, 0.5}, 5)));
  EXPECT_NE(indices(random_split(all, {0.5, 0.5}, 5)), indices(random_split(all, {0.5, 0.5}, 6)));
  EXPECT_EQ(random_split(all, {1.0})[0]->size(), 103);
}

TEST(RandomSplit, RefusesOtherFractions) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              random_split(pixels(3), {0.5, 0.4});
            }),
            "[random_split] expected fractions that add up to 1 but got 0.9");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              random_split(pixels(3), {1.5, -0.5});
            }),
            "[random_split] expected fractions >= 0 but got -0.5");
  EXPECT_THROW(random_split(pixels(3), {}), InvalidArgument);
}

TEST(LoadImage, GivesABatchOfOne) {
  const std::filesystem::path file = std::filesystem::path(SINTER_TEST_DATA) / "images" / "rgb.jpg";
  Image image;
  decode_jpeg(testing::load(file), "rgb", {}, {}, image);
  const Tensor x = load_image(file);
  ASSERT_EQ(x.shape(), (Shape{1, 3, image.height, image.width}));
  EXPECT_EQ(x.dtype(), DType::kFloat32);
  const std::vector<float> values = x.to_vector<float>();
  const auto pixel = [&](int64_t c, int64_t row, int64_t column) {
    return values[static_cast<size_t>((c * image.height + row) * image.width + column)];
  };
  for (int64_t c = 0; c < 3; ++c) EXPECT_FLOAT_EQ(pixel(c, 5, 7), image.row(5)[7 * 3 + c] / 255.0f);
}

TEST(LoadImage, GoesTheWayOfALoader) {
  const std::filesystem::path file = std::filesystem::path(SINTER_TEST_DATA) / "images" / "rgb.jpg";
  const Transforms transforms{resize_center_crop(20, 16)};
  const Tensor x = load_image(file, {.transforms = transforms,
                                     .normalization = imagenet_normalization(),
                                     .layout = Layout::kNHWC,
                                     .dtype = DType::kFloat16});
  EXPECT_EQ(x.shape(), (Shape{1, 16, 16, 3}));
  EXPECT_EQ(x.dtype(), DType::kFloat16);
  Image image;
  decode_jpeg(testing::load(file), "rgb", {}, {}, image);
  MemoryDataset::Content content{image.height, image.width, 3, image.pixels, {0}, {"a"}};
  DataLoader loader(std::make_shared<MemoryDataset>(content), {.batch_size = 1,
                                                               .dtype = DType::kFloat16,
                                                               .layout = Layout::kNHWC,
                                                               .normalization = imagenet_normalization(),
                                                               .transforms = transforms});
  EXPECT_EQ(x.to_vector<float16>(), loader.next()->images.to_vector<float16>());
}

TEST(LoadImage, NamesTheFileInErrors) {
  EXPECT_NE(message_of<IoError>([] { load_image("/nowhere/cat.jpg"); }).find("/nowhere/cat.jpg"),
            std::string::npos);
  const testing::TemporaryFolder folder;
  const auto text = folder.write("text.jpg", {'h', 'e', 'l', 'l', 'o'});
  EXPECT_NE(message_of<IoError>([&] { load_image(text); }).find("text.jpg"), std::string::npos);
}

}  // namespace
}  // namespace sinter::nn::data
