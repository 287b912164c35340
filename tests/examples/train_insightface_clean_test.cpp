// Cleaning by sub-centres: which images stay, and the data set that is left of them.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "common/temporary_folder.h"
#include "train_insightface/clean.h"
#include "train_insightface/data.h"

namespace {

using namespace train_insightface;
using sinter::testing::TemporaryFolder;

TEST(TrainInsightfaceClean, ImagesStayWithinSeventyFiveDegreesOfTheCentreOfMost) {
  // cos 75 degrees is 0.2588. Most of identity 0 are nearest to its second centre; of identity 1 there are as
  // many near each, and the first counts; of identity 2 none is near the one that most go by.
  const std::vector<int64_t> labels = {0, 0, 0, 1, 1, 2};
  const std::vector<float> cosines = {0.1F, 0.9F, 0.3F,  0.8F, 0.9F, 0.25F,
                                      0.7F, 0.2F, 0.26F, 0.6F, 0.2F, 0.1F};
  EXPECT_EQ(clean_images(labels, cosines, 2), (std::vector<KeptImage>{{0, 0}, {1, 0}, {3, 1}, {4, 1}}));
  EXPECT_TRUE(clean_images({}, {}, 3).empty());
}

TEST(TrainInsightfaceClean, WhatIsKeptIsADataSetOfIdentitiesNumberedAnew) {
  const TemporaryFolder folder;
  const auto faces = synthetic_faces(4, 16);
  EXPECT_EQ(labels_of(*faces)[25], 2);
  write_kept(folder / "kept.txt", *faces, {{1, 0}, {20, 2}, {29, 2}, {35, 3}});
  const auto kept = keep_images(faces, folder / "kept.txt");
  EXPECT_EQ(kept->size(), 4);
  EXPECT_EQ(kept->class_names(), (std::vector<std::string>{"0", "2", "3"}));
  EXPECT_EQ(kept->labels(), (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(kept->get(2).label, 1);
  EXPECT_EQ(kept->get(2).image.pixels, faces->get(29).image.pixels);
  EXPECT_NE(kept->fingerprint(), faces->fingerprint());
  std::stringstream text;
  text << std::ifstream(folder / "kept.txt").rdbuf();
  std::ofstream(folder / "kept.txt") << "\357\273\277" << text.str();  // as some editors save it
  EXPECT_EQ(keep_images(faces, folder / "kept.txt")->labels(), kept->labels());
}

TEST(TrainInsightfaceClean, ListsOfOtherDataAndDamagedOnesAreRefused) {
  const TemporaryFolder folder;
  const auto faces = synthetic_faces(4, 16);
  const auto told = [&](const std::string& text, bool with_head) {
    write_kept(folder / "kept.txt", *faces, {});
    std::ofstream(folder / "kept.txt", with_head ? std::ios::app : std::ios::trunc) << text;
    try {
      keep_images(faces, folder / "kept.txt");
    } catch (const sinter::IoError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(told("", true).find("no image is left"), std::string::npos);
  EXPECT_NE(told("1 0\n1 0\n", true).find("line 3 is damaged: 1 0"), std::string::npos);
  EXPECT_NE(told("40 0\n", true).find("line 2 is damaged: 40 0"), std::string::npos);
  EXPECT_NE(told("3 4\n", true).find("line 2 is damaged: 3 4"), std::string::npos);
  EXPECT_NE(told("3\n", true).find("line 2 is damaged"), std::string::npos);
  EXPECT_NE(told("1 0\nx", true).find("line 3 is damaged"), std::string::npos);
  EXPECT_NE(told("", false).find("expected a list that --clean wrote"), std::string::npos);
  write_kept(folder / "other.txt", *synthetic_faces(5, 16), {{1, 0}});
  EXPECT_THROW(keep_images(faces, folder / "other.txt"), sinter::IoError);
  EXPECT_THROW(keep_images(faces, folder / "none.txt"), sinter::IoError);
}

}  // namespace
