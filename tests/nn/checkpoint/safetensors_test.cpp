// Safetensors files that must be read and written. The hostile ones are in hostile_safetensors_test.cpp.
#include <cstring>
#include <string>
#include <vector>

#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/safetensors_samples.h>
#include <sys/stat.h>

#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/checkpoint/safetensors_header.h>

namespace sinter::nn {
namespace {

using sinter::testing::expect_same;
using sinter::testing::file_of;
using sinter::testing::message_of;
using sinter::testing::parse;
using sinter::testing::random_tensor;
using sinter::testing::read_file;
using sinter::testing::serialize;
using sinter::testing::TemporaryFolder;

/// Tensors of every dtype with ranks 0 to 8, extents of 0 and 1 and odd ones, and names that JSON must
/// escape.
NamedTensors all_kinds() {
  NamedTensors tensors;
  uint64_t seed = 0;
  for (const DType dtype : kAllDTypes) {
    const std::string name(to_string(dtype));
    tensors[name + ".scalar"] = random_tensor({}, dtype, ++seed);
    tensors[name + ".empty"] = random_tensor({3, 0, 5}, dtype, ++seed);
    tensors[name + ".odd"] = random_tensor({3, 1, 7}, dtype, ++seed);
    tensors[name + ".deep"] = random_tensor({1, 2, 1, 3, 1, 2, 1, 3}, dtype, ++seed);
  }
  tensors["quote \" backslash \\ tab \t"] = random_tensor({2}, DType::kFloat32, ++seed);
  tensors["größe.重み"] = random_tensor({2}, DType::kFloat32, ++seed);
  tensors[""] = random_tensor({2}, DType::kFloat32, ++seed);
  return tensors;
}

TEST(Safetensors, KeepsEveryDtypeBitForBit) {
  const TemporaryFolder folder;
  const NamedTensors tensors = all_kinds();
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "\"\\\n\u00e9"}, {"", ""}};
  write_safetensors(folder / "a.safetensors", tensors, metadata);
  const Safetensors read = read_safetensors(folder / "a.safetensors");
  expect_same(read.tensors, tensors);
  EXPECT_EQ(read.metadata, metadata);
  EXPECT_EQ(read_file(folder / "a.safetensors"), serialize(tensors, metadata));
  expect_same(parse(serialize(tensors)).tensors, tensors);
}

TEST(Safetensors, NamesWhatThereIsIfSomethingIsMissing) {
  const Safetensors file{{{"fc.bias", Tensor::full({2}, 3.0)}}, {{"epoch", "7"}, {"format", "pt"}}};
  EXPECT_EQ(file.tensor("fc.bias").to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(file.metadata_of("epoch"), "7");
  EXPECT_EQ(message_of([&] { file.tensor("fc.weight"); }),
            R"([safetensors] there is no tensor "fc.weight"; there is "fc.bias")");
  EXPECT_EQ(message_of([&] { file.metadata_of("step"); }),
            R"([safetensors] there is no metadata "step"; there are "epoch", "format")");
  EXPECT_EQ(message_of([] { Safetensors().metadata_of("step"); }),
            R"([safetensors] there is no metadata "step"; there are none)");
}

TEST(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
  const NamedTensors tensors = {{"b", Tensor::from_values<float>(std::vector<float>{1, 2}, {2})},
                                {"a", Tensor::from_values<uint8_t>(std::vector<uint8_t>{7}, {1})}};
  const std::string header =
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  const std::string spaces((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(serialize(tensors), file_of(header + spaces, std::string("\0\0\x80\x3f\0\0\0\x40\x07", 9)));
  EXPECT_EQ(serialize({}), file_of("{}      ", ""));
}

TEST(Safetensors, WritesAlignedElements) {
  const std::string file = serialize(all_kinds());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const SafetensorsHeader header = parse_safetensors_header(std::string_view(file).substr(8, length),
                                                            file.size() - 8 - length, "x.safetensors");
  for (const SafetensorsEntry& entry : header.entries)
    EXPECT_EQ(entry.begin % size_of(entry.dtype), 0u) << entry.name;
}

TEST(Safetensors, ReadsUnalignedTensorsInAnyOrder) {
  const std::string data("\x05\0\0\x80\x3f\0\0\0\x40\x01", 10);
  const Safetensors read =
      parse(file_of(R"({"flag":{"data_offsets":[9,10],"dtype":"BOOL","shape":[]},"empty":{"dtype":"F64",
      "shape":[0],"data_offsets":[1,1]},"w":{"shape":[2],"dtype":"F32","data_offsets":[1,9]},
      "u":{"dtype":"U8","shape":[1,1],"data_offsets":[0,1]}}   )",
                    data));
  EXPECT_EQ(read.tensors.at("u").to_vector<uint8_t>(), std::vector<uint8_t>{5});
  EXPECT_EQ(read.tensors.at("w").to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(read.tensors.at("empty").shape(), Shape({0}));
  EXPECT_TRUE(*read.tensors.at("flag").data<bool>());
  EXPECT_TRUE(parse(file_of("{}", "")).tensors.empty());
}

TEST(Safetensors, IgnoresUnknownFieldsOfAnEntry) {
  const std::string header =
      R"({"a":{"dtype":"U8","new":{"x":[1,null,true,-2,0.5,"s"]},"shape":[1],"data_offsets":[0,1]}})";
  EXPECT_EQ(parse(file_of(header, "\x09")).tensors.at("a").item(), 9);
}

TEST(Safetensors, AreWrittenToRegularFilesOnly) {
  const TemporaryFolder folder;
  const NamedTensors tensors = {{"w", Tensor::full({2}, 1.0)}};
  EXPECT_EQ(message_of<IoError>([&] { write_safetensors(folder.path(), tensors); }),
            fmt::format("[file] {}: expected a regular file or a new name but it is a folder",
                        folder.path().string()));
  const std::filesystem::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(message_of<IoError>([&] { write_safetensors(pipe, tensors); }),
            fmt::format("[file] {}: expected a regular file or a new name but it is a device or a pipe",
                        pipe.string()));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  // A link stays one, and leads to the new file.
  std::filesystem::create_directory(folder / "deep");
  std::filesystem::create_symlink("deep/w.safetensors", folder / "link");
  for (const double value : {1.0, 2.0}) {
    write_safetensors(folder / "link", {{"w", Tensor::full({2}, value)}});
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
    EXPECT_EQ(read_safetensors(folder / "deep/w.safetensors").tensors.at("w").to_vector<float>()[1],
              static_cast<float>(value));
  }
}

}  // namespace
}  // namespace sinter::nn
