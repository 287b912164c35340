// Metadata in files of weights that are written for PyTorch, and such records of hostile files.
#include <map>
#include <optional>
#include <regex>
#include <string>

#include <common/error_message.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/pytorch_samples.h>

#include <sinter/nn/checkpoint/weights_file.h>

namespace sinter::nn {
namespace {

using namespace sinter::testing;

std::string serialize(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {}) {
  std::string file;
  serialize_pytorch(tensors, metadata, [&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return file;
}

/// What is said of a file that is refused, without its path, and N for the bytes.
std::string refusal_of(const std::string& file) {
  const std::string message = message_of<IoError>([&] { testing::parse_pytorch(file); });
  const std::string start = "[pytorch] x.pth: ";
  return std::regex_replace(message.substr(message.starts_with(start) ? start.size() : 0),
                            std::regex("byte [0-9]+"), "byte N");
}

TEST(PytorchMetadata, ComeBack) {
  const NamedTensors tensors = {{"w", random_tensor({3, 5}, DType::kFloat32, 1)}};
  const std::map<std::string, std::string> metadata = {{"", "empty"},
                                                       {"classes", R"(["cat","d\u00f6g"])"},
                                                       {"mean", "[0.5]"},
                                                       {"\xc3\xa9", "two\nlines \\ \"\x7f"}};
  const std::string file = serialize(tensors, metadata);
  EXPECT_EQ(testing::parse_pytorch(file).metadata, metadata);
  expect_same(testing::parse_pytorch(file).tensors, tensors);
  EXPECT_EQ(file, serialize(tensors, metadata));
  EXPECT_TRUE(testing::parse_pytorch(serialize(tensors)).metadata.empty());

  const TemporaryFolder folder;
  write_pytorch(folder / "a.pth", tensors, metadata);
  EXPECT_EQ(read_weights(folder / "a.pth").metadata, metadata);
  const auto refusal = [&](const std::map<std::string, std::string>& texts) {
    return message_of<InvalidArgument>([&] { write_pytorch(folder / "b.pth", tensors, texts); });
  };
  EXPECT_EQ(refusal({{"a", "\xff"}}),
            R"([pytorch] expected UTF-8 texts without zero bytes as metadata but got "\xff" of "a")");
  EXPECT_EQ(refusal({{"a", std::string(100'000'000, 'x')}}),
            "[pytorch] expected at most 100000000 bytes of metadata but got 100000008");
  EXPECT_FALSE(std::filesystem::exists(folder / "b.pth"));
}

TEST(PytorchMetadata, OfOtherFormsAreRefused) {
  const auto file_of = [](const std::string& json, std::optional<uint32_t> crc = std::nullopt) {
    std::vector<ZipRecord> records = records_of(pickle_of("}"));
    records.push_back({.name = "a/extra/metadata.json", .bytes = json, .crc = crc});
    return make_zip(records);
  };
  EXPECT_EQ(testing::parse_pytorch(file_of(R"({"a": "b\u0000", "c": ""})")).metadata,
            (std::map<std::string, std::string>{{"a", std::string("b\0", 2)}, {"c", ""}}));
  EXPECT_TRUE(testing::parse_pytorch(file_of("{}")).metadata.empty());
  const auto with = [&](const std::string& json) { return refusal_of(file_of(json)); };
  for (const char* const json :
       {"", "{", "{\"a\"}", R"({"a":"b"} x)", R"({"a":"b",})", "{\"a\":\"\xff\"}", "x"})
    EXPECT_EQ(with(json), "record extra/metadata.json: byte N: this is no valid JSON") << json;
  for (const char* const json : {"1", "[]", "\"a\"", "null", "true"})
    EXPECT_EQ(with(json), "record extra/metadata.json: byte N: expected an object") << json;
  for (const char* const json :
       {R"({"a":1})", R"({"a":-1})", R"({"a":1.5})", R"({"a":null})", R"({"a":[[)", R"({"a":{)"})
    EXPECT_EQ(with(json), "record extra/metadata.json: byte N: expected a text") << json;
  EXPECT_EQ(with(R"({"a":"","a":""})"), "record extra/metadata.json: byte N: a name stands there twice");
  std::string many = "{";
  for (int i = 0; i <= 1 << 18; ++i) many += fmt::format("{}\"{}\":\"\"", i == 0 ? "" : ",", i);
  EXPECT_EQ(with(many + "}"), "record extra/metadata.json: byte N: expected at most 2^18 names");
  EXPECT_EQ(with(std::string(100'000'001, ' ')),
            "byte N: expected at most 100000000 bytes of metadata but got 100000001");
  EXPECT_EQ(refusal_of(file_of("{}", 1)).substr(0, 57),
            "byte N: expected the checksum 00000001 of 2 bytes but got");
}

}  // namespace
}  // namespace sinter::nn
