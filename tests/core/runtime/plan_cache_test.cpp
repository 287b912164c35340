// Measured plans on disk: what is kept, shared and refused, and how a plan is chosen.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/timing/median_time.h>

namespace sinter {
namespace {

namespace fs = std::filesystem;

const TunedPlan kPlan{
    .name = "engine 3: 1=2", .microseconds = 12.5, .others = {{"engine 7:", 13.5}, {"engine 4:", 14}}};

/// A folder of its own, and the warnings that were logged.
class PlanCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("sinter_plan_cache_" + std::string(test->name()));
    fs::remove_all(folder_);
    log::set_sink([this](log::Level level, std::string_view message) {
      if (level == log::Level::kWarning) warnings_.emplace_back(message);
    });
  }
  void TearDown() override {
    log::set_sink({});
    fs::remove_all(folder_);
  }

  PlanCache make(const std::string& scope = "NVIDIA H200 cudnn 91900") { return PlanCache(folder_, scope); }
  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  fs::path folder_;
  std::vector<std::string> warnings_;
};

TEST_F(PlanCacheTest, RemembersAcrossObjects) {
  make().store("conv a", kPlan);
  EXPECT_EQ(make().find("conv a"), kPlan);
  EXPECT_EQ(make().find("conv b"), std::nullopt);
  EXPECT_EQ(make("other GPU cudnn 91900").find("conv a"), std::nullopt);
  EXPECT_EQ(make().file().filename(), "plans-NVIDIA_H200_cudnn_91900.json");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanCacheTest, LeavesOneFileBehind) {
  make().store("conv a", kPlan);
  make().store("conv b", kPlan);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path(), make().file());
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(PlanCacheTest, KeepsWhatOthersAdded) {
  PlanCache first = make(), second = make();
  EXPECT_EQ(first.find("conv a"), std::nullopt);  // both have read by now
  EXPECT_EQ(second.find("conv b"), std::nullopt);
  first.store("conv a", kPlan);
  const TunedPlan other{.name = "engine 4:", .microseconds = 1};
  second.store("conv b", other);
  PlanCache third = make();
  EXPECT_EQ(third.find("conv a"), kPlan);
  EXPECT_EQ(third.find("conv b"), other);
}

TEST_F(PlanCacheTest, TheNewestResultForAProblemStays) {
  make().store("conv a", kPlan);
  const TunedPlan better{.name = "engine 9:", .microseconds = 2};
  make().store("conv a", better);
  EXPECT_EQ(make().find("conv a"), better);
}

TEST_F(PlanCacheTest, IgnoresAndReplacesFilesThatCannotBeUsed) {
  const std::string scope = "NVIDIA H200 cudnn 91900";
  const std::vector<std::string> bad = {
      "",
      "{\"format\": 1, \"sco",
      "[1, 2]",
      "{\"format\": 1, \"plans\": " + std::string(80'000, '[') + std::string(80'000, ']') + "}",
      R"({"format": 2, "scope": ")" + scope + R"(", "plans": {}})",
      R"({"format": 1, "scope": "some other GPU", "plans": {"conv a": {"plan": "engine 3:", "us": 1}}})",
      R"({"format": 1, "scope": ")" + scope + R"(", "plans": {"conv a": {"plan": 3, "us": 1}}})",
      R"({"format": 1, "scope": ")" + scope + R"(", "plans": {"conv a": {"us": 1}}})",
  };
  for (const std::string& text : bad) {
    SCOPED_TRACE(text);
    write(make().file(), text);
    warnings_.clear();
    PlanCache cache = make();
    EXPECT_EQ(cache.find("conv a"), std::nullopt);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find(cache.file().string()), std::string::npos) << warnings_[0];
    cache.store("conv a", kPlan);
    EXPECT_EQ(make().find("conv a"), kPlan);
  }
}

TEST_F(PlanCacheTest, WorksInMemoryWhereNothingCanBeWritten) {
  write(folder_, "a file where the folder should be");
  PlanCache cache = make();
  cache.store("conv a", kPlan);
  EXPECT_EQ(warnings_.size(), 1u);
  cache.store("conv b", kPlan);
  EXPECT_EQ(warnings_.size(), 1u) << "the second write must not be tried";
  EXPECT_EQ(cache.find("conv a"), kPlan);
  EXPECT_EQ(cache.find("conv b"), kPlan);
}

TEST_F(PlanCacheTest, NeedsNoFolder) {
  PlanCache cache(std::nullopt, "gpu");
  cache.store("conv a", kPlan);
  EXPECT_EQ(cache.find("conv a"), kPlan);
  EXPECT_TRUE(cache.file().empty());
  EXPECT_TRUE(warnings_.empty());
}

/// Sets an environment variable, or unsets it, until the end.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* present = std::getenv(name)) previous_ = present;
    set(value);
  }
  ~Environment() { set(previous_ ? previous_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

  const char* name_;
  std::optional<std::string> previous_;
};

TEST(CacheFolder, ComesFromTheEnvironment) {
  const Environment home("HOME", "/home/somebody");
  {
    const Environment folder("SINTER_CACHE_DIR", "/var/cache/plans");
    EXPECT_EQ(cache_folder(), fs::path("/var/cache/plans"));
  }
  {
    const Environment folder("SINTER_CACHE_DIR", "");
    EXPECT_EQ(cache_folder(), std::nullopt);
  }
  const Environment folder("SINTER_CACHE_DIR", nullptr);
  EXPECT_EQ(cache_folder(), fs::path("/home/somebody/.cache/sinter"));
  const Environment homeless("HOME", nullptr);
  EXPECT_EQ(cache_folder(), std::nullopt);
}

// ---- choose_plan

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
  bool prepare_timing() override {
    ++preparations;
    return can_time_;
  }
  std::optional<double> time(size_t i) override {
    EXPECT_EQ(preparations, 1);
    timed.push_back(i);
    if (plans_[i].time == kNoRoom) throw OutOfMemory("[fake] no room");
    if (std::count(timed.begin(), timed.end(), i) <= plans_[i].failures) return std::nullopt;
    return plans_[i].time;
  }

  std::vector<size_t> built, timed;
  int preparations = 0;

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

TEST(OnlyKnownPlans, AreWantedOnTheThreadThatSaysSo) {
  EXPECT_FALSE(OnlyKnownPlans::wanted());
  {
    const OnlyKnownPlans outer;
    { const OnlyKnownPlans inner; }
    EXPECT_TRUE(OnlyKnownPlans::wanted());
    std::thread([] { EXPECT_FALSE(OnlyKnownPlans::wanted()); }).join();
  }
  EXPECT_FALSE(OnlyKnownPlans::wanted());
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

// ---- median_time

/// The times of consecutive runs; counts them.
struct Samples {
  std::vector<double> times;
  mutable size_t runs = 0;

  double operator()() const { return times.at(runs++); }
};

constexpr double kNeverHopeless = std::numeric_limits<double>::infinity();

TEST(MedianTime, IsTheMiddleOfFiveRuns) {
  const Samples samples{{900, 5, 1, 4, 2, 3}};
  EXPECT_EQ(median_time(samples, kNeverHopeless), 3) << "the run that warms up does not count";
  EXPECT_EQ(samples.runs, 6u);
}

TEST(MedianTime, OneDisturbedRunDecidesNothing) {
  for (size_t disturbed = 0; disturbed < 6; ++disturbed) {
    Samples samples{{10, 10, 10, 10, 10, 10}};
    samples.times[disturbed] = 1000;
    EXPECT_EQ(median_time(samples, 15), 10) << "run " << disturbed;
    EXPECT_EQ(samples.runs, 6u);
  }
}

TEST(MedianTime, TwoHopelessRunsAreEnough) {
  const Samples samples{{20, 40, 30, 1, 1, 1}};
  EXPECT_EQ(median_time(samples, 15), 30);
  EXPECT_EQ(samples.runs, 3u);
}

TEST(MedianTime, OneRunIsEnoughAtTwiceThat) {
  const Samples samples{{50, 40, 1, 1, 1, 1}};
  EXPECT_EQ(median_time(samples, 15), 40);
  EXPECT_EQ(samples.runs, 2u);
}

}  // namespace
}  // namespace sinter
