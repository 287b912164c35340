// Damaged and hostile record files: an IoError that names file, record and byte, never more than that.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/records/record_table.h>

#include "nn/data/records/record_samples.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;

Bytes record_of(uint32_t flag, const Bytes& bytes) {
  Bytes file;
  put_part(flag, bytes, file);
  return file;
}

std::string record_error(const Bytes& file) {
  Bytes joined;
  return message_of<IoError>([&] { read_record(file, {"file", 3, 0}, joined); });
}
std::string index_error(const std::string& text) {
  return message_of<IoError>([&] { parse_record_index(text_bytes(text), "idx"); });
}
std::string table_error(const RecordFiles& files) {
  const Bytes index = text_bytes(files.idx);
  return message_of<IoError>([&] { RecordTable(files.rec, "rec", index, "idx"); });
}

// Opens the files and reads every image. Gives how many could be read.
int read_all(const Bytes& rec, const Bytes& idx) {
  const RecordTable table(rec, "rec", idx, "idx");
  Bytes joined;
  for (size_t i = 0; i < table.size(); ++i) {
    const ImageRecord record = table.read(i, rec, joined);
    volatile uint8_t last = record.image.back();  // a sanitizer notices what lies outside
    static_cast<void>(last);
  }
  return static_cast<int>(table.size());
}

TEST(HostileRecords, FramesAreChecked) {
  const std::string at = "[records] file: record 3 at byte 0: ";
  EXPECT_EQ(record_error({}), at + "expected a part of 8 bytes or more at byte 0 but the file has 0");
  Bytes file = record_of(0, {1, 2, 3});
  file[0] ^= 1;
  EXPECT_EQ(record_error(file), at + "expected the magic number 0xced7230a at byte 0 but got 0xced7230b");
  file = record_of(0, {1, 2, 3});
  file[4] = 5;
  EXPECT_EQ(record_error(file), at + "the part at byte 0 promises 5 bytes, padded to 8, but 4 are left");
  file = record_of(0, {1, 2, 3});
  file.pop_back();
  EXPECT_EQ(record_error(file), at + "the part at byte 0 promises 3 bytes, padded to 4, but 3 are left");
  file[4] = file[5] = file[6] = 255;
  file[7] = 31;
  EXPECT_EQ(record_error(file),
            at + "the part at byte 0 promises 536870911 bytes, padded to 536870912, but 3 are left");
  for (const uint32_t flag : {2u, 3u, 4u, 5u, 6u, 7u}) {
    EXPECT_EQ(record_error(record_of(flag, {})),
              at + fmt::format("expected a whole record (0) or a first part (1) but got flag {}", flag));
  }
  file = record_of(1, {});
  EXPECT_EQ(record_error(file), at + "expected a part of 8 bytes or more at byte 8 but the file has 8");
  for (const uint32_t flag : {0u, 1u, 4u, 7u}) {
    file = record_of(1, {});
    put_part(2, {}, file);
    put_part(flag, {}, file);
    EXPECT_EQ(record_error(file),
              at + fmt::format("expected a middle (2) or last (3) part at byte 16 but got flag {}", flag));
  }
}

TEST(HostileRecords, PayloadsAreChecked) {
  const auto error = [](const Bytes& bytes) {
    return message_of<IoError>([&] { parse_image_record(bytes, {"file", 3, 8}); });
  };
  const std::string at = "[records] file: record 3 at byte 8: ";
  EXPECT_EQ(error(Bytes(23)), at + "expected a header of 24 bytes but the record has 23");
  Bytes bytes = payload({1, 2}, {9}, true);
  bytes[0] = 3;
  EXPECT_EQ(error(bytes), at + "the header promises 3 labels but 9 bytes are left");
  bytes[0] = bytes[1] = bytes[2] = bytes[3] = 255;
  EXPECT_EQ(error(bytes), at + "the header promises 4294967295 labels but 9 bytes are left");
}

TEST(HostileRecords, IndexLinesAreChecked) {
  EXPECT_EQ(index_error(""), "[records] idx: expected one line per record but there is none");
  const std::string form = "[records] idx: expected \"key<tab>offset\" in line ";
  EXPECT_EQ(index_error("1\t0\n\n"), form + "2 but got \"\"");
  EXPECT_EQ(index_error("1 0\n"), form + "1 but got \"1 0\"");
  EXPECT_EQ(index_error("1\t-5\n"), form + "1 but got \"1?-5\"");
  EXPECT_EQ(index_error("1\t18446744073709551616\n"), form + "1 but got \"1?18446744073709551616\"");
  EXPECT_EQ(index_error("1\t0\t5\n"), form + "1 but got \"1?0?5\"");
  EXPECT_EQ(index_error(std::string(500, '\1')), form + "1 but got \"" + std::string(40, '?') + "...\"");
  EXPECT_EQ(index_error("1\t0\n2\t8\n1\t16\n"), "[records] idx: key 1 comes more than once");
  EXPECT_EQ(index_error("1\t0\n2\t8\n3\t0\n"), "[records] idx: keys 1 and 3 have the same offset 0");
}

TEST(HostileRecords, PropertiesAreChecked) {
  const auto error = [](const std::string& text) {
    return message_of<IoError>([&] { parse_record_property(text_bytes(text), "property"); });
  };
  const std::string form = "[records] property: expected \"classes,height,width\" in line 1 but got ";
  EXPECT_EQ(error(""), form + "\"\"");
  EXPECT_EQ(error("5,112"), form + "\"5,112\"");
  EXPECT_EQ(error("5,112,112,3"), form + "\"5,112,112,3\"");
  EXPECT_EQ(error("-1,112,112"), form + "\"-1,112,112\"");
  EXPECT_EQ(
      error("0,112,112"),
      "[records] property: expected 1 to 16777216 classes and a size of up to 1048576 but got 0 classes and "
      "112 x 112");
  EXPECT_EQ(parse_record_property(text_bytes("16777216, 0 ,0\nx"), "").classes, 16777216);
  const TemporaryFolder folder;
  face_files(3).write(folder);
  const auto open = [&] { return message_of<IoError>([&] { open_records(folder.path() / "train"); }); };
  const std::string path = (folder.path() / "property").string();
  EXPECT_EQ(open(),
            "[records] " + path + ": there is no such file; it says how many classes (identities) " +
                (folder.path() / "train.rec").string() +
                " has: it lists 2 of them. If these are all, make the file with the one line \"2,24,40\" "
                "(classes, height, width of the images)");
  folder.write("property", text_bytes("16777216,1,1"));
  EXPECT_EQ(open(), "[records] " + path + ": expected at most 4194304 classes for 3 images but got 16777216");
  folder.write("property", text_bytes("2,1,1"));
  const std::string names = folder.write("classes.txt", text_bytes("a\nb\nc\n")).string();
  EXPECT_EQ(open(), "[records] " + names + ": expected 2 class names, as property says, but got 3");
}

TEST(HostileRecords, TheTwoFilesMustFit) {
  const RecordFiles whole = face_files(4);
  RecordFiles files = whole;
  files.idx = files.idx.substr(files.idx.find('\n') + 1);
  EXPECT_TRUE(table_error(files).starts_with(
      "[records] idx: expected an entry for the record at byte 0 but the first is at byte "));
  files = whole;
  files.idx = files.idx.substr(0, files.idx.rfind("6\t"));  // without key 0 and the last identity
  EXPECT_NE(table_error(files).find("the index is of another file, or cut short"), std::string::npos);
  files = whole;
  files.rec.insert(files.rec.end(), 4, 0);
  EXPECT_NE(table_error(files).find("the index is of another file, or cut short"), std::string::npos);
  files = whole;
  const size_t line = files.idx.find("3\t");
  files.idx.erase(line, files.idx.find('\n', line) + 1 - line);
  EXPECT_EQ(table_error(files), "[records] idx: expected the keys 0 to 4 but some of them are missing");
  files = {};
  files.add(0, payload({1, 1}, {}, true));
  EXPECT_EQ(table_error(files), "[records] rec: expected images but there is none");
}

TEST(HostileRecords, RecordZeroIsChecked) {
  const float most = std::numeric_limits<float>::max(), inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> refused = {{},         {3},       {0, 3},    {-1, 3},
                                                   {3, 2},     {2.5f, 3}, {nan, 3},  {3, nan},
                                                   {inf, inf}, {3, most}, {-inf, 3}, {most, most}};
  for (const std::vector<float>& labels : refused) {
    RecordFiles files;
    files.add(1, payload({0}, {1, 2, 3}));
    files.add(2, payload({0}, {1, 2, 3}));
    Bytes header = payload(labels.empty() ? std::vector<float>{0} : labels, {}, true);
    files.add(0, header);
    EXPECT_NE(table_error(files).find("expected two labels 1 <= L0 <= L1"), std::string::npos)
        << labels.size();
  }
  const auto with_bound = [](float bound, float end) {
    RecordFiles files;
    files.add(1, payload({0}, {1, 2, 3}));
    files.add(2, payload({0}, {1, 2, 3}));
    files.add(3, payload({1, 3}, {}, true));
    files.add(0, payload({bound, end}, {}, true));
    return table_error(files);
  };
  EXPECT_EQ(with_bound(3, 4), "no error");
  EXPECT_EQ(with_bound(2, 4),
            "[records] rec: record 2 at byte 36: expected images up to key 1, as record 0 says, but this is "
            "one too");
  EXPECT_EQ(
      with_bound(4, 4),
      "[records] rec: record 3 at byte 72: expected images up to key 3, as record 0 says, but this is none");
  EXPECT_EQ(with_bound(5, 6), "[records] idx: expected the keys 0 to 4 but some of them are missing");
  EXPECT_EQ(with_bound(3e17f, 4e17f).substr(0, 40), "[records] idx: expected the keys 0 to 29");
}

TEST(HostileRecords, LabelsAreChecked) {
  const TemporaryFolder folder;
  RecordFiles files;
  const std::vector<float> labels = {
      -1, 2, 0.5f, std::numeric_limits<float>::quiet_NaN(), 1e30f, -std::numeric_limits<float>::infinity()};
  for (size_t i = 0; i < labels.size(); ++i)
    files.add(i, payload({labels[i]}, load_picture("rgb.jpg"), i % 2 == 1));
  files.add(labels.size(), payload({1}, {}));
  files.add(labels.size() + 1, payload({1}, {1, 2, 3, 4}));
  files.write(folder);
  folder.write("property", text_bytes("2,24,40"));
  const auto dataset = open_records(folder.path() / "train");
  const std::string file = (folder.path() / "train.rec").string();
  const auto error = [&](int64_t i) { return message_of<IoError>([&] { dataset->get(i); }); };
  EXPECT_EQ(error(0), "[records] " + file + ": record 0 at byte 0: expected a class from 0 to 1 but got -1");
  for (int64_t i = 1; i < 6; ++i)
    EXPECT_NE(error(i).find("expected a class from 0 to 1 but got"), std::string::npos) << i;
  EXPECT_NE(error(6).find(": expected an image behind the labels but the record ends there"),
            std::string::npos);
  EXPECT_TRUE(error(7).starts_with("[image] " + file + ": record 7 at byte ")) << error(7);
}

TEST(HostileRecords, EveryTruncationIsRefused) {
  const RecordFiles files = face_files(2);
  const Bytes idx = text_bytes(files.idx);
  for (size_t size = 0; size < files.rec.size(); ++size) {
    const Bytes cut(files.rec.begin(), files.rec.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(read_all(cut, idx), IoError) << size;
  }
  // The last line may lack its end.
  for (size_t size = 0; size + 1 < idx.size(); ++size) {
    const Bytes cut(idx.begin(), idx.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(read_all(files.rec, cut), IoError) << size;
  }
  EXPECT_EQ(read_all(files.rec, idx), 2);
}

TEST(HostileRecords, FlippedBitsAreSurvived) {
  const RecordFiles files = face_files(2);
  const Bytes idx = text_bytes(files.idx);
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Bytes rec = files.rec, index = idx;
    Bytes& damaged = i % 2 == 0 ? rec : index;
    damaged[random() % damaged.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    try {
      read_all(rec, index);
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

// A megabyte of parts that never end, and one record of 300 MB in parts that do.
TEST(HostileRecords, PartsHaveALimit) {
  Bytes file = record_of(1, {});
  while (file.size() < 1 << 20) put_part(2, {}, file);
  EXPECT_NE(record_error(file).find("expected a part of 8 bytes or more at byte 1048576"), std::string::npos);
  file = record_of(1, Bytes(100 << 20));
  put_part(2, Bytes(100 << 20), file);
  put_part(3, Bytes(100 << 20), file);
  EXPECT_EQ(record_error(file),
            "[records] file: record 3 at byte 0: expected at most 268435456 bytes in a record but its parts "
            "have more");
  EXPECT_EQ(record_error(record_of(0, Bytes((256 << 20) + 1))),
            "[records] file: record 3 at byte 0: expected at most 268435456 bytes in a record but it "
            "promises 268435457");
}

TEST(HostileRecords, HugeCountsCostNothing) {
  RecordFiles files = face_files(1);
  const int64_t before = peak_memory();
  const double start = processor_seconds();
  files.idx.insert(0, "18446744073709551615\t18446744073709551615\n");
  EXPECT_NE(table_error(files).find("at byte 18446744073709551615: expected a part of 8 bytes"),
            std::string::npos);
  std::string lines;  // 10 MB of them
  for (int i = 0; lines.size() < 10'000'000; ++i) lines += fmt::format("{}\t{}\n", i, i);
  files.idx = lines;
  EXPECT_NE(table_error(files), "no error");
  EXPECT_LT(processor_seconds() - start, kMostSeconds);
  EXPECT_LT(peak_memory() - before, kMostMemory);
}

TEST(HostileRecords, AFileThatShrankIsRefused) {
  const TemporaryFolder folder;
  face_files(3).write(folder);
  folder.write("property", text_bytes("2,24,40"));
  const auto dataset = open_records(folder.path() / "train");
  fs::resize_file(folder.path() / "train.rec", 10);
  EXPECT_NE(message_of<IoError>([&] { dataset->get(2); }).find("as when it was opened, but it has 10 now"),
            std::string::npos);
  folder.write("train.rec", {});
  EXPECT_THROW(open_records(folder.path() / "train"), IoError);
  EXPECT_EQ(message_of<IoError>([&] { open_records("/dev/null.rec"); }),
            "[file] /dev/null.rec: cannot open: No such file or directory");
}

}  // namespace
}  // namespace sinter::nn::data
