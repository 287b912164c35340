// Text is as wide as what shows it: no word is cut, no line is too long.
#include "common/text.h"

#include <cstdlib>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

namespace sinter::examples {
namespace {

TEST(Text, IsWrappedBetweenWords) {
  EXPECT_EQ(wrap("one two three", 80, 2), "one two three");
  EXPECT_EQ(wrap("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrap("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrap("one two three", 6, 1), "one\n two\n three");
  EXPECT_EQ(wrap("one\ntwo three\n", 8, 2), "one\ntwo\n  three\n");
  EXPECT_EQ(wrap("", 8, 2), "");
  EXPECT_EQ(wrap("\n\n", 8, 2), "\n\n");
  EXPECT_EQ(wrap("  model    resnet20, f32", 18, 11), "  model\n           resnet20,\n           f32");
}

TEST(Text, KeepsAWordThatIsTooLong) {
  EXPECT_EQ(wrap("a/very/long/path and more", 8, 2), "a/very/long/path\n  and\n  more");
  EXPECT_EQ(wrap("see a/very/long/path", 8, 2), "see\n  a/very/long/path");
  EXPECT_EQ(wrap("  a/very/long/path", 8, 2), "  a/very/long/path");
}

TEST(Text, OneIsNotSeveral) {
  EXPECT_EQ(counted(1, "epoch"), "1 epoch");
  EXPECT_EQ(counted(2, "epoch"), "2 epochs");
  EXPECT_EQ(counted(size_t{0}, "epoch"), "0 epochs");
  EXPECT_EQ(counted(int64_t{3}, "test image"), "3 test images");
  EXPECT_EQ(counted(3, "class") + counted(3, "batch"), "3 classes3 batches");
  EXPECT_EQ(counted(3, "identity") + counted(3, "key"), "3 identities3 keys");
}

TEST(Text, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(quoted("runs/run-1,a"), "runs/run-1,a");
  EXPECT_EQ(quoted("a run"), "'a run'");
  EXPECT_EQ(quoted("it's"), R"('it'\''s')");
  EXPECT_EQ(quoted("$HOME"), "'$HOME'");
  EXPECT_EQ(quoted(""), "''");
}

TEST(Text, CountsLettersAndNotBytes) {
  EXPECT_EQ(width_of("\xc3\xa4\xc3\xb6\xc3\xbc"), 3u);
  EXPECT_EQ(wrap("\xc3\xa4\xc3\xb6 \xc3\xbc", 4, 0), "\xc3\xa4\xc3\xb6 \xc3\xbc");
}

TEST(Text, TakesAsManyDetailsAsFit) {
  EXPECT_EQ(fit("epoch 1", {"loss 2", "lr 3"}, 80), "epoch 1  loss 2  lr 3");
  EXPECT_EQ(fit("epoch 1", {"loss 2", "lr 3"}, 21), "epoch 1  loss 2  lr 3");
  EXPECT_EQ(fit("epoch 1", {"loss 2", "lr 3"}, 20), "epoch 1  loss 2");
  EXPECT_EQ(fit("epoch 1", {"a long detail", "b"}, 14), "epoch 1")
      << "a less important one does not come first";
  EXPECT_EQ(fit("epoch 1", {}, 3), "epoch 1");
}

TEST(Text, AsksTheTerminalThenColumnsAndElseTakesEighty) {
  const char* before = std::getenv("COLUMNS");
  const std::string kept = before == nullptr ? "" : before;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  unsetenv("COLUMNS");
  EXPECT_EQ(text_columns(file), 80u);
  EXPECT_EQ(terminal_columns(file), 0);
  for (const auto& [text, columns] :
       {std::pair("120", 120u), {"wide", 80u}, {"0", 80u}, {"3", 40u}, {"", 80u}}) {
    setenv("COLUMNS", text, 1);
    EXPECT_EQ(text_columns(file), columns) << text;
  }
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  winsize size{};
  size.ws_col = 100;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  std::FILE* stream = fdopen(terminal, "r+");
  setenv("COLUMNS", "60", 1);
  EXPECT_EQ(text_columns(stream), 100u);
  std::fclose(stream);
  std::fclose(file);
  before == nullptr ? unsetenv("COLUMNS") : setenv("COLUMNS", kept.c_str(), 1);
}

}  // namespace
}  // namespace sinter::examples
