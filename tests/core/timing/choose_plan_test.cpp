// How one of several candidates is chosen by its time: how often each runs, and when the choice ends.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/timing/choose_plan.h>

namespace sinter {
namespace {

/// Plans that exist on paper: what they are called, whether they can be built, how long they take.
class FakeCandidates final : public PlanCandidates {
 public:
  static constexpr double kNoRoom = -1;  // as a time: there is no room to take it
  struct Plan {
    std::string name;
    bool builds = true;
    std::optional<double> time;
    int failures = 0;  // of the first times that it runs
  };

  explicit FakeCandidates(std::vector<Plan> plans, bool can_time = true)
      : plans_(std::move(plans)), can_time_(can_time) {}

  size_t count() const override { return plans_.size(); }
  std::string name(size_t i) const override { return plans_[i].name; }
  bool build(size_t i) override {
    for (const size_t before : built) EXPECT_NE(before, i) << "built twice";
    built.push_back(i);
    return plans_[i].builds;
  }
  size_t favourites() const override { return favoured; }
  bool prepare_timing() override {
    ++preparations;
    return can_time_;
  }
  std::optional<double> time(size_t i, TimeBudget& budget) override {
    EXPECT_EQ(preparations, 1);
    timed.push_back(i);
    if (plans_[i].time == kNoRoom) throw OutOfMemory("[fake] no room");
    if (std::count(timed.begin(), timed.end(), i) <= plans_[i].failures) return std::nullopt;
    if (!plans_[i].time) return std::nullopt;
    return budget.measure([&] {
      ++runs;
      seconds += *plans_[i].time / 1e6;
      return RunTime{*plans_[i].time};
    });
  }

  std::vector<size_t> built, timed;
  size_t favoured = 4;
  int preparations = 0, runs = 0;
  double seconds = 0;  // of a clock that stands still between runs

 private:
  std::vector<Plan> plans_;
  bool can_time_;
};

const std::vector<FakeCandidates::Plan> kPlans = {{"refused", false, 1.0},
                                                  {"slow", true, 30.0},
                                                  {"broken", true, {}},
                                                  {"fast", true, 10.0},
                                                  {"middling", true, 20.0}};

using Indices = std::vector<size_t>;

PlanChoice settled(std::optional<size_t> plan) {
  return {.plan = plan, .settled = true};
}
PlanChoice for_now(std::optional<size_t> plan) {
  return {.plan = plan, .settled = false};
}

TEST(ChoosePlan, TakesTheFastestAndRemembersIt) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates(kPlans);
  EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 10), settled(3));
  EXPECT_EQ(candidates.timed, Indices({1, 2, 3, 4, 2}));
  EXPECT_EQ(cache.find("p"), (TunedPlan{"fast", 10.0, {{"slow", 30.0}, {"middling", 20.0}}}));

  FakeCandidates again(kPlans);
  EXPECT_EQ(choose_plan(cache, "p", again, Timing::kNow, 10), settled(3));
  EXPECT_EQ(again.built, Indices({3}));
  EXPECT_TRUE(again.timed.empty());
  EXPECT_EQ(again.preparations, 0) << "memory is not taken for nothing";
}

TEST(ChoosePlan, TheFirstStaysWithinTheMargin) {
  for (const auto& [second, chosen] : {std::pair(96.1, 0u), {95.9, 1u}}) {
    PlanCache cache(std::nullopt, "gpu");
    FakeCandidates candidates({{"first", true, 100.0}, {"second", true, second}, {"third", true, 96.05}});
    EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 10, 0.04), settled(chosen)) << second;
    EXPECT_EQ(cache.find("p")->microseconds, chosen == 0 ? 100.0 : second) << "as it was measured";
  }
}

TEST(ChoosePlan, BuildsWhatIsKnownAndNothingElse) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates unknown(kPlans);
  EXPECT_EQ(build_known_plan(cache, "p", unknown), std::nullopt);
  for (const char* gone : {"not listed any more", "refused"}) {
    cache.store("p", {gone, 1.0});
    FakeCandidates candidates(kPlans);
    EXPECT_EQ(build_known_plan(cache, "p", candidates), std::nullopt) << gone;
  }
  cache.store("p", {"middling", 20.0});
  FakeCandidates candidates(kPlans);
  EXPECT_EQ(build_known_plan(cache, "p", candidates), 4u);
  EXPECT_EQ(candidates.built, Indices({4}));
  EXPECT_TRUE(candidates.timed.empty());
}

TEST(ChoosePlan, MeasuresNoMoreThanAsked) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates(kPlans);
  EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 2), settled(1));
  EXPECT_EQ(candidates.timed, Indices({1, 2, 2})) << "a plan that cannot be built does not count";
}

TEST(ChoosePlan, WithoutMeasuringTakesTheFirstThatBuildsAndForgetsIt) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates(kPlans);
  EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNever, 10), settled(1));
  EXPECT_TRUE(candidates.timed.empty());
  EXPECT_EQ(cache.find("p"), std::nullopt);
}

TEST(ChoosePlan, WhereTimingIsImpossibleNowTheChoiceIsForNow) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates captured(kPlans);
  EXPECT_EQ(choose_plan(cache, "p", captured, Timing::kNotNow, 10), for_now(1));
  EXPECT_EQ(captured.preparations, 0);
  FakeCandidates untimeable(kPlans, false);
  EXPECT_EQ(choose_plan(cache, "p", untimeable, Timing::kNow, 10), for_now(1));
  EXPECT_TRUE(untimeable.timed.empty());
  EXPECT_EQ(cache.find("p"), std::nullopt);
}

TEST(ChoosePlan, WithoutMeasuringTakesWhatTheCacheKnows) {
  for (const Timing timing : {Timing::kNever, Timing::kNotNow}) {
    PlanCache cache(std::nullopt, "gpu");
    cache.store("p", {"middling", 20.0});
    FakeCandidates candidates(kPlans);
    EXPECT_EQ(choose_plan(cache, "p", candidates, timing, 10), settled(4));
  }
}

TEST(ChoosePlan, MeasuresAnewWhenTheRememberedPlanIsGone) {
  for (const char* gone : {"not listed any more", "refused"}) {
    PlanCache cache(std::nullopt, "gpu");
    cache.store("p", {gone, 1.0});
    FakeCandidates candidates(kPlans);
    EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 10), settled(3));
    EXPECT_EQ(cache.find("p")->name, "fast");
  }
}

TEST(ChoosePlan, PassesOverPlansForWhichMemoryIsShort) {
  const double too_much = FakeCandidates::kNoRoom;
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates({{"huge", true, too_much}, {"slow", true, 30.0}, {"fast", true, 10.0}});
  EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 2), for_now(2))
      << "a plan that was not timed does not count";
  EXPECT_EQ(cache.find("p"), std::nullopt) << "with more memory another may win";

  FakeCandidates huge({{"refused", false, too_much}, {"huge", true, too_much}, {"as huge", true, too_much}});
  EXPECT_EQ(choose_plan(cache, "p", huge, Timing::kNow, 10), for_now(1));
  EXPECT_EQ(cache.find("p"), std::nullopt);
}

TEST(ChoosePlan, APlanThatFailedOnceMayStillWin) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates({{"fast", true, 10.0, 1}, {"slow", true, 30.0}});
  EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 10), settled(0));
  EXPECT_EQ(candidates.timed, Indices({0, 1, 0}));
  EXPECT_EQ(cache.find("p"), (TunedPlan{"fast", 10.0, {{"slow", 30.0}}}));

  PlanCache other(std::nullopt, "gpu");
  FakeCandidates broken({{"fast", true, 10.0, 2}, {"slow", true, 30.0}});
  EXPECT_EQ(choose_plan(other, "p", broken, Timing::kNow, 10), settled(1)) << "twice is no accident";
}

TEST(ChoosePlan, FindsNothingWhereNothingWorks) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates none({});
  EXPECT_EQ(choose_plan(cache, "p", none, Timing::kNow, 10), for_now(std::nullopt));
  FakeCandidates refused({{"a", false, {}}, {"b", false, {}}});
  EXPECT_EQ(choose_plan(cache, "p", refused, Timing::kNow, 10), for_now(std::nullopt));
  FakeCandidates broken({{"a", true, {}}});
  EXPECT_EQ(choose_plan(cache, "p", broken, Timing::kNow, 10), for_now(std::nullopt));
  EXPECT_EQ(cache.find("p"), std::nullopt);
}

// Whether a choice has an end, however long its candidates take. The numbers are those of ResNet-18 at 224
// pixels and batches of 13,920 on an H200.

/// Candidates of a library whose heuristics are good: the best is among the first, the last are far behind.
FakeCandidates candidates_of(double best, size_t count, double worst = 1.5) {
  std::vector<FakeCandidates::Plan> plans;
  for (size_t i = 0; i < count; ++i) {
    const double further = static_cast<double>(i) / static_cast<double>(count - 1);
    plans.push_back({fmt::format("plan {}", i), true, best * (1 + (worst - 1) * further)});
  }
  if (count > 1) std::swap(plans[0], plans[1]);
  return FakeCandidates(std::move(plans));
}

TEST(ChoosePlan, ThatTakesMicrosecondsRunsAllAsOftenAsEver) {
  for (const double best : {5.0, 50.0, 300.0, 1000.0}) {
    PlanCache cache(std::nullopt, "gpu");
    FakeCandidates candidates = candidates_of(best, 16, 1.5);
    EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 16), settled(1));
    EXPECT_EQ(candidates.timed.size(), 16u) << best;
    EXPECT_EQ(candidates.runs, 16 * 6) << best;
  }
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates forms = candidates_of(200, 96, 9);  // of a first layer; at a batch of 512
  choose_plan(cache, "p", forms, Timing::kNow, 96);
  EXPECT_EQ(forms.timed.size(), 96u);
}

TEST(ChoosePlan, EndsSoonHoweverLongARunTakes) {
  for (const double best : {3e3, 1e4, 3e4, 1e5, 1e6}) {
    for (const double worst : {1.5, 20.0}) {
      PlanCache cache(std::nullopt, "gpu");
      FakeCandidates candidates = candidates_of(best, 16, worst);
      EXPECT_EQ(choose_plan(cache, "p", candidates, Timing::kNow, 16), settled(1));
      EXPECT_GE(candidates.timed.size(), 4u) << best;
      // The budget, and the last of those that began in it; or the favourites, each once.
      const double last = best * worst, favourites = 4 * best * (1 + 0.2 * (worst - 1));
      EXPECT_LE(candidates.seconds * 1e6, std::max(3e5 + last, favourites) + 4e4) << best << " to " << worst;
    }
  }
}

TEST(ChoosePlan, OfMillisecondsKnowsMostCandidates) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates = candidates_of(1e4, 16, 1.5);
  choose_plan(cache, "p", candidates, Timing::kNow, 16);
  EXPECT_EQ(candidates.timed.size(), 16u);
  EXPECT_EQ(candidates.runs, 16) << "10 ms need no repetition";
}

TEST(ChoosePlan, TimesAllFavouritesHoweverLongTheyTake) {
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates candidates = candidates_of(1e6, 16);
  candidates.favoured = 6;
  choose_plan(cache, "p", candidates, Timing::kNow, 16);
  EXPECT_EQ(candidates.timed.size(), 6u);

  FakeCandidates few = candidates_of(1e6, 16);
  choose_plan(cache, "q", few, Timing::kNow, 2);
  EXPECT_EQ(few.timed.size(), 2u) << "no more than asked";
}

TEST(ChoosePlan, TellsTheListenerOfWhatWasTimed) {
  int told = 0;
  on_timed_choice([&] { ++told; });
  PlanCache cache(std::nullopt, "gpu");
  FakeCandidates first(kPlans), again(kPlans), untimed(kPlans);
  choose_plan(cache, "p", first, Timing::kNow, 10);
  EXPECT_EQ(told, 1);
  choose_plan(cache, "p", again, Timing::kNow, 10);
  choose_plan(cache, "q", untimed, Timing::kNever, 10);
  EXPECT_EQ(told, 1) << "nothing was timed";
  on_timed_choice({});
  FakeCandidates last(kPlans);
  choose_plan(cache, "r", last, Timing::kNow, 10);
  EXPECT_EQ(told, 1);
}

// ---- TimeBudget

/// The times of consecutive runs; counts them.
struct Samples {
  std::vector<double> times;
  double host = 0;  // of the first
  mutable size_t runs = 0;

  RunTime operator()() const {
    const RunTime time{times.at(runs), runs == 0 ? host : 0.0};
    ++runs;
    return time;
  }
};

/// A budget that knows a time of 10.
TimeBudget knowing_ten() {
  TimeBudget budget;
  budget.measure([] { return RunTime{10}; });
  return budget;
}

TEST(TimeBudget, TakesTheMiddleOfFiveRuns) {
  const Samples samples{{900, 5, 1, 4, 2, 3}};
  TimeBudget budget;
  EXPECT_EQ(budget.best(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(budget.measure(samples), 3) << "the run that warms up does not count";
  EXPECT_EQ(samples.runs, 6u);
  EXPECT_EQ(budget.best(), 3);
}

TEST(TimeBudget, LetsOneDisturbedRunDecideNothing) {
  for (size_t disturbed = 0; disturbed < 6; ++disturbed) {
    Samples samples{{10, 10, 10, 10, 10, 10}};
    samples.times[disturbed] = 1000;
    EXPECT_EQ(knowing_ten().measure(samples), 10) << "run " << disturbed;
    EXPECT_EQ(samples.runs, 6u);
  }
}

TEST(TimeBudget, NeedsTwoRunsOfWhatIsSlower) {
  const Samples samples{{20, 40, 30, 1, 1, 1}};
  EXPECT_EQ(knowing_ten().measure(samples), 30);
  EXPECT_EQ(samples.runs, 3u);
}

TEST(TimeBudget, NeedsOneRunOfWhatIsMuchSlower) {
  const Samples samples{{50, 40, 1, 1, 1, 1}};
  EXPECT_EQ(knowing_ten().measure(samples), 40);
  EXPECT_EQ(samples.runs, 2u);
}

TEST(TimeBudget, RepeatsUntilItLastsLongEnough) {
  const Samples one{{9e3, 1.1e4}}, three{{9e3, 4e3, 5e3, 3e3}}, five{{1e3, 2e3, 1e3, 3e3, 1e3, 1e3}};
  EXPECT_EQ(TimeBudget().measure(one), 1.1e4);
  EXPECT_EQ(TimeBudget().measure(three), 4e3) << "the middle of an odd number";
  EXPECT_EQ(three.runs, 4u);
  EXPECT_EQ(TimeBudget().measure(five), 1e3);
  EXPECT_EQ(five.runs, 6u);
  const Samples all{{9e3, 4e3, 5e3, 3e3, 6e3, 7e3}};
  EXPECT_EQ(TimeBudget().measure(all, 1e5), 5e3) << "where more would disturb";
}

TEST(TimeBudget, TakesALongFirstRunLessWhatTheHostDid) {
  const Samples long_run{{5e5}};
  EXPECT_EQ(TimeBudget().measure(long_run), 5e5);
  const Samples loading{{5e5, 100, 110, 90, 120, 80}, 4.999e5};
  TimeBudget budget;
  EXPECT_EQ(budget.measure(loading), 100) << "code was loaded meanwhile";
  EXPECT_FALSE(budget.is_spent()) << "nor does that count";
}

TEST(TimeBudget, IsSpentByAllRunsOfAllCandidates) {
  TimeBudget budget;
  int runs = 0;
  while (!budget.is_spent() && runs < 1000) budget.measure([&] { return ++runs, RunTime{1e3}; });
  EXPECT_EQ(runs, 306) << "six a candidate";
}

}  // namespace
}  // namespace sinter
