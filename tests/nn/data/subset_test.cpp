// Parts of data sets, and single pictures.
#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/load_image.h>

#include "common/project_folder.h"
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

TEST(StratifiedSplit, TakesItsShareOfEveryClass) {
  MemoryDataset::Content content{.height = 1,
                                 .width = 1,
                                 .channels = 1,
                                 .pixels = {},
                                 .labels = {},
                                 .class_names = {"a", "b", "c", "d"}};
  const std::vector<int64_t> sizes = {40, 7, 1, 0}, expected = {10, 2, 0, 0};
  for (int64_t i = 0; i < 40; ++i) {  // the classes mixed
    for (int64_t label = 0; label < 4; ++label) {
      if (i < sizes[static_cast<size_t>(label)]) content.labels.push_back(label);
    }
  }
  content.pixels.assign(content.labels.size(), 0);
  for (size_t i = 0; i < content.pixels.size(); ++i) content.pixels[i] = static_cast<uint8_t>(i);
  const auto all = std::make_shared<MemoryDataset>(content);
  const auto [train, test] = stratified_split(all, 0.25, 3);
  EXPECT_EQ(train->size() + test->size(), all->size());
  std::set<int64_t> seen;
  for (const auto& part : {train, test}) {
    const auto& indices = dynamic_cast<const Subset&>(*part).indices();
    EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
    seen.insert(indices.begin(), indices.end());
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), all->size());
  const std::vector<int64_t> labels = test->labels();
  for (int64_t label = 0; label < 4; ++label)
    EXPECT_EQ(std::count(labels.begin(), labels.end(), label), expected[static_cast<size_t>(label)]) << label;
  const auto indices = [&](uint64_t seed) {
    return dynamic_cast<const Subset&>(*stratified_split(all, 0.25, seed).test).indices();
  };
  EXPECT_EQ(indices(3), dynamic_cast<const Subset&>(*test).indices());
  EXPECT_NE(indices(4), indices(3));
  // A tiny or a large share leaves something on both sides.
  EXPECT_EQ(stratified_split(all, 0.001, 3).test->size(), 2);
  EXPECT_EQ(stratified_split(all, 0.999, 3).train->size(), 2);
  EXPECT_THROW(stratified_split(all, 0.0, 3), InvalidArgument);
  EXPECT_THROW(stratified_split(all, 1.0, 3), InvalidArgument);
}

/// Labels, and names of classes that need not go with them.
class Labelled final : public Dataset {
 public:
  Labelled(std::vector<int64_t> labels, std::vector<std::string> names)
      : labels_(std::move(labels)), names_(std::move(names)) {}
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  void read(int64_t, Sample&, const DecodeHintFunction&) const override {}
  std::vector<int64_t> labels() const override { return labels_; }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  std::vector<int64_t> labels_;
  std::vector<std::string> names_;
};

TEST(StratifiedSplit, TakesLabelsWithoutNamesAndRefusesThoseBeyondThem) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 40; ++i) labels.push_back(i % 2 == 0 ? 3 : int64_t{1} << 40);
  const auto split = [](const std::vector<int64_t>& of, const std::vector<std::string>& names) {
    return stratified_split(std::make_shared<Labelled>(of, names), 0.25, 3);
  };
  const std::vector<int64_t> taken = split(labels, {}).test->labels();
  EXPECT_EQ(std::ranges::count(taken, 3), 5);
  EXPECT_EQ(std::ranges::count(taken, int64_t{1} << 40), 5);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              split({0, 1, 2, 0}, {"a", "b"});
            }),
            "[stratified_split] expected labels from 0 to 1 but sample 2 has 2");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              split({0, -1}, {});
            }),
            "[stratified_split] expected labels >= 0 but sample 1 has -1");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              split({0, -1}, {"a"});
            }),
            "[stratified_split] expected labels from 0 to 0 but sample 1 has -1");
}

/// Pixels of which some are damaged, in no memory that could be viewed.
class Damaged final : public Dataset {
 public:
  Damaged(int64_t count, std::set<int64_t> damaged) : pixels_(pixels(count)), damaged_(std::move(damaged)) {}
  int64_t size() const override { return pixels_->size(); }
  const std::vector<std::string>& class_names() const override { return pixels_->class_names(); }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    checked_index(index);
    if (damaged_.contains(index)) throw IoError("file " + std::to_string(index) + " is damaged");
    pixels_->read(index, sample, reduction);
  }

 private:
  std::shared_ptr<const Dataset> pixels_;
  std::set<int64_t> damaged_;
};

TEST(SkipDamaged, StandInForDamagedOnes) {
  const auto damaged = std::make_shared<Damaged>(8, std::set<int64_t>{2, 3, 7});
  const SkipDamaged sound(damaged, 3);
  EXPECT_EQ(sound.damage().count, 0);
  EXPECT_EQ(sound.get(7).label, 0);
  EXPECT_EQ(sound.damage().first, "file 7 is damaged");
  EXPECT_EQ(sound.get(3).label, 4);
  EXPECT_EQ(sound.get(2).label, 4);
  EXPECT_EQ(sound.get(2).label, 4) << "and again";
  EXPECT_EQ(sound.get(1).label, 1);
  EXPECT_EQ(sound.damage().count, 3);
  EXPECT_EQ(sound.damage().first, "file 2 is damaged") << "whatever the order in which they were met";
  EXPECT_THROW((void)sound.get(8), InvalidArgument);
}

TEST(SkipDamaged, EndAtTheirLimit) {
  const auto damaged = std::make_shared<Damaged>(8, std::set<int64_t>{2, 3, 7});
  const SkipDamaged two(damaged, 2), none(damaged, 0);
  EXPECT_EQ(two.get(2).label, 4);
  EXPECT_EQ(message_of<IoError>([&] { (void)two.get(7); }),
            "[sound_samples] more than 2 damaged samples; the last is sample 7: file 7 is damaged");
  EXPECT_EQ(message_of<IoError>([&] { (void)none.get(7); }), "file 7 is damaged");
  const SkipDamaged all(std::make_shared<Damaged>(2, std::set<int64_t>{0, 1}), 5);
  EXPECT_EQ(message_of<IoError>([&] { (void)all.get(1); }),
            "[sound_samples] all 2 samples of the data set are damaged");
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
  const std::filesystem::path file = test::test_data() / "images" / "rgb.jpg";
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
  const std::filesystem::path file = test::test_data() / "images" / "rgb.jpg";
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
