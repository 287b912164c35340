// Names and messages that a terminal can show, and names that come back byte for byte.
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/text/printable.h>

namespace sinter {
namespace {

TEST(Printable, LeavesNothingThatDrivesATerminal) {
  EXPECT_EQ(printable("plain \xC3\xA9 \xF0\x9F\x98\x80\n\ttext \\x1b"),
            "plain \xC3\xA9 \xF0\x9F\x98\x80\n\ttext \\x1b");
  EXPECT_EQ(printable("\x1b[2J\a\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // the same as ESC [, to some
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xE2\x82"), "\\xe2\\x82");  // cut short
}

TEST(Printable, IsWhatTheLogWrites) {
  std::string written;
  log::set_sink([&](log::Level, std::string_view text) { written = text; });
  log::warning("{}: damaged", "\x1b]0;title\a.jpg");
  log::set_sink({});
  EXPECT_EQ(written, "\\x1b]0;title\\x07.jpg: damaged");
}

TEST(EscapeName, GivesOneLineOfUtf8) {
  EXPECT_EQ(escape_name("Jos\xC3\xA9/a b.jpg"), "Jos\xC3\xA9/a b.jpg");
  EXPECT_EQ(escape_name("caf\xe9\n\t\r\\\x1b"), "caf\\xe9\\n\\t\\r\\\\\\x1b");
}

TEST(EscapeName, IsUndoneByteForByte) {
  std::mt19937 random(7);
  const std::string_view likely = "\\nxtr019af\n\xe9\xC3\xA9\x1b";
  for (int i = 0; i < 2000; ++i) {
    std::string name;
    for (size_t length = random() % 12; length > 0; --length)
      name += random() % 4 == 0 ? static_cast<char>(random()) : likely[random() % likely.size()];
    const std::string escaped = escape_name(name);
    EXPECT_EQ(unescape_name(escaped), name);
    EXPECT_EQ(valid_utf8_prefix(escaped), escaped.size());
    EXPECT_EQ(escaped.find('\n'), std::string::npos);
    EXPECT_EQ(printable(escaped), escaped);
  }
}

TEST(EscapeName, ABackslashThatBeginsNothingStandsForItself) {
  EXPECT_EQ(unescape_name("\\q \\x1 \\xZZ \\x1B \\"), "\\q \\x1 \\xZZ \\x1B \\");
}

}  // namespace
}  // namespace sinter
