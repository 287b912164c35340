// Fingerprints of data sets: the same wherever and whenever, another for whatever differs.
#include <chrono>
#include <set>

#include <gtest/gtest.h>

#include <sinter/nn/data/formats/idx.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/shards/shard_dataset.h>

#include "nn/data/records/record_samples.h"
#include "nn/data/shards/tar_samples.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;

TEST(Fingerprint, IsWhatItWasOnOtherMachines) {
  Fingerprint print;
  EXPECT_EQ(print.value(), 0u);
  print.add(uint64_t{1});
  print.add("sinter fingerprint");
  EXPECT_EQ(print.value(), 0xf0a12b1f8ab89398u);  // stands in checkpoints
  Fingerprint first, second;
  for (const char* text : {"ab", "c"}) first.add(text);
  for (const char* text : {"a", "bc"}) second.add(text);
  EXPECT_NE(first.value(), second.value());
}

/// Two classes of two images each.
class Folder {
 public:
  explicit Folder(bool backwards = false) {
    std::vector<std::string> names = {"a/1.ppm", "a/2.ppm", "b/1.ppm", "b/3.ppm"};
    if (backwards) std::reverse(names.begin(), names.end());
    for (const std::string& name : names) write(name, "P5 1 1 255\nx");
  }
  void write(const std::string& name, const std::string& text) const {
    folder_.write(name, text_bytes(text));
  }
  fs::path path(const std::string& name = "") const { return folder_.path() / name; }
  uint64_t fingerprint() const { return open_image_folder(folder_.path())->fingerprint(); }

 private:
  TemporaryFolder folder_;
};

TEST(Fingerprint, OfAFolderKnowsNoPlaceAndNoTime) {
  const Folder first, second(true);
  EXPECT_EQ(first.fingerprint(), second.fingerprint());
  fs::last_write_time(first.path("a/1.ppm"), fs::file_time_type::clock::now() - std::chrono::hours(100));
  EXPECT_EQ(first.fingerprint(), second.fingerprint());
}

TEST(Fingerprint, OfAFolderIsAnotherForWhateverDiffers) {
  std::set<uint64_t> seen = {Folder().fingerprint()};
  const auto is_new = [&](const auto& change) {
    const Folder folder;
    change(folder);
    return seen.insert(folder.fingerprint()).second;
  };
  EXPECT_TRUE(is_new([](const Folder& f) { fs::rename(f.path("a"), f.path("c")); }));
  EXPECT_TRUE(is_new([](const Folder& f) { fs::rename(f.path("b/3.ppm"), f.path("b/2.ppm")); }));
  EXPECT_TRUE(is_new([](const Folder& f) { fs::rename(f.path("b/3.ppm"), f.path("a/3.ppm")); }));
  EXPECT_TRUE(is_new([](const Folder& f) { fs::remove(f.path("b/3.ppm")); }));
  EXPECT_TRUE(is_new([](const Folder& f) { f.write("b/4.ppm", "P5 1 1 255\nx"); }));
  EXPECT_TRUE(is_new([](const Folder& f) { f.write("b/3.ppm", "P5 2 1 255\nxx"); }));
  EXPECT_TRUE(is_new([](const Folder& f) { f.write("b/3.ppm", "P5 1 1 255\ny"); }));
}

TEST(Fingerprint, GoesThroughWhatStandsAboveADataSet) {
  const Folder folder;
  const auto data = open_image_folder(folder.path());
  EXPECT_EQ(preload(*data)->fingerprint(), data->fingerprint());
  EXPECT_EQ(SkipDamaged(data, 1).fingerprint(), data->fingerprint());
  EXPECT_NE(Subset(data, {0, 1, 2, 3}).fingerprint(), Subset(data, {0, 1, 3, 2}).fingerprint());
  EXPECT_NE(Subset(data, {0, 1}).fingerprint(), Subset(data, {0, 2}).fingerprint());
}

TEST(Fingerprint, OfDataInMemoryKnowsEveryPixel) {
  const auto of = [](std::vector<uint8_t> pixels, std::vector<int64_t> labels, int64_t width = 2) {
    return MemoryDataset({.height = 1,
                          .width = width,
                          .channels = 2 / width,
                          .pixels = std::move(pixels),
                          .labels = std::move(labels),
                          .class_names = {"a", "b"}})
        .fingerprint();
  };
  const uint64_t before = of({1, 2, 3, 4}, {0, 1});
  EXPECT_EQ(of({1, 2, 3, 4}, {0, 1}), before);
  const std::set<uint64_t> others = {before, of({1, 2, 3, 5}, {0, 1}), of({1, 2, 3, 4}, {1, 0}),
                                     of({1, 2, 3, 4}, {0, 1}, 1)};
  EXPECT_EQ(others.size(), 4u);
}

TEST(Fingerprint, OfRecordsKnowsLabelsAndPlaces) {
  const auto of = [](std::vector<float> labels, const std::string& image, const char* names = "x\ny\n") {
    const TemporaryFolder folder;
    RecordFiles files;
    for (size_t i = 0; i < labels.size(); ++i)
      files.add(i + 1, payload({labels[i]}, text_bytes(i == 0 ? image : "P5 1 1 255\nx")));
    folder.write("train.rec", files.rec);
    folder.write("train.idx", text_bytes(files.idx));
    folder.write("property", text_bytes("2,0,0"));
    folder.write("classes.txt", text_bytes(names));
    return open_records(folder.path() / "train.rec")->fingerprint();
  };
  const uint64_t before = of({0, 1}, "P5 1 1 255\nx");
  EXPECT_EQ(of({0, 1}, "P5 1 1 255\nx"), before);
  const std::set<uint64_t> others = {before, of({1, 0}, "P5 1 1 255\nx"),
                                     of({0, 1}, "P5 4 4 255\n0123456789abcdef"),
                                     of({0, 1}, "P5 1 1 255\nx", "y\nx\n")};
  EXPECT_EQ(others.size(), 4u);
}

TEST(Fingerprint, OfShardsKnowsLabelsAndPlaces) {
  const auto of = [](const char* label, const std::string& picture, const char* name = "train-0.tar") {
    const TemporaryFolder folder;
    Bytes archive;
    append_member(archive, "1.pgm", picture);
    append_member(archive, "1.cls", label);
    append_member(archive, "2.pgm", small_picture("x"));
    append_member(archive, "2.cls", "2");
    append_end(archive);
    return open_shards(std::vector<fs::path>{folder.write(name, archive)})->fingerprint();
  };
  const uint64_t before = of("1", small_picture("x"));
  EXPECT_EQ(of("1", small_picture("x")), before);
  const std::set<uint64_t> others = {before, of("0", small_picture("x")), of("1", small_picture("xy")),
                                     of("1", small_picture("x"), "train-1.tar")};
  EXPECT_EQ(others.size(), 4u);
}

}  // namespace
}  // namespace sinter::nn::data
