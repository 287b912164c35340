// Lines of JSON with what a run has logged: written, read, cut, damaged.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/nn/log/scalars.h>

#include "common/error_message.h"
#include "common/failing_file_system.h"
#include "common/temporary_folder.h"

namespace sinter::nn {
namespace {

using sinter::test::message_of;
using sinter::testing::FailingFileSystem;
using sinter::testing::read_file;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Scalars, ALineComesBackBitForBit) {
  const ScalarRecord record{
      .step = 20, .time = 1763818194.25, .values = {{"train/loss", 0.1}, {"a \"b\"\\ é", 1.0 / 3}}};
  const std::string line = to_json_line(record);
  EXPECT_EQ(line.substr(0, 52), "{\"step\":20,\"time\":1763818194.25,\"train/loss\":0.1,\"a ");
  EXPECT_EQ(line.back(), '\n');
  const ScalarRecord back = parse_json_line(line.substr(0, line.size() - 1), "here");
  EXPECT_EQ(back.step, record.step);
  EXPECT_EQ(back.time, record.time);
  EXPECT_EQ(back.values, record.values);
}

TEST(Scalars, NumbersThatJsonHasNotAreTexts) {
  const std::string line = to_json_line(
      {.step = 1, .time = 2, .values = {{"a", std::nan("")}, {"b", kInfinity}, {"c", -kInfinity}}});
  EXPECT_EQ(line, "{\"step\":1,\"time\":2.0,\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\"}\n");
  const ScalarRecord back = parse_json_line(line, "here");
  EXPECT_TRUE(std::isnan(back.values[0].second));
  EXPECT_EQ(back.values[1].second, kInfinity);
  EXPECT_EQ(back.values[2].second, -kInfinity);
}

TEST(Scalars, RecordsThatCannotBeWrittenAreRefused) {
  const auto message = [](const std::string& tag, int64_t step = 0) {
    return message_of([&] { check_record({.step = step, .time = 0, .values = {{tag, 1.0}}}); });
  };
  EXPECT_EQ(message("train/loss"), "no error");
  EXPECT_EQ(message(std::string(1000, 'x')), "no error");
  EXPECT_NE(message("").find("[run_log] expected a tag of 1 to 1000 bytes"), std::string::npos);
  for (const std::string& tag :
       {std::string(1001, 'x'), std::string("\xff"), std::string("a\nb"), std::string("a\0b", 3)}) {
    EXPECT_NE(message(tag).find("expected a tag of 1 to 1000 bytes"), std::string::npos);
  }
  EXPECT_NE(message("step").find("is taken"), std::string::npos);
  EXPECT_NE(message("time").find("is taken"), std::string::npos);
  EXPECT_EQ(message("a", -1), "[run_log] expected a step >= 0 but got -1");
  EXPECT_NE(message_of([] { check_record({.step = 0, .time = 0, .values = {}}); }).find("got none"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              check_record({.step = 0, .time = 0, .values = {{"a", 1.0}, {"a", 2.0}}});
            }).find("twice"),
            std::string::npos);
}

std::string line_of(int64_t step) {
  return to_json_line({.step = step, .time = 1.5, .values = {{"a", static_cast<double>(step)}}});
}

TEST(Scalars, CuttingTakesLaterStepsAndATornEndOnly) {
  const TemporaryFolder folder;
  const auto path = folder / "scalars.jsonl";
  // Not in order, as several threads may log, and with spaces that the writer does not make.
  const std::string odd = "  {\"time\": 1, \"step\": 2, \"x\": 1e3 }\r\n";
  const std::string kept = line_of(1) + odd + line_of(3);
  write_file(path, line_of(1) + line_of(7) + odd + line_of(4) + line_of(3) + line_of(9).substr(0, 9));
  cut_scalars(path, 3);
  EXPECT_EQ(read_file(path), kept);
  EXPECT_EQ(read_scalars(path).size(), 3u);

  write_file(path, kept + "{\"step\":3,\"ti");
  EXPECT_EQ(read_scalars(path).size(), 3u) << "the torn line is passed over";
  cut_scalars(path, 3);
  EXPECT_EQ(read_file(path), kept);
  cut_scalars(path, 0);
  EXPECT_EQ(read_file(path), "");
  cut_scalars(path, 0);
  EXPECT_TRUE(read_scalars(path).empty());
}

TEST(Scalars, LongFilesAreCutToo) {
  const TemporaryFolder folder;
  const auto path = folder / "scalars.jsonl";
  std::string text, kept;
  for (int64_t step = 0; step < 10'000; ++step) {
    text += line_of(step);
    if (step <= 6789) kept += line_of(step);
  }
  write_file(path, text);
  cut_scalars(path, 6789);
  EXPECT_EQ(read_file(path), kept);
}

TEST(Scalars, AnotherKindOfFileIsAnErrorWithThePlaceAndStaysAsItWas) {
  const TemporaryFolder folder;
  const auto path = folder / "scalars.jsonl";
  const std::string name = "[scalars] " + path.string() + ": line 2: expected ";
  const std::pair<std::string, std::string> cases[] = {
      {"", "a JSON object"},
      {"hello", "a JSON object"},
      {"[1]", "a JSON object"},
      {"{\"step\":1,\"time\":1", "a JSON object"},
      {std::string(10, '\0'), "a JSON object"},
      {"{\"a\":\"\xff\"}", "a JSON object"},
      {std::string(100'000, '['), "a JSON object"},
      {"{\"step\":1,\"time\":1,\"a\":" + std::string(80'000, '[') + std::string(80'000, ']') + "}",
       "a JSON object"},
      {"{}", "a \"step\" that is a whole number >= 0"},
      {"{\"step\":-1,\"time\":1}", "a \"step\" that is a whole number >= 0"},
      {"{\"step\":1.5,\"time\":1}", "a \"step\" that is a whole number >= 0"},
      {"{\"step\":\"1\",\"time\":1}", "a \"step\" that is a whole number >= 0"},
      {"{\"step\":9223372036854775808,\"time\":1}", "a \"step\" that is a whole number >= 0"},
      {"{\"step\":1}", "a \"time\" that is a number"},
      {"{\"step\":1,\"time\":null}", "a \"time\" that is a number"},
      {"{\"step\":1,\"time\":1,\"a\":[1]}", "a number as the value of \"a\""},
      {"{\"step\":1,\"time\":1,\"a\":\"nan\"}", "a number as the value of \"a\""},
      {std::string(2'000'000, ' '), "at most 1048576 bytes but got more"}};
  for (const auto& [line, expected] : cases) {
    const std::string text = line_of(9) + line + "\n" + line_of(8);
    write_file(path, text);
    EXPECT_EQ(message_of<IoError>([&] { read_scalars(path); }), name + expected) << line.substr(0, 60);
    EXPECT_EQ(message_of<IoError>([&] { cut_scalars(path, 1); }), name + expected);
    EXPECT_EQ(read_file(path), text);
  }
  EXPECT_NE(message_of<IoError>([&] { read_scalars(folder / "none"); }).find("none: cannot open"),
            std::string::npos);
  EXPECT_NE(message_of<IoError>([&] { read_scalars(folder.path()); }).find("it is a folder"),
            std::string::npos);
}

TEST(Scalars, EveryByteOfALineMayBeDamaged) {
  const std::string line = line_of(1234);
  for (size_t i = 0; i < line.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = line;
      damaged[i] = static_cast<char>(value);
      try {
        parse_json_line(damaged, "here");
      } catch (const IoError&) {
      }
    }
  }
}

TEST(Scalars, ACutThatFailsChangesNothing) {
  for (int64_t call = 1;; ++call) {
    const TemporaryFolder folder;
    const auto path = folder / "scalars.jsonl";
    const std::string text = line_of(1) + line_of(5);
    write_file(path, text);
    FailingFileSystem files(FailingFileSystem::Failure::kGone, call);
    try {
      cut_scalars(path, 2, files);
      EXPECT_EQ(read_file(path), line_of(1));
    } catch (const IoError&) {
      const std::string left = read_file(path);
      EXPECT_TRUE(left == text || left == line_of(1)) << left;
    }
    EXPECT_EQ(files.open_files(), 0);
    if (!files.failed()) break;
    ASSERT_LT(call, 100);
  }
}

}  // namespace
}  // namespace sinter::nn
