// All samples of a data set in memory, as images or as two tensors.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/formats/image_folder.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using testing::load_picture;
using testing::message_of;
using testing::TemporaryFolder;

TEST(Preload, HoldsTheSameSamples) {
  const TemporaryFolder folder;
  for (int i = 0; i < 150; ++i) {
    const std::string name = (i % 2 == 0 ? "even/" : "odd/") + std::to_string(i) + ".jpg";
    folder.write(name, load_picture(i % 3 == 0 ? "rgb.jpg" : "orientation_6.jpg"));
  }
  const auto dataset = open_image_folder(folder.path());
  const auto cached = preload(*dataset);
  ASSERT_EQ(cached->size(), 150);
  EXPECT_EQ(cached->class_names(), dataset->class_names());
  for (int64_t i = 0; i < 150; ++i) {
    const Sample a = dataset->get(i), b = cached->get(i);
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.image.pixels, b.image.pixels);
  }
  EXPECT_EQ(message_of<OutOfMemory>([&] { preload(*dataset, 1000); }),
            "[dataset] expected the 150 decoded images to fit in 1000 bytes but they need more");
  const fs::path bad = folder.write("odd/7.jpg", {0xff, 0xd8, 0xff, 0xd9});
  EXPECT_EQ(message_of<IoError>([&] { preload(*dataset); }),
            "[jpeg] " + bad.string() + ": damaged or no JPEG: JPEG datastream contains no image");
}

TEST(ToTensors, HoldsAllImagesOfOneSize) {
  const TemporaryFolder folder;
  for (int i = 0; i < 150; ++i) {
    const std::string name = (i % 2 == 0 ? "even/" : "odd/") + std::to_string(i) + ".jpg";
    folder.write(name, load_picture("rgb.jpg"));
  }
  const auto dataset = open_image_folder(folder.path());
  const DatasetTensors all = to_tensors(*dataset);
  const Sample first = dataset->get(0);
  const int64_t bytes = static_cast<int64_t>(first.image.pixels.size());
  ASSERT_EQ(all.images.shape(), (Shape{150, first.image.height, first.image.width, 3}));
  ASSERT_EQ(all.labels.shape(), Shape{150});
  for (int64_t i = 0; i < 150; ++i) {
    const Sample sample = dataset->get(i);
    EXPECT_EQ(all.labels.data<int64_t>()[i], sample.label);
    EXPECT_TRUE(std::equal(sample.image.pixels.begin(), sample.image.pixels.end(),
                           all.images.data<uint8_t>() + i * bytes));
  }
  EXPECT_EQ(message_of<OutOfMemory>([&] { to_tensors(*dataset, 1000); }),
            "[dataset] expected the 150 decoded images to fit in 1000 bytes but they need more");
  folder.write("odd/7.jpg", {'P', '6', '\n', '2', ' ', '1', '\n', '2', '5', '5', '\n', 1, 2, 3, 4, 5, 6});
  int64_t place = 0;
  while (place < 150 && dataset->get(place).image.height == first.image.height) ++place;
  ASSERT_LT(place, 150);
  const Image other = dataset->get(place).image;
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { to_tensors(*dataset); }),
      fmt::format("[dataset] expected images of {} x {} x 3, as the first, but sample {} is {} x {} x {}",
                  first.image.height, first.image.width, place, other.height, other.width, other.channels));
  EXPECT_EQ(message_of<InvalidArgument>([&] { to_tensors(Subset(dataset, {})); }),
            "[dataset] expected at least one sample");
  const fs::path bad = folder.write("odd/7.jpg", {0xff, 0xd8, 0xff, 0xd9});
  EXPECT_EQ(message_of<IoError>([&] { to_tensors(*dataset); }),
            "[jpeg] " + bad.string() + ": damaged or no JPEG: JPEG datastream contains no image");
}

}  // namespace
}  // namespace sinter::nn::data
