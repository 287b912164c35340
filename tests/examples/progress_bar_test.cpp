// The progress bar on terminals of several widths, and where there is none.
#include "common/progress_bar.h"

#include <vector>

#include <gtest/gtest.h>

namespace sinter::examples {
namespace {

// A terminal whose width and clock the test sets.
struct FakeTerminal {
  int columns = 0;
  ProgressBar::Clock::time_point time{};
  std::vector<std::string> written;

  ProgressBar::Output output() {
    return {.write = [this](const std::string& text) { written.push_back(text); },
            .width = [this] { return columns; },
            .now = [this] { return time; }};
  }
  void pass(double seconds) {
    time += std::chrono::duration_cast<ProgressBar::Clock::duration>(std::chrono::duration<double>(seconds));
  }
};

const Progress kHalf = {.step = 5, .items = 640, .loss = 1.23456, .learning_rate = 0.1};

TEST(ProgressBar, FillsTheTerminal) {
  FakeTerminal terminal{.columns = 80, .time = {}, .written = {}};
  ProgressBar bar("epoch 3/30", 10, terminal.output());
  terminal.pass(2);
  bar.update(kHalf);
  ASSERT_EQ(terminal.written.size(), 1u);
  EXPECT_EQ(terminal.written[0],
            "\repoch 3/30 [=========>        ]   50%  loss 1.2346  lr 0.1  320 img/s  ETA 0:02\x1b[K");
}

TEST(ProgressBar, LeavesOutWhatOnlyTrainingHas) {
  FakeTerminal terminal{.columns = 80, .time = {}, .written = {}};
  ProgressBar bar("packing", 10, terminal.output());
  terminal.pass(2);
  bar.update({.step = 5, .items = 640, .training = false});
  ASSERT_EQ(terminal.written.size(), 1u);
  EXPECT_TRUE(terminal.written[0].ends_with("]   50%  320 img/s  ETA 0:02\x1b[K")) << terminal.written[0];
}

TEST(ProgressBar, NeverWraps) {
  for (int columns = 2; columns < 200; ++columns) {
    FakeTerminal terminal{.columns = columns, .time = {}, .written = {}};
    ProgressBar bar("epoch 3/30", 10, terminal.output());
    terminal.pass(2);
    bar.update(kHalf);
    ASSERT_EQ(terminal.written.size(), 1u);
    const std::string text = terminal.written[0].substr(1, terminal.written[0].size() - 4);
    EXPECT_LT(text.size(), static_cast<size_t>(columns));
    EXPECT_EQ(text.find("50%") != std::string::npos, columns >= 17) << text;
    EXPECT_EQ(text.find("ETA 0:02") != std::string::npos, columns >= 70) << text;
  }
}

TEST(ProgressBar, RedrawsTenTimesASecondAndLeavesAnEmptyLine) {
  FakeTerminal terminal{.columns = 80, .time = {}, .written = {}};
  {
    ProgressBar bar("epoch", 1000, terminal.output());
    for (int step = 1; step <= 999; ++step) {
      terminal.pass(0.01);
      const size_t before = terminal.written.size();
      const bool due = bar.due();
      bar.update({.step = step, .items = step, .loss = 1, .learning_rate = 1});
      EXPECT_EQ(terminal.written.size() - before, due ? 1u : 0u);
    }
    EXPECT_GE(terminal.written.size(), 80u);
    EXPECT_LE(terminal.written.size(), 100u);
  }
  EXPECT_EQ(terminal.written.back(), "\r\x1b[K");
}

TEST(ProgressBar, PrintsSparseLinesElsewhere) {
  FakeTerminal terminal;
  {
    ProgressBar bar("epoch 1/2", 1000, terminal.output());
    for (int step = 1; step <= 1000; ++step) {
      terminal.pass(0.05);
      const size_t before = terminal.written.size();
      const bool due = bar.due();
      bar.update({.step = step, .items = 8 * step, .loss = 0.5, .learning_rate = 0.001});
      EXPECT_EQ(terminal.written.size() - before, due ? 1u : 0u);
    }
  }
  // None at the end, where the caller's own line comes.
  ASSERT_EQ(terminal.written.size(), 9u);
  EXPECT_EQ(terminal.written[0], "epoch 1/2   10%  loss 0.5000  lr 0.001  160 img/s  ETA 0:45\n");
  EXPECT_EQ(terminal.written[8], "epoch 1/2   90%  loss 0.5000  lr 0.001  160 img/s  ETA 0:05\n");
}

TEST(ProgressBar, SaysNothingElsewhereOfWhatIsOverInSeconds) {
  FakeTerminal terminal;
  {
    ProgressBar bar("epoch 1/2", 44, terminal.output());
    for (int step = 1; step <= 44; ++step) {
      terminal.pass(0.12);
      bar.update({.step = step, .items = 8 * step, .loss = 0.5, .learning_rate = 0.001});
    }
  }
  EXPECT_LE(terminal.written.size(), 1u);
  for (const std::string& line : terminal.written) EXPECT_EQ(line.find("100%"), std::string::npos) << line;
}

TEST(ProgressBar, WritesDurations) {
  EXPECT_EQ(format_duration(0.4), "0:00");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(51 * 3600), "2d 03h");
  EXPECT_EQ(format_duration(-1), "--:--");
}

}  // namespace
}  // namespace sinter::examples
