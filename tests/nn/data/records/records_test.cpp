// Data sets of records: what is read from files put together by hand, and what the writer's files give back.
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/formats/open_dataset.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/records/record_table.h>
#include <sinter/nn/data/records/record_writer.h>

#include "nn/data/records/record_samples.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;

Image picture(const std::string& name = "rgb.jpg") {
  Image image;
  decode_jpeg(load_picture(name), name, {}, {}, image);
  return image;
}

TEST(Records, ReadWhatIm2recWrites) {
  const TemporaryFolder folder;
  RecordFiles files;
  files.add(0, payload({2}, load_picture("rgb.jpg")));
  files.add(1, payload({0}, load_picture("gray.jpg")));
  files.add(17, payload({1, 0.5, 9}, load_picture("rgb.jpg"), true));
  files.write(folder);
  folder.write("property", text_bytes("3,24,40\n"));
  const auto dataset = open_records(folder.path() / "train");
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(dataset->get(0).label, 2);
  EXPECT_EQ(dataset->get(0).image.pixels, picture().pixels);
  EXPECT_EQ(dataset->get(1).label, 0);
  EXPECT_EQ(dataset->get(1).image.pixels, picture("gray.jpg").pixels);
  EXPECT_EQ(dataset->get(2).label, 1);  // the first of three labels
  Sample sample;
  dataset->read(0, sample, [](int64_t, int64_t) { return 2; });
  EXPECT_EQ(sample.image.height, 12);
  EXPECT_EQ(message_of<InvalidArgument>([&] { dataset->get(3); }),
            "[dataset] expected an index from 0 to 2 but got 3");
}

TEST(Records, LeaveIdentitiesOut) {
  const TemporaryFolder folder;
  face_files(7).write(folder);
  folder.write("property", text_bytes("\357\273\2772,112,112\r\n7"));
  folder.write("classes.txt", text_bytes("\357\273\277Ann\r\nBob\r\n"));
  const auto dataset = open_records(folder.path() / "train.rec");
  ASSERT_EQ(dataset->size(), 7);
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"Ann", "Bob"}));
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(dataset->get(i).label, (i + 1) % 2) << i;
}

TEST(Records, ArePutTogetherFromParts) {
  const Bytes magic = {0x0a, 0x23, 0xd7, 0xce};
  Bytes file, joined;
  put_part(1, text_bytes("abcd"), file);
  put_part(2, {}, file);
  put_part(2, text_bytes("efgh"), file);
  put_part(3, text_bytes("ij"), file);
  put_part(0, text_bytes("next"), file);
  Bytes expected = text_bytes("abcd");
  for (const std::string part : {"", "efgh", "ij"}) {
    expected.insert(expected.end(), magic.begin(), magic.end());
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const Record record = read_record(file, {"file", 0, 0}, joined);
  EXPECT_EQ(Bytes(record.payload.begin(), record.payload.end()), expected);
  const Record next = read_record(file, {"file", 1, record.end}, joined);
  EXPECT_EQ(Bytes(next.payload.begin(), next.payload.end()), text_bytes("next"));
  EXPECT_EQ(next.end, file.size());
}

// Whatever the bytes are, with the magic number at any place, they come back; and it stands in the file at
// multiples of 4 only where a part starts.
TEST(Records, ComeBackAsTheyWereWritten) {
  for (size_t size = 0; size < 14; ++size) {
    for (size_t at = 0; at <= size; ++at) {
      Bytes image(size, 0x55);
      for (int repeat = 0; repeat < 2; ++repeat)
        image.insert(image.begin() + static_cast<std::ptrdiff_t>(at), {0x0a, 0x23, 0xd7, 0xce});
      Bytes file, joined;
      append_image_record(3, 9, image, file);
      const Record record = read_record(file, {"file", 0, 0}, joined);
      EXPECT_EQ(record.end, file.size());
      const ImageRecord parsed = parse_image_record(record.payload, {"file", 0, 0});
      EXPECT_EQ(Bytes(parsed.image.begin(), parsed.image.end()), image) << size << ' ' << at;
      EXPECT_EQ(parsed.label, 3);
      EXPECT_EQ(parsed.id, 9u);
      int magics = 0, flagged = 0;
      for (size_t i = 0; i + 8 <= file.size(); i += 4) {
        uint32_t word = 0, next = 0;
        std::memcpy(&word, &file[i], 4);
        std::memcpy(&next, &file[i + 4], 4);
        magics += word == kRecordMagic;
        flagged += word == kRecordMagic && next >> 29 != 0;
      }
      EXPECT_EQ(magics, at % 4 == 0 ? 3 : 1);
      EXPECT_EQ(flagged, at % 4 == 0 ? 3 : 0);
    }
  }
}

TEST(Records, HoldWhatTheWriterPacked) {
  const TemporaryFolder folder;
  const std::vector<std::string> pictures = {"rgb.jpg", "orientation_6.jpg", "gray.pgm", "half.ppm"};
  for (size_t i = 0; i < 40; ++i) {
    const std::string& name = pictures[i % pictures.size()];
    folder.write("images/class " + std::to_string(i % 3) + "/" + std::to_string(i) +
                     fs::path(name).extension().string(),
                 load_picture(name));
  }
  const ImageFolderFiles all = list_image_folder(folder.path() / "images");
  const auto expected = open_image_folder(folder.path() / "images");
  RecordWriter writer(folder.path(), "train");
  for (const auto& file : all.files)
    writer.add(static_cast<int64_t>(file.label), load(all.path(folder.path() / "images", file)));
  EXPECT_FALSE(fs::exists(folder.path() / "train.rec"));
  writer.commit(all.class_names, 0, 0);

  const auto dataset = open_records(folder.path() / "train.rec");
  ASSERT_EQ(dataset->size(), 40);
  EXPECT_EQ(dataset->class_names(), expected->class_names());
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(dataset->get(i).label, expected->get(i).label) << i;
    EXPECT_EQ(dataset->get(i).image.pixels, expected->get(i).image.pixels) << i;
  }
  const Bytes rec = load(folder.path() / "train.rec"), idx = load(folder.path() / "train.idx");
  const RecordTable table(rec, "rec", idx, "idx");
  Bytes joined;
  for (size_t i = 0; i < 40; ++i) {
    const auto image = table.read(i, rec, joined).image;
    EXPECT_EQ(Bytes(image.begin(), image.end()), load(all.path(folder.path() / "images", all.files[i])));
  }
}

TEST(Records, WriterLeavesNothingUnlessCommitted) {
  const TemporaryFolder folder;
  {
    RecordWriter writer(folder.path(), "train");
    writer.add(0, load_picture("rgb.jpg"));
    EXPECT_EQ(message_of([&] { writer.add(1 << 24, {}); }),
              "[records] expected a class from 0 to 16777215 but got 16777216");
    EXPECT_EQ(message_of([&] { writer.add(-1, {}); }),
              "[records] expected a class from 0 to 16777215 but got -1");
    EXPECT_EQ(message_of([&] { writer.commit({"a\nb"}, 1, 1); }),
              "[records] expected class names of one line but got \"a\\nb\"");
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// What the loader delivers from records and from the folder they were packed from is the same, shuffled,
// transformed and with workers.
TEST(Records, FeedTheLoader) {
  const TemporaryFolder folder;
  for (int i = 0; i < 30; ++i)
    folder.write("images/" + std::to_string(i % 5) + "/" + std::to_string(i) + ".jpg",
                 load_picture("orientation_" + std::to_string(1 + i % 8) + ".jpg"));
  const fs::path root = folder.path() / "images";
  const ImageFolderFiles all = list_image_folder(root);
  RecordWriter writer(folder.path(), "train");
  for (const auto& file : all.files) writer.add(static_cast<int64_t>(file.label), load(all.path(root, file)));
  writer.commit(all.class_names, 24, 40);
  const DataLoaderOptions options{.batch_size = 7,
                                  .shuffle = true,
                                  .workers = 3,
                                  .transforms = {random_resized_crop(16), random_horizontal_flip()}};
  DataLoader from_records(open_records(folder.path() / "train"), options);
  DataLoader from_folder(open_image_folder(root), options);
  int batches = 0;
  for (;; ++batches) {
    const auto a = from_records.next(), b = from_folder.next();
    ASSERT_EQ(a.has_value(), b.has_value());
    if (!a) break;
    EXPECT_EQ(a->labels.to_vector<int64_t>(), b->labels.to_vector<int64_t>());
    EXPECT_EQ(a->images.to_vector<float>(), b->images.to_vector<float>());
  }
  EXPECT_EQ(batches, 5);
}

TEST(Records, AreADatasetWithOrWithoutATestSet) {
  const TemporaryFolder folder;
  face_files(3).write(folder);
  folder.write("property", text_bytes("2,24,40"));
  DatasetPair pair = open_dataset(folder.path());
  EXPECT_EQ(pair.kind, "records");
  EXPECT_EQ(pair.train->size(), 3);
  EXPECT_EQ(pair.test, nullptr);
  RecordFiles files;
  files.add(0, payload({1}, load_picture("rgb.jpg")));
  files.write(folder, "val");
  pair = open_dataset(folder.path());
  ASSERT_NE(pair.test, nullptr);
  EXPECT_EQ(pair.test->size(), 1);
  EXPECT_EQ(pair.test->num_classes(), 2);
  EXPECT_EQ(pair.test->get(0).label, 1);
  fs::remove(folder.path() / "val.rec");
  EXPECT_EQ(message_of<IoError>([&] { open_dataset(folder.path()); }),
            "[file] " + (folder.path() / "val.rec").string() + ": cannot open: No such file or directory");
}

// Past 2^24 a float32 cannot say every number: which is meant is seen from the records around it.
TEST(Records, FindTheBoundThatAFloatCannotSay) {
  int inexact = 0;
  for (const uint64_t base :
       {1ull, 1ull << 23, 1ull << 24, 1ull << 25, 1ull << 26, 42'000'000ull, 1ull << 40}) {
    for (uint64_t key = base > 10 ? base - 10 : 1; key < base + 20; ++key) {
      const auto rounded = static_cast<float>(key);
      int looks = 0;
      const uint64_t found = find_first_identity(rounded, [&](uint64_t other) {
        ++looks;
        return other < key;
      });
      EXPECT_EQ(found, key);
      inexact += static_cast<uint64_t>(rounded) != key;
      EXPECT_LE(looks, base < (1ull << 27) ? 16 : 1 << 18) << key;
    }
  }
  EXPECT_GT(inexact, 50);
}

TEST(Records, AreReadFromManyThreads) {
  const TemporaryFolder folder;
  face_files(20).write(folder);
  folder.write("property", text_bytes("2,24,40"));
  const auto dataset = open_records(folder.path() / "train");
  const Image expected = picture();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const Sample sample = dataset->get((i * 7 + t) % 20);
        right += sample.image.pixels == expected.pixels && sample.label == ((i * 7 + t) % 20 + 1) % 2;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

TEST(EncodeJpeg, KeepsThePicture) {
  const Image image = picture();
  Bytes bytes;
  encode_jpeg(image, 95, bytes);
  Image again;
  decode_jpeg(bytes, "again", {}, {}, again);
  ASSERT_EQ(again.pixels.size(), image.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i) EXPECT_NEAR(again.pixels[i], image.pixels[i], 12) << i;
  const size_t fine = bytes.size();
  encode_jpeg(image, 10, bytes);
  EXPECT_LT(bytes.size(), fine);
  Image gray = image;
  convert_channels(gray, 1);
  encode_jpeg(gray, 95, bytes);
  decode_jpeg(bytes, "gray", {.channels = 1}, {}, again);
  EXPECT_EQ(again.width, 40);
  EXPECT_EQ(message_of([&] { encode_jpeg(image, 0, bytes); }),
            "[jpeg] expected a quality from 1 to 100 but got 0");
  EXPECT_EQ(message_of([&] { encode_jpeg(Image{}, 9, bytes); }),
            "[jpeg] expected 1 to 65500 pixels a side in 1 or 3 channels but got 0 x 0 x 0");
}

}  // namespace
}  // namespace sinter::nn::data
