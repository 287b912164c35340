// JSON of files: what is nested too deeply is refused before anything looks at it.
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

std::string nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') + std::string(static_cast<size_t>(levels), ']');
}

TEST(Json, ReadsValues) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": [true, null, "x"]})").dump(), R"({"b":1,"a":[true,null,"x"]})");
  EXPECT_EQ(parse_json(nested(kMostJsonLevels)).dump(), nested(kMostJsonLevels));
}

TEST(Json, RefusesWhatIsNestedTooDeeply) {
  const std::string expected = fmt::format("nested deeper than {} levels", kMostJsonLevels);
  EXPECT_EQ(message_of<IoError>([] { parse_json(nested(kMostJsonLevels + 1)); }), expected);
  EXPECT_EQ(message_of<IoError>([] { parse_json(nested(80'000)); }), expected);
  EXPECT_EQ(message_of<IoError>([] { parse_json(std::string(10'000'000, '[')); }), expected);
  std::string objects;
  for (int i = 0; i < 80'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(message_of<IoError>([&] { parse_json(objects); }), expected);
}

TEST(Json, SaysWhereOtherTextGoesWrong) {
  for (const char* text : {"", "{", "{\"a\":1,}", "\xff", "{\"a\":\"\xe9\"}", "1 2", "nan"}) {
    EXPECT_TRUE(message_of<IoError>([&] { parse_json(text); }).starts_with("parse error at line 1, column "))
        << text;
  }
}

TEST(Json, LetsOthersWatch) {
  int keys = 0;
  parse_json(R"({"a": {"b": 1}, "a": 2})",
             [&](int, nlohmann::ordered_json::parse_event_t event, nlohmann::ordered_json&) {
               keys += event == nlohmann::ordered_json::parse_event_t::key ? 1 : 0;
               return true;
             });
  EXPECT_EQ(keys, 3);
}

}  // namespace
}  // namespace sinter
