// What gives outputs their meaning: in and out of files, damaged ones too, and what differs in words.
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/predict/preprocessing.h>

#include "common/error_message.h"

namespace sinter::nn {
namespace {

using test::message_of;
using Classes = std::vector<std::string>;

ModelMetadata sample() {
  return {.task = "image-classification",
          .model = "resnet18",
          .options = {{"in_channels", "3"}, {"small_stem", "true"}},
          .classes = {"Käfer", "a \"quoted\" cat", "{3}"},
          .height = 224,
          .width = 160,
          .channels = 3,
          .resize = "shorter_side",
          .resize_size = 256,
          .mean = {0.1f, 0.2f, 0.3f},
          .std = {0.4f, 0.5f, 1.0f / 3},
          .train_images = 123456789012,
          .data_fingerprint = "0123456789abcdef"};
}

TEST(ModelMetadata, ComesBackFromJsonAndFromSafetensors) {
  EXPECT_EQ(parse_model_metadata(to_json(sample()), "file"), sample());
  std::map<std::string, std::string> texts = to_safetensors_metadata(sample());
  EXPECT_EQ(texts.at("model"), "resnet18");
  EXPECT_EQ(texts.at("height"), "224");
  EXPECT_EQ(texts.at("model_options"), R"({"in_channels":"3","small_stem":"true"})");
  texts["accuracy"] = "0.5";  // others may stand beside them
  std::vector<std::byte> file;
  serialize_safetensors({}, texts, [&](std::span<const std::byte> bytes) {
    file.insert(file.end(), bytes.begin(), bytes.end());
  });
  EXPECT_EQ(find_model_metadata(parse_safetensors(file, "file").metadata, "file"), sample());
}

// Files of earlier versions do not have it, and readers of earlier versions do not know it.
TEST(ModelMetadata, SaysHowPicturesAreResampledOnlyIfNotBilinearly) {
  EXPECT_EQ(to_json(sample()).find("interpolation"), std::string::npos);
  EXPECT_FALSE(to_safetensors_metadata(sample()).contains("interpolation"));
  ModelMetadata bicubic = sample();
  bicubic.interpolation = "bicubic";
  EXPECT_EQ(parse_model_metadata(to_json(bicubic), "file"), bicubic);
  std::map<std::string, std::string> texts = to_safetensors_metadata(bicubic);
  EXPECT_EQ(texts.at("interpolation"), "bicubic");
  EXPECT_EQ(find_model_metadata(texts, "file"), bicubic);
  EXPECT_EQ(resize_filter(bicubic), data::ResizeFilter::kBicubic);
  EXPECT_EQ(resize_filter(sample()), data::ResizeFilter::kBilinear);
  bicubic.interpolation = "nearest";
  EXPECT_EQ(message_of<InvalidArgument>([&] { resize_filter(bicubic); }),
            "[resize_filter] expected the interpolation \"bilinear\" or \"bicubic\" but got \"nearest\"");
  std::string number = to_json(sample());
  number.insert(number.find('{') + 1, "\"interpolation\": 3, ");
  EXPECT_EQ(message_of<IoError>([&] { parse_model_metadata(number, "file"); }),
            "[model_metadata] file: \"interpolation\" is missing or damaged");
}

TEST(ModelMetadata, IsNotThereInOtherFiles) {
  EXPECT_EQ(find_model_metadata({}, "file"), std::nullopt);
  EXPECT_EQ(find_model_metadata({{"format", "pt"}, {"model", "resnet18"}}, "file"), std::nullopt);
}

TEST(ModelMetadata, DamagedOnesAreRefused) {
  const auto refused = [](const std::string& text) {
    return message_of<IoError>([&] { parse_model_metadata(text, "file"); });
  };
  const std::string version = "[model_metadata] file: \"model_metadata_version\" is missing or damaged";
  EXPECT_EQ(refused(""), version);
  EXPECT_EQ(refused("[]"), version);
  EXPECT_EQ(refused(R"({"model_metadata_version":"1"})"), version);
  EXPECT_EQ(refused(std::string(100'000, '[')), version);
  EXPECT_EQ(refused(std::string(100'000, '[') + std::string(100'000, ']')), version);
  EXPECT_EQ(refused(R"({"model_metadata_version":2})"),
            "[model_metadata] file: expected metadata of version 1 but got 2");
  EXPECT_EQ(refused(R"({"model_metadata_version":1,"task":"x"})"),
            "[model_metadata] file: \"model\" is missing or damaged");

  std::map<std::string, std::string> texts = to_safetensors_metadata(sample());
  texts["mean"] = "[1e300]";
  EXPECT_EQ(message_of<IoError>([&] { find_model_metadata(texts, "file"); }),
            "[model_metadata] file: \"mean\" is missing or damaged");
  texts = to_safetensors_metadata(sample());
  for (const char* damaged : {"", "{", "{}", "[1]", "\"a\"", "[[[[[[[[[[\"a\"]]]]]]]]]]", "[\"a\""}) {
    texts["classes"] = damaged;
    EXPECT_EQ(message_of<IoError>([&] { find_model_metadata(texts, "file"); }),
              "[model_metadata] file: \"classes\" is missing or damaged")
        << damaged;
  }
}

TEST(ModelMetadata, TellsHowClassesDiffer) {
  const Classes abcd = {"a", "b", "c", "d"};
  EXPECT_EQ(describe_class_changes(abcd, abcd), "");
  EXPECT_EQ(describe_class_changes(abcd, {"a", "b", "d", "c"}),
            "class 2 was 'c', is 'd' now, class 3 was 'd', is 'c' now");
  EXPECT_EQ(describe_class_changes(abcd, {"b", "c", "d", "z"}),
            "class 0 was 'a', is 'b' now, class 1 was 'b', is 'c' now, class 2 was 'c', is 'd' now and 1 "
            "more; gone: 'a'; new: 'z'");
  EXPECT_EQ(describe_class_changes(abcd, {"a", "b", "e", "d"}), "class 2 was 'c', is 'e' now");
  EXPECT_EQ(describe_class_changes(abcd, {"a", "c", "d"}),
            "there were 4 classes, there are 3 now; gone: 'b'");
  EXPECT_EQ(describe_class_changes({"a", "b"}, {"a", "b", "c"}),
            "there were 2 classes, there are 3 now; new: 'c'");
  EXPECT_EQ(describe_class_changes({"a\x1b[2J"}, {std::string(100, 'x')}),
            "class 0 was 'a?[2J', is '" + std::string(60, 'x') + "...' now");
}

TEST(ModelMetadata, NumbersSayNothingOfNames) {
  const Classes numbers = {"0", "1", "2"};
  EXPECT_EQ(describe_class_changes({"cat", "cow", "dog"}, numbers), "");
  EXPECT_EQ(describe_class_changes(numbers, {"cat", "cow", "dog"}), "");
  EXPECT_EQ(describe_class_changes(numbers, {"cat", "dog"}), "there were 3 classes, there are 2 now");
  EXPECT_EQ(describe_class_changes(numbers, {"1", "2", "z"}),  // 0 was renamed
            "class 0 was '0', is '1' now, class 1 was '1', is '2' now, class 2 was '2', is 'z' now; "
            "gone: '0'; new: 'z'");
  EXPECT_EQ(describe_class_changes(numbers, {"0", "1"}), "there were 3 classes, there are 2 now; gone: '2'");
}

TEST(ModelMetadata, NamesThatAreNoUtf8AreSpelledOut) {
  EXPECT_EQ(to_utf8("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(to_utf8(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(to_utf8("café"), "café");
  ModelMetadata metadata = sample();
  metadata.classes[0] = "caf\xe9";
  EXPECT_EQ(message_of<InvalidArgument>([&] { to_json(metadata); }),
            "[model_metadata] expected texts in UTF-8; to_utf8() makes them that");
}

}  // namespace
}  // namespace sinter::nn
