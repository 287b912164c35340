// Lists of faces: landmarks as CSV, and IJB's lists of pictures, pairs and subjects; what is wrong with them
// is told with file and line.
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include <sinter/nn/data/faces/ijb.h>
#include <sinter/nn/data/faces/landmarks.h>
#include <sinter/nn/data/faces/text_lines.h>

#include "common/temporary_folder.h"
#include "nn/nn_test_support.h"

namespace sinter::nn::data {
namespace {

using nn::testing::message_of;
using sinter::testing::TemporaryFolder;

/// A text, `piece` bytes at a time.
TextLines lines_of(const std::string& text, size_t piece = 7) {
  return TextLines("list", [text, piece, at = size_t{0}](std::span<char> bytes) mutable {
    const size_t count = std::min({bytes.size(), piece, text.size() - at});
    std::memcpy(bytes.data(), text.data() + at, count);
    at += count;
    return count;
  });
}

TEST(TextLinesTest, LinesOfAnyLengthInPiecesOfAnyLength) {
  const std::string text = "one\n\n  two words \r\n" + std::string(1000, 'x') + "\n\nlast";
  for (const size_t piece : std::vector<size_t>{1, 2, 3, 100, 5000}) {
    TextLines lines = lines_of(text, piece);
    EXPECT_EQ(lines.next(), "one");
    EXPECT_EQ(lines.number(), 1);
    EXPECT_EQ(lines.next(), "two words");
    EXPECT_EQ(lines.number(), 3);
    EXPECT_EQ(lines.next(), std::string(1000, 'x'));
    EXPECT_EQ(lines.next(), "last");
    EXPECT_EQ(lines.number(), 6);
    EXPECT_EQ(lines.next(), std::nullopt);
    EXPECT_EQ(lines.next(), std::nullopt);
  }
  TextLines marked = lines_of("\357\273\277one\n\357\273\277two", 2);
  EXPECT_EQ(marked.next(), "one");
  EXPECT_EQ(marked.next(), "\357\273\277two");
  TextLines longer = lines_of(std::string((1 << 20) + 1, 'x'), 1 << 16);
  EXPECT_EQ(message_of<IoError>([&] { longer.next(); }), "[faces] list, line 1: longer than 1048576 bytes");
  TextLines zero = lines_of(std::string("a\n\0b\n", 5));
  zero.next();
  EXPECT_EQ(message_of<IoError>([&] { zero.next(); }),
            "[faces] list, line 2: expected text but got '\\x00b'");
  EXPECT_NE(message_of<IoError>([] { TextLines lines(std::filesystem::path("nowhere")); }).find("nowhere"),
            std::string::npos);
}

TEST(TextLinesTest, WordsFieldsAndNumbers) {
  using Words = std::vector<std::string_view>;
  EXPECT_EQ(split_words("  a \t b c d", 3), (Words{"a", "b", "c d"}));
  EXPECT_EQ(split_words("a b", 3), (Words{"a", "b"}));
  EXPECT_EQ(split_words("   ", 3), Words{});
  EXPECT_EQ(split_fields("a, b ,,c", 9), (Words{"a", "b", "", "c"}));
  EXPECT_EQ(split_fields("a,b,c", 2), (Words{"a", "b,c"}));
  EXPECT_EQ(to_whole("-12"), -12);
  EXPECT_EQ(to_number("1.5e1"), 15.0);
  for (const char* const wrong : {"", "x", "1x", "1 ", "nan", "inf", "1e999", "0x10"})
    EXPECT_EQ(to_number(wrong), std::nullopt) << wrong;
  for (const char* const wrong : {"", "1.0", "99999999999999999999"})
    EXPECT_EQ(to_whole(wrong), std::nullopt);
}

std::string wrong(const std::string& text) {
  return message_of<IoError>([&] {
    TextLines lines = lines_of(text, 4096);
    read_landmarks(lines);
  });
}

TEST(LandmarksTest, AreReadAsDetectorsWriteThem) {
  TextLines lines = lines_of(
      "path,x1,y1,x2,y2,x3,y3,x4,y4,x5,y5,score\n"
      "ann/1.jpg,1,2,3,4,5,6,7,8,9,10\n"
      "\"b,\"\"c\"\".jpg\",1.5,2,3,4,5,6,7,8,9,10,0.75\r\n"
      "caf\\xe9.png, 1,2,3,4,5,6,7,8,9,-10\n");
  const std::vector<Landmarks> faces = read_landmarks(lines);
  ASSERT_EQ(faces.size(), 3u);
  EXPECT_EQ(faces[0].path, "ann/1.jpg");
  EXPECT_EQ(faces[0].line, 2);
  EXPECT_EQ(faces[0].points[1].y, 4);
  EXPECT_FALSE(faces[0].score);
  EXPECT_EQ(faces[1].path, "b,\"c\".jpg");
  EXPECT_EQ(faces[1].points[0].x, 1.5);
  EXPECT_EQ(faces[1].score, 0.75);
  EXPECT_EQ(faces[2].path, "caf\xe9.png");
  EXPECT_EQ(faces[2].points[4].y, -10);
}

TEST(LandmarksTest, AFaceWithASlipIsNoHeader) {
  const std::string sound = "b.jpg,1,2,3,4,5,6,7,8,9,10\n";
  for (const std::string first :
       {"a.jpg,1o,2,3,4,5,6,7,8,9,10", "a.jpg,nan,2,3,4,5,6,7,8,9,10", "a.jpg,,2,3,4,5,6,7,8,9,10",
        "a.jpg,nan,nan,nan,nan,nan,nan,nan,nan,nan,nan", "a.jpg,inf,-inf", "a.jpg,1e999,x", "a.jpg,x,",
        "a,b.jpg,1,2,3,4,5,6,7,8,9,10"})
    EXPECT_NE(wrong(first + "\n" + sound).find("list, line 1: expected path,x1,y1"), std::string::npos)
        << first;
  for (const std::string first : {"path,x1,y1", "file, left x, left y, score", "\357\273\277path,x1,y1"}) {
    TextLines lines = lines_of(first + "\n" + sound);
    EXPECT_EQ(read_landmarks(lines).size(), 1u) << first;
  }
  TextLines marked = lines_of("\357\273\277\"a,b.jpg\",1,2,3,4,5,6,7,8,9,10\n" + sound);
  EXPECT_EQ(read_landmarks(marked)[0].path, "a,b.jpg");
}

TEST(LandmarksTest, SixtyEightPointsBecomeFive) {
  std::string text = "a.jpg";
  for (int i = 0; i < 68; ++i) text += "," + std::to_string(i) + "," + std::to_string(2 * i);
  for (const bool scored : {false, true}) {
    TextLines lines = lines_of(text + (scored ? ",0.5" : ""));
    const std::vector<Landmarks> faces = read_landmarks(lines);
    EXPECT_EQ(faces[0].points[0].x, 37.5);
    EXPECT_EQ(faces[0].points[4].y, 108);
    EXPECT_EQ(faces[0].score.has_value(), scored);
  }
}

TEST(LandmarksTest, WhatIsWrongIsToldWithItsLine) {
  const std::string sound = "a.jpg,1,2,3,4,5,6,7,8,9,10\n";
  const std::string expected = "expected path,x1,y1,...,x5,y5[,score] (or 68 points) but got ";
  EXPECT_EQ(wrong(""), "[faces] list: there is no face in it");
  EXPECT_EQ(wrong("path,x1,y1\n"), "[faces] list: there is no face in it");
  EXPECT_EQ(wrong(sound + "a.jpg,1,2,3"), "[faces] list, line 2: " + expected + "'a.jpg,1,2,3'");
  EXPECT_EQ(wrong(sound + "a.jpg"), "[faces] list, line 2: " + expected + "'a.jpg'");
  EXPECT_EQ(wrong(sound + "a.jpg,1,2,3,4,5,6,7,8,9,nan"),
            "[faces] list, line 2: " + expected + "'a.jpg,1,2,3,4,5,6,7,8,9,nan'");
  EXPECT_EQ(wrong("\"a.jpg,1,2,3,4,5,6,7,8,9,10"),
            "[faces] list, line 1: " + expected + "'\"a.jpg,1,2,3,4,5,6,7,8,9,10'");
  for (const std::string path : {"/a.jpg", "../a.jpg", "b/../../a.jpg", "", "b/"}) {
    EXPECT_NE(wrong(sound + path + ",1,2,3,4,5,6,7,8,9,10")
                  .find("line 2: expected a path inside the folder of the images"),
              std::string::npos)
        << path;
  }
}

std::vector<IjbImage> ijb_images(const std::string& templates, const std::string& points) {
  TextLines first = lines_of(templates), second = lines_of(points);
  return read_ijb_images(first, second);
}

TEST(IjbListsTest, PicturesStandInBothLists) {
  const auto images = ijb_images("1.jpg 7 2\n2.jpg 7 -1\n",
                                 "1.jpg 1 2 3 4 5 6 7 8 9 10 0.5\n2.jpg 1 2 3 4 5 6 7 8 9 10.5 1\n");
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0].name, "1.jpg");
  EXPECT_EQ(images[1].template_id, 7);
  EXPECT_EQ(images[1].media_id, -1);
  EXPECT_EQ(images[1].points[4].y, 10.5);
  EXPECT_EQ(images[0].score, 0.5);
  const auto message = [](const std::string& a, const std::string& b) {
    return message_of<IoError>([&] { ijb_images(a, b); });
  };
  const std::string row = "1.jpg 1 2 3 4 5 6 7 8 9 10 0.5\n";
  EXPECT_EQ(message("1.jpg 7\n", row),
            "[faces] list, line 1: expected 'name template medium' but got '1.jpg 7'");
  EXPECT_EQ(message("1.jpg 7 2 5\n", row),
            "[faces] list, line 1: expected 'name template medium' but got '1.jpg 7 2 5'");
  EXPECT_EQ(message("1.jpg 7 2\n", "1.jpg 1 2 3\n"),
            "[faces] list, line 1: expected 'name x1 y1 ... x5 y5 score' but got '1.jpg 1 2 3'");
  EXPECT_EQ(message("2.jpg 7 2\n", row),
            "[faces] list, line 1: expected '2.jpg', as in line 1 of list, but got '1.jpg 1 2 3 4 5 6 7 8 9 "
            "10 0.5'");
  EXPECT_EQ(message("1.jpg 7 2\n1.jpg 7 3\n", row),
            "[faces] list: expected as many lines as list has, but it ends behind line 1");
  EXPECT_EQ(
      message("1.jpg 7 2\n", row + row),
      "[faces] list, line 2: expected no more lines than list has but got '1.jpg 1 2 3 4 5 6 7 8 9 10 0.5'");
  EXPECT_EQ(message("../1.jpg 7 2\n", row),
            "[faces] list, line 1: expected a name inside the folder of the pictures but got '../1.jpg 7 2'");
  EXPECT_EQ(message("", ""), "[faces] list: there is no picture in it");
}

TEST(IjbListsTest, PairsAndSubjects) {
  TextLines pairs = lines_of("1 2 0\n3 4 1\n5 6 2\n");
  EXPECT_FALSE(next_ijb_pair(pairs)->genuine);
  EXPECT_EQ(next_ijb_pair(pairs)->second, 4);
  EXPECT_EQ(message_of<IoError>([&] { next_ijb_pair(pairs); }),
            "[faces] list, line 3: expected 'template template 0' or 1 but got '5 6 2'");
  TextLines subjects = lines_of("TEMPLATE_ID,SUBJECT_ID,FILENAME\n9,1,a.jpg\n4,2,b.jpg\n9,1,\"c,d.jpg\"\n");
  const std::vector<IjbSubject> all = read_ijb_subjects(subjects);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].template_id, 4);
  EXPECT_EQ(all[1].subject, 1);
  EXPECT_EQ(all[1].line, 2);
  const auto message = [](const std::string& text) {
    return message_of<IoError>([&] {
      TextLines lines = lines_of(text);
      read_ijb_subjects(lines);
    });
  };
  EXPECT_EQ(message("1,2,a\n"),
            "[faces] list, line 1: expected names of columns, template and subject first but got '1,2,a'");
  EXPECT_EQ(message("T,S\n1,2\n1,3\n"),
            "[faces] list, line 3: expected template 1 of subject 2, as in line 2, but got '1,3'");
  EXPECT_EQ(message("T,S\n1,x\n"), "[faces] list, line 2: expected 'template,subject,...' but got '1,x'");
  EXPECT_EQ(message("T,S\n"), "[faces] list: there is no template in it");
}

TEST(IjbListsTest, AFolderIsOneOfTheSets) {
  const TemporaryFolder folder;
  const auto root = folder.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(root / "meta");
    std::ofstream(root / "meta" / name) << text;
  };
  const auto message = [&] { return message_of<IoError>([&] { open_ijb(root); }); };
  EXPECT_EQ(message(), "[faces] " + (root / "loose_crop").string() + ": there is no such folder");
  std::filesystem::create_directories(root / "loose_crop");
  std::filesystem::create_directories(root / "meta");
  EXPECT_EQ(message(), "[faces] " + (root / "meta").string() +
                           ": expected ijbb_face_tid_mid.txt or ijbc_face_tid_mid.txt but got neither");
  write("ijbc_face_tid_mid.txt", "2.jpg 8 1\n1.jpg 7 2\n3.jpg 8 0\n4.jpg 8 0\n");
  std::string points;
  for (const char* const name : {"2", "1", "3", "4"})
    points += std::string(name) + ".jpg 1 2 3 4 5 6 7 8 9 10 1\n";
  write("ijbc_name_5pts_score.txt", points);
  EXPECT_EQ(message(),
            "[faces] " + (root / "meta/ijbc_template_pair_label.txt").string() + ": there is no such file");
  write("ijbc_template_pair_label.txt", "7 8 1\n");
  const IjbSet set = open_ijb(root);
  EXPECT_EQ(set.name, "ijbc");
  EXPECT_EQ(set.by_template(), (std::vector<int64_t>{1, 2, 3, 0}));
  EXPECT_TRUE(set.galleries.empty());
  write("ijbc_1N_gallery_G1.csv", "T,S\n7,1\n");
  write("ijbc_1N_probe_mixed.csv", "T,S\n8,1\n");
  EXPECT_EQ(message(), "[faces] " + (root / "meta/ijbc_1N_gallery_G2.csv").string() +
                           ": there is no such file, which 1:N needs beside the others");
  write("ijbc_1N_gallery_G2.csv", "T,S\n7,1\n");
  EXPECT_EQ(open_ijb(root).gallery_names, (std::vector<std::string>{"G1", "G2"}));
  for (const char* const name : {"name_5pts_score.txt", "face_tid_mid.txt", "template_pair_label.txt"}) {
    std::filesystem::copy_file(root / "meta" / (std::string("ijbc_") + name),
                               root / "meta" / (std::string("ijbb_") + name));
  }
  EXPECT_EQ(message(), "[faces] " + (root / "meta").string() +
                           ": expected ijbb_face_tid_mid.txt or ijbc_face_tid_mid.txt but got both");
  std::filesystem::remove(root / "meta/ijbc_face_tid_mid.txt");
  EXPECT_EQ(open_ijb(root).name, "ijbb");
  EXPECT_TRUE(open_ijb(root).galleries.empty()) << "those of the other set";
  for (const char* const name : {"gallery_S1", "gallery_S2", "probe_mixed"})
    write(std::string("ijbb_1N_") + name + ".csv", "T,S\n7,1\n");
  EXPECT_EQ(open_ijb(root).gallery_names, (std::vector<std::string>{"S1", "S2"}));
  EXPECT_EQ(open_ijb(root).galleries[1], root / "meta/ijbb_1N_gallery_S2.csv");
}

}  // namespace
}  // namespace sinter::nn::data
