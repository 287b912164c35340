// Checkpoints: round trips, which are kept, and damage of every kind.
#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <common/failing_file_system.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/checkpoint/checkpoint_format.h>

namespace sinter::nn {
namespace {

using sinter::testing::expect_same;
using sinter::testing::FailingFileSystem;
using sinter::testing::make_checkpoint;
using sinter::testing::message_of;
using sinter::testing::random_tensor;
using sinter::testing::read_file;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;

TEST(Checkpoint, KeepsTensorsAndValues) {
  const TemporaryFolder folder;
  CheckpointData data = make_checkpoint(5);
  data.tensors["empty"] = {};
  for (const DType dtype : kAllDTypes)
    data.tensors["all"][std::string(to_string(dtype))] = random_tensor({3}, dtype, 1);
  data.values["flag"] = true;
  data.values["seed"] = std::numeric_limits<uint64_t>::max();
  data.values["lowest"] = std::numeric_limits<int64_t>::min();
  data.values["text"] = std::string("\"\\\n\u00e9");
  data.values["größe"] = std::string();
  const std::filesystem::path path = CheckpointFolder(folder / "a/b").save(data);
  EXPECT_EQ(path, folder / "a/b/checkpoint-00000001");
  expect_same(load_checkpoint(path), data);
}

TEST(Checkpoint, KeepsDoublesBitForBit) {
  const TemporaryFolder folder;
  CheckpointData data;
  std::vector<double> numbers = {0.0,
                                 -0.0,
                                 1.0,
                                 0.1,
                                 1e300,
                                 5e-324,
                                 std::numeric_limits<double>::max(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity()};
  Generator generator(3);
  while (numbers.size() < 2000) {
    const double number = std::bit_cast<double>(generator.below(UINT64_MAX));
    if (!std::isnan(number)) numbers.push_back(number);
  }
  for (size_t i = 0; i < numbers.size(); ++i) data.values[fmt::format("{}", i)] = numbers[i];
  data.values["nan"] = std::numeric_limits<double>::quiet_NaN();
  const CheckpointData read = load_checkpoint(CheckpointFolder(folder.path()).save(data));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double number = read.value<double>(fmt::format("{}", i));
    EXPECT_EQ(std::bit_cast<uint64_t>(number), std::bit_cast<uint64_t>(numbers[i])) << numbers[i];
  }
  EXPECT_TRUE(std::isnan(read.value<double>("nan")));
}

TEST(Checkpoint, ValuesConvertWhereTheyFit) {
  CheckpointData data;
  data.values = {
      {"small", int64_t{3}}, {"negative", int64_t{-3}}, {"large", UINT64_MAX}, {"text", std::string("x")}};
  EXPECT_EQ(data.value<uint64_t>("small"), 3u);
  EXPECT_EQ(data.value<int64_t>("negative"), -3);
  EXPECT_EQ(data.value<uint64_t>("large"), UINT64_MAX);
  const auto message = [&]<class T>(const char* key, T) {
    return message_of<IoError>([&] { data.template value<T>(key); });
  };
  EXPECT_EQ(message("negative", uint64_t{}),
            "[checkpoint] expected an integer of 64 bits >= 0 as the value \"negative\"");
  EXPECT_EQ(message("large", int64_t{}),
            "[checkpoint] expected an integer of 64 bits as the value \"large\"");
  EXPECT_EQ(message("small", 0.0), "[checkpoint] expected a floating-point number as the value \"small\"");
  EXPECT_EQ(message("text", true), "[checkpoint] expected a boolean as the value \"text\"");
  EXPECT_EQ(message("small", std::string()), "[checkpoint] expected a text as the value \"small\"");
  EXPECT_EQ(message("none", true), "[checkpoint] the value \"none\" is missing");
}

TEST(Checkpoint, SavesEqualBytesForEqualContents) {
  const TemporaryFolder folder;
  CheckpointFolder checkpoints(folder.path());
  const std::filesystem::path a = checkpoints.save(make_checkpoint(1)),
                              b = checkpoints.save(make_checkpoint(1));
  for (const char* name : {"manifest.txt", "state.json", "model.safetensors", "optimiser.safetensors"}) {
    EXPECT_EQ(read_file(a / name), read_file(b / name)) << name;
  }
}

TEST(Checkpoint, KeepsTheNewestAndCleansUp) {
  const TemporaryFolder folder;
  FailingFileSystem files;  // does not wait for the disk
  CheckpointFolder checkpoints(folder / "run", 2, files);
  EXPECT_TRUE(checkpoints.list().empty());
  EXPECT_FALSE(checkpoints.latest());
  for (int64_t step = 1; step <= 11; ++step) checkpoints.save(make_checkpoint(step));
  EXPECT_EQ(checkpoints.list(), (std::vector<std::filesystem::path>{folder / "run/checkpoint-00000010",
                                                                    folder / "run/checkpoint-00000011"}));
  expect_same(load_checkpoint(*checkpoints.latest()), make_checkpoint(11));

  // What others keep here stays, and is no checkpoint.
  for (const char* name :
       {"notes", "checkpoint-12", "checkpoint-00000012x", "checkpoint-", ".saving-notes"}) {
    std::filesystem::create_directory(folder / "run" / name);
  }
  std::filesystem::create_directory(folder / "run/.saving-checkpoint-00000012");
  CheckpointFolder all(folder / "run", 0, files);
  EXPECT_EQ(all.save(make_checkpoint(12)), folder / "run/checkpoint-00000012");
  EXPECT_EQ(all.list().size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/.saving-notes"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/.saving-checkpoint-00000012"));

  // Numbers are compared as numbers, beyond eight digits too.
  std::filesystem::rename(folder / "run/checkpoint-00000012", folder / "run/checkpoint-100000000");
  EXPECT_EQ(all.latest()->filename(), "checkpoint-100000000");
  EXPECT_EQ(all.save(make_checkpoint(13)).filename(), "checkpoint-100000001");
}

TEST(Checkpoint, RefusesWrongUse) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<InvalidArgument>([&] { CheckpointFolder(folder.path(), -1); }),
            "[checkpoint] expected keep_last >= 0 but got -1");
  EXPECT_EQ(message_of<InvalidArgument>([&] { CheckpointFolder(""); }),
            "[checkpoint] expected a root folder but got an empty path");
  CheckpointFolder checkpoints(folder.path());
  for (const char* part : {"", "a/b", "..", "a b", "a.b"}) {
    CheckpointData data;
    data.tensors[part] = {};
    EXPECT_EQ(
        message_of<InvalidArgument>([&] { checkpoints.save(data); }),
        fmt::format("[checkpoint] a part's name has letters, digits, '_' and '-' only, not \"{}\"", part));
  }
  CheckpointData data;
  data.values["text"] = std::string("\xFF");
  EXPECT_THROW(checkpoints.save(data), InvalidArgument);
  data.values.clear();
  data.tensors["model"]["w"] = Tensor();
  EXPECT_THROW(checkpoints.save(data), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// ---- damage

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() : path_(CheckpointFolder(folder_.path(), 1, files_).save(make_checkpoint(1))) {
    for (const char* name : {"manifest.txt", "state.json", "model.safetensors", "optimiser.safetensors"}) {
      contents_.emplace_back(name, read_file(path_ / name));
    }
  }

  std::string load_message() const {
    return message_of<IoError>([&] { load_checkpoint(path_); });
  }

  /// Changes a byte in place: much faster than writing the file again.
  void put_byte(const std::string& name, size_t place, char byte) const {
    std::fstream file(path_ / name, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(place)).put(byte);
    ASSERT_TRUE(file.flush());
  }

  TemporaryFolder folder_;
  FailingFileSystem files_;
  std::filesystem::path path_;
  std::vector<std::pair<std::string, std::string>> contents_;
};

TEST_F(DamagedCheckpoint, EveryTruncationIsDetected) {
  for (const auto& [name, text] : contents_) {
    for (size_t size = text.size(); size-- > 0;) {
      std::filesystem::resize_file(path_ / name, size);
      EXPECT_THROW(load_checkpoint(path_), IoError) << name << " cut to " << size;
    }
    write_file(path_ / name, text + '\0');
    EXPECT_THROW(load_checkpoint(path_), IoError) << name << " with a byte more";
    write_file(path_ / name, text);
  }
  expect_same(load_checkpoint(path_), make_checkpoint(1));
}

TEST_F(DamagedCheckpoint, EveryBitFlipIsDetected) {
  Generator generator(11);
  for (int i = 0; i < 10'000; ++i) {
    const auto& [name, text] = contents_[generator.below(contents_.size())];
    const uint64_t bit = generator.below(text.size() * 8);
    const char byte = text[bit / 8];
    put_byte(name, bit / 8, static_cast<char>(byte ^ (1 << (bit % 8))));
    EXPECT_THROW(load_checkpoint(path_), IoError) << name << " bit " << bit;
    put_byte(name, bit / 8, byte);
  }
  expect_same(load_checkpoint(path_), make_checkpoint(1));
}

TEST_F(DamagedCheckpoint, ErrorsSayWhatIsWrong) {
  const std::string start = "[checkpoint] " + path_.string();
  write_file(path_ / "state.json", contents_[1].second.substr(1));
  EXPECT_EQ(load_message(),
            fmt::format("{}/state.json: byte {}: the manifest says {} bytes but the file has {}", start,
                        contents_[1].second.size() - 1, contents_[1].second.size(),
                        contents_[1].second.size() - 1));
  write_file(path_ / "state.json", contents_[1].second);

  std::string flipped = contents_[2].second;
  flipped.back() ^= 1;
  write_file(path_ / "model.safetensors", flipped);
  EXPECT_TRUE(load_message().starts_with(start + "/model.safetensors: the manifest says crc32 "))
      << load_message();
  std::filesystem::remove(path_ / "model.safetensors");
  EXPECT_EQ(load_message(),
            "[file] " + (path_ / "model.safetensors").string() + ": cannot open: No such file or directory");
  write_file(path_ / "manifest.txt", format_manifest({}));
  EXPECT_EQ(load_message(), start + "/manifest.txt: the manifest does not name state.json");
}

TEST(CheckpointManifest, RefusesEveryOtherText) {
  const auto message = [](const std::string& text) {
    return message_of<IoError>([&] { parse_manifest(text, "m"); });
  };
  const auto closed = [](const std::string& body) {
    return body + fmt::format("{:08x} end\n", extend_crc32(0, std::as_bytes(std::span(body))));
  };
  const std::string title = "sinter checkpoint 1\n";
  EXPECT_EQ(message(""), "[checkpoint] m: byte 0: expected the line \"sinter checkpoint 1\"");
  EXPECT_EQ(message("sinter checkpoint 2\n"),
            "[checkpoint] m: byte 0: expected the line \"sinter checkpoint 1\"");
  EXPECT_EQ(message(title), "[checkpoint] m: byte 20: the checksum of the manifest is wrong or missing");
  EXPECT_EQ(message(closed(title) + "\n"),
            "[checkpoint] m: byte 21: the checksum of the manifest is wrong or missing");
  EXPECT_EQ(parse_manifest(closed(title), "m").size(), 0u);
  for (const char* line :
       {"", "x", "00000000 1", "00000000 1 ", "00000000  a.safetensors", "0000000 1 a.safetensors",
        "00000000 -1 a.safetensors", "00000000 99999999999999999999 a.safetensors",
        "00000000 1 ../a.safetensors", "00000000 1 /a.safetensors", "00000000 1 .safetensors",
        "00000000 1 a.pickle", "0000000g 1 a.safetensors", "00000000 1 a.safetensors "}) {
    EXPECT_EQ(
        message(closed(title + line + "\n")),
        fmt::format("[checkpoint] m: byte 20: expected \"<crc32> <size> <file>\" but got \"{}\"", line));
  }
  const std::string line = "00000000 1 a.safetensors\n";
  EXPECT_EQ(
      message(closed(title + line + line)),
      "[checkpoint] m: byte 45: expected \"<crc32> <size> <file>\" but got \"00000000 1 a.safetensors\"");
}

TEST(CheckpointManifest, ManyLinesAreReadInTheirTimeAndTooManyAreRefused) {
  const auto text = [](size_t files) {
    std::vector<ManifestEntry> entries(files);
    for (size_t i = 0; i < files; ++i) entries[i].name = fmt::format("{}.safetensors", i);
    return format_manifest(entries);
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_manifest(text(200'000), "m").size(), 200'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // else it takes minutes
  const std::string message = message_of<IoError>([&] { parse_manifest(text(1'000'001), "m"); });
  EXPECT_TRUE(message.ends_with("there are more than 1000000 files")) << message;
}

TEST(CheckpointValues, TooManyAreRefused) {
  std::map<std::string, CheckpointValue> values;
  for (int i = 0; i < 1'000'001; ++i) values[fmt::format("{}", i)] = true;
  const std::string text = format_values(values),
                    message = message_of<IoError>([&] { parse_values(text, "s"); });
  EXPECT_TRUE(message.ends_with("there are more than 1000000 values")) << message;
}

TEST(CheckpointValues, RefusesEveryOtherText) {
  const auto message = [](const std::string& text) {
    return message_of<IoError>([&] { parse_values(text, "s"); });
  };
  EXPECT_EQ(message(""), "[checkpoint] s: byte 0: expected a JSON object in UTF-8");
  EXPECT_EQ(message("[]"), "[checkpoint] s: byte 0: expected a JSON object in UTF-8");
  EXPECT_EQ(message("{\"\xFF\":1}"), "[checkpoint] s: byte 2: expected a JSON object in UTF-8");
  EXPECT_EQ(message(std::string("{}\0", 3)), "[checkpoint] s: byte 2: expected a JSON object in UTF-8");
  EXPECT_EQ(message(R"({"a":"b\u0000"})"), "[checkpoint] s: byte 14: there is a zero byte in \"b\\x00\"");
  EXPECT_EQ(message(R"({"a\u0000":1})"), "[checkpoint] s: byte 10: there is a zero byte in \"a\\x00\"");
  EXPECT_EQ(message("{"), "[checkpoint] s: byte 1: the values are no valid JSON");
  EXPECT_EQ(message("{}{"), "[checkpoint] s: byte 3: the values are no valid JSON");
  EXPECT_EQ(message(R"({"a":1,"a":2})"), "[checkpoint] s: byte 10: the key \"a\" stands twice");
  EXPECT_EQ(message(R"({"a":null})"), "[checkpoint] s: byte 9: expected a value but got null");
  EXPECT_EQ(message(R"({"a":[1]})"), "[checkpoint] s: byte 6: expected a value but got an array");
  EXPECT_EQ(message(R"({"a":{}})"), "[checkpoint] s: byte 7: expected the key non-finite");
  EXPECT_EQ(message(R"({"a":{"x":"nan"}})"), "[checkpoint] s: byte 9: expected only the key non-finite");
  EXPECT_EQ(message(R"({"a":{"non-finite":1}})"), "[checkpoint] s: byte 21: expected an object of values");
  EXPECT_EQ(message(R"({"a":{"non-finite":"one"}})"),
            "[checkpoint] s: byte 24: expected nan, infinity or -infinity but got \"one\"");
  EXPECT_EQ(message(R"({"a":{"non-finite":"nan","non-finite":"nan"}})"),
            "[checkpoint] s: byte 37: expected only the key non-finite");
  EXPECT_EQ(message(R"({"a":{"non-finite":{}}})"),
            "[checkpoint] s: byte 20: the object is nested too deeply");
}

}  // namespace
}  // namespace sinter::nn
