// What trainers say while kernels are timed.
#include "trainer/timing_notice.h"

#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/timing/choose_plan.h>

namespace sinter::examples {
namespace {

using namespace std::chrono_literals;

struct OneCandidate final : PlanCandidates {
  size_t count() const override { return 1; }
  std::string name(size_t) const override { return "only"; }
  bool build(size_t) override { return true; }
  bool prepare_timing() override { return true; }
  std::optional<double> time(size_t, TimeBudget&) override { return 1.0; }
};

void choose() {
  PlanCache cache(std::nullopt, "test");
  OneCandidate candidates;
  choose_plan(cache, "p", candidates, Timing::kNow, 1);
}

TEST(TimingNotice, SpeaksAfterTwoSecondsAndThenEveryFive) {
  std::vector<std::string> lines;
  TimingNotice::Clock::time_point time{};
  {
    const TimingNotice notice([&](const std::string& line) { lines.push_back(line); }, [&] { return time; });
    const auto choose_after = [&](TimingNotice::Clock::duration pause) {
      time += pause;
      choose();
      return lines.size();
    };
    EXPECT_EQ(choose_after(1h), 0u) << "the clock begins with the first";
    EXPECT_EQ(choose_after(1s), 0u);
    EXPECT_EQ(choose_after(1s), 1u);
    EXPECT_EQ(lines.back(), "timing kernels for new shapes, once: 3 chosen in 2 s\n");
    EXPECT_EQ(choose_after(4s), 1u);
    EXPECT_EQ(choose_after(1s), 2u);
    EXPECT_EQ(lines.back(), "timing kernels for new shapes, once: 5 chosen in 7 s\n");
    EXPECT_EQ(choose_after(11s), 2u) << "others, much later";
    EXPECT_EQ(choose_after(1s), 2u);
  }
  choose();
  EXPECT_EQ(lines.size(), 2u) << "nobody listens";
}

}  // namespace
}  // namespace sinter::examples
