// Files with very many parts: read in time, or refused with a bound on what they may cost.
#include <chrono>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/checkpoint_format.h>
#include <sinter/nn/checkpoint/safetensors_header.h>

#include "common/error_message.h"

namespace sinter::nn {
namespace {

using test::message_of;

TEST(SizeLimits, AManifestOfManyLinesIsReadInTime) {
  std::vector<ManifestEntry> entries;
  for (uint64_t i = 0; i < 300'000; ++i) entries.push_back({fmt::format("part_{}.safetensors", i), i, 7});
  const std::string text = format_manifest(entries);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_manifest(text, "manifest").size(), entries.size());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  entries.push_back(entries[1234]);
  EXPECT_NE(message_of<IoError>([&] {
              parse_manifest(format_manifest(entries), "manifest");
            }).find("but got \"00000007 1234 part_1234.safetensors\""),
            std::string::npos);
}

/// A header with `tensors` empty tensors and `keys` metadata keys.
std::string header_text(size_t tensors, size_t keys) {
  std::string text = "{";
  if (keys > 0) {
    text += "\"__metadata__\":{";
    for (size_t i = 0; i < keys; ++i) text += fmt::format("{}\"{}\":\"\"", i > 0 ? "," : "", i);
    text += '}';
  }
  for (size_t i = 0; i < tensors; ++i) {
    text += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                        text.size() > 1 ? "," : "", i);
  }
  return text + "}";
}

TEST(SizeLimits, AHeaderOfTooManyKeysIsRefused) {
  const auto error = [](const std::string& text) {
    return message_of<IoError>([&] { parse_safetensors_header(text, 0, "file"); });
  };
  const std::string expected = fmt::format("an object has more than {} keys", kSafetensorsMaxKeys);
  EXPECT_NE(error(header_text(0, kSafetensorsMaxKeys + 1)).find(expected), std::string::npos);
  EXPECT_NE(error(header_text(kSafetensorsMaxKeys + 1, 0)).find(expected), std::string::npos);
  EXPECT_NE(error(header_text(kSafetensorsMaxKeys, 1)).find(expected), std::string::npos);
  const SafetensorsHeader most =
      parse_safetensors_header(header_text(kSafetensorsMaxKeys - 1, kSafetensorsMaxKeys), 0, "file");
  EXPECT_EQ(most.entries.size(), kSafetensorsMaxKeys - 1);
  EXPECT_EQ(most.metadata.size(), kSafetensorsMaxKeys);
}

TEST(SizeLimits, NothingIsWrittenThatCannotBeRead) {
  SafetensorsHeader header;
  for (size_t i = 0; i < kSafetensorsMaxKeys - 1; ++i) {
    header.entries.push_back({std::to_string(i), DType::kUInt8, Shape{0}, 0, 0});
  }
  const std::string text = format_safetensors_header(header);
  EXPECT_EQ(parse_safetensors_header(text, 0, "file").entries.size(), header.entries.size());
  header.entries.push_back({"one_more", DType::kUInt8, Shape{0}, 0, 0});
  EXPECT_EQ(message_of([&] { format_safetensors_header(header); }),
            "[safetensors] expected fewer than 262144 tensors and metadata keys but got 262144 and 0");
}

}  // namespace
}  // namespace sinter::nn
