// The choice among kernels by time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/settings.h>

#include "common/error_message.h"
#include "core/op/autotune/kernel_tuner_support.h"

namespace sinter {
namespace {

using namespace testing_tuner;
using test::message_of;

TEST_F(KernelTunerTest, TakesTheFastestAndAsksNothingAgain) {
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "c");
  EXPECT_EQ(script.timed, (Names{"a", "b", "c"}));
  EXPECT_EQ(script.best, 90) << "of those until then: slower ones run less often";
  script.prepared.clear();
  EXPECT_EQ(Question().ask(tuner), "c");
  EXPECT_EQ(script.timed.size(), 3u);
  EXPECT_EQ(script.prepared, Names{});
}

TEST_F(KernelTunerTest, TellsWhatWasMeasuredHereOrByOthers) {
  const TunedPlan expected{"c", 80, {{"a", 100}, {"b", 90}}};
  {
    KernelTuner tuner = make();
    EXPECT_EQ(Question().measured(tuner), std::nullopt);
    Question().ask(tuner);
    EXPECT_EQ(Question().measured(tuner), expected);
    EXPECT_EQ(Question(2048).measured(tuner), std::nullopt) << "another problem";
  }
  KernelTuner other = make();
  EXPECT_EQ(Question().measured(other), expected) << "from the file";
}

TEST_F(KernelTunerTest, TheFavouriteStaysUnlessBeatenByFourPercent) {
  for (const auto& [other, chosen] : {std::pair(99.0, "a"), {96.1, "a"}, {95.9, "b"}, {50.0, "b"}}) {
    write({10, 11}, {100, other});
    KernelTuner tuner(std::nullopt, [](Device) { return std::make_unique<ScriptedTimer>(); });
    EXPECT_EQ(Question().ask(tuner), chosen) << other;
  }
  write({11, 10}, {99, 100});
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "b") << "the favourite is that of the estimate";
}

TEST_F(KernelTunerTest, TimesNoneThatIsHopelessOrDoesNotPayAndAtMostFour) {
  write({26, 10, 24, kNever}, {1, 100, 50, 1});
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "c");
  EXPECT_EQ(script.timed, (Names{"b", "c"}));

  write({15, 14, 13, 12, 11, 10}, {1, 1, 50, 60, 70, 80});
  EXPECT_EQ(Question(2048).ask(tuner), "c");
  EXPECT_EQ(script.timed, (Names{"f", "e", "d", "c"}));
}

TEST_F(KernelTunerTest, TimesThoseOfUnknownTimeBehindTheOthers) {
  write({kUnknownTime, 20, 10, kUnknownTime}, {50, 90, 100, 60});
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "a");
  EXPECT_EQ(script.timed, (Names{"c", "b", "a", "d"}));

  write({kUnknownTime, kUnknownTime}, {100, 99});
  EXPECT_EQ(Question(2048).ask(tuner), "a") << "the one registered last is the favourite";
  write({kUnknownTime, kUnknownTime}, {100, 90});
  EXPECT_EQ(Question(4096).ask(tuner), "b");
}

TEST_F(KernelTunerTest, GoesByTheEstimateWhereLittleIsMoved) {
  KernelTuner tuner = make();
  EXPECT_EQ(Question(64).ask(tuner), "a");
  EXPECT_EQ(Question(127).ask(tuner), "a") << "1 MiB - 8 KiB";
  EXPECT_EQ(script.timers, 0);
  EXPECT_EQ(Question(128).ask(tuner), "c");
}

TEST_F(KernelTunerTest, GoesByTheEstimateWhereBitsMustRepeatWhateverTheDiskSays) {
  KernelTuner first = make();
  EXPECT_EQ(Question().ask(first), "c");
  settings::set_deterministic(true);
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "a");
  settings::set_deterministic(false);
  EXPECT_EQ(Question().ask(tuner), "c");
  EXPECT_EQ(script.timers, 1);
}

TEST_F(KernelTunerTest, WithoutAutotuningTakesWhatIsRememberedElseTheEstimate) {
  KernelTuner first = make();
  EXPECT_EQ(Question().ask(first), "c");
  settings::set_autotune(false);
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "c");
  EXPECT_EQ(Question(2048).ask(tuner), "a");
  EXPECT_EQ(script.timers, 1);
  settings::set_autotune(true);
  EXPECT_EQ(Question(2048).ask(tuner), "c") << "that nothing was timed is no answer for later";
}

TEST_F(KernelTunerTest, ChoosesForNowWhileWorkIsCaptured) {
  script.timer_fails = "capture";
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "a");
  EXPECT_EQ(tuner.choices(), "");
  script.timer_fails.reset();
  Names later;
  for (uint64_t i = 0; i <= PlanStore<int, int, std::hash<int>>::kFirstLease; ++i)
    later.push_back(Question().ask(tuner));
  EXPECT_EQ(std::ranges::count(later, "a"), 64);
  EXPECT_EQ(later.back(), "c");
}

TEST_F(KernelTunerTest, ChoosesForNowWhereMemoryIsShort) {
  script.timer_fails = "memory";
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "a");

  write({10, 11, 12}, {100, 90, 80});
  script.workspaces["c"] = script.largest_scratch = size_t{64} << 20;  // and its alignment beyond it
  EXPECT_EQ(Question(2048).ask(tuner), "b") << "of those that had room";
  script.largest_scratch = size_t{1} << 40;
  for (int i = 0; i < 64; ++i) Question(2048).ask(tuner);
  EXPECT_EQ(Question(2048).ask(tuner), "c");

  write({10, 11}, {100, 90});
  script.largest_scratch = 1024;
  EXPECT_EQ(Question(4096).ask(tuner), "a") << "no room for the tensors";
  EXPECT_EQ(script.timed, Names{});
}

TEST_F(KernelTunerTest, PassesOverKernelsThatFail) {
  script.failing = {"c"};
  KernelTuner tuner = make();
  EXPECT_EQ(Question().ask(tuner), "b");
  script.failing = {"a", "b", "c"};
  EXPECT_EQ(Question(2048).ask(tuner), "a") << "whoever runs it says what is wrong";
}

TEST_F(KernelTunerTest, FailsWhereNoKernelCanOrPays) {
  KernelTuner tuner = make();
  write({kNever}, {1});
  EXPECT_EQ(message_of<Unsupported>([&] { Question().ask(tuner); }),
            "[test_tuned] no kernel on cpu for inputs (float32 (1024, 1024), none) with kind=0");
}

TEST_F(KernelTunerTest, AProblemIsShapesAttributesAlignmentsAndSettings) {
  KernelTuner tuner = make();
  Question().ask(tuner);
  const auto is_new = [&tuner](const Question& question) {
    const int before = script.timers;
    question.ask(tuner);
    return script.timers > before;
  };
  EXPECT_FALSE(is_new(Question(1024, TunedAttributes{}, 0x1000)));
  EXPECT_FALSE(is_new(Question(1024, TunedAttributes{}, 0x1010)));
  EXPECT_TRUE(is_new(Question(1024, TunedAttributes{}, 0x1004)));
  EXPECT_EQ(script.offsets, (std::vector<uintptr_t>{4, 0})) << "as the input lies, so does the trial's";
  EXPECT_FALSE(is_new(Question(1024, TunedAttributes{}, 0x2014)));
  EXPECT_TRUE(is_new(Question(1024, TunedAttributes{.kind = 1})));
  EXPECT_TRUE(is_new(Question(1025)));
  settings::set_allow_tf32(!settings::allow_tf32());
  EXPECT_TRUE(is_new(Question()));
}

TEST_F(KernelTunerTest, TimesSoManyProblemsAndNoMore) {
  KernelTuner tuner(std::nullopt, [](Device) { return std::make_unique<ScriptedTimer>(); });
  constexpr auto kMost = static_cast<int64_t>(KernelTuner::kMostProblems);
  for (int64_t i = 0; i < kMost; ++i) ASSERT_EQ(Question(1024 + i).ask(tuner), "c");
  EXPECT_EQ(script.timers, kMost);
  EXPECT_EQ(Question(1024 + kMost).ask(tuner), "a");
  EXPECT_EQ(script.timers, kMost);
}

TEST_F(KernelTunerTest, LooksOnlyAtWhatIsKnownWhereThatIsWanted) {
  KernelTuner tuner = make();
  {
    const OnlyKnownPlans known;
    EXPECT_EQ(Question().ask(tuner), "a");
  }
  EXPECT_EQ(script.timers, 0);
  EXPECT_EQ(Question().ask(tuner), "c");
  const OnlyKnownPlans known;
  EXPECT_EQ(Question().ask(tuner), "c");
}

TEST_F(KernelTunerTest, ThreadsThatMeetAProblemAtOnceTimeItOnce) {
  KernelTuner tuner = make();
  const Question question;
  Names names(4);
  script.prepared.reserve(1000);
  question.ask(tuner);  // the script is not for several threads, the store is
  std::vector<std::thread> threads;
  for (size_t i = 0; i < names.size(); ++i) threads.emplace_back([&, i] { names[i] = question.ask(tuner); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names, Names(4, "c"));
  EXPECT_EQ(script.timers, 1);
}

// ---- the disk

TEST_F(KernelTunerTest, RemembersOnTheDisk) {
  KernelTuner first = make();
  EXPECT_EQ(Question().ask(first), "c");
  write({10, 11, 12}, {1, 90, 80});
  KernelTuner second = make();
  EXPECT_EQ(Question().ask(second), "c");
  EXPECT_EQ(script.timed, Names{});
  EXPECT_EQ(second.choices(), first.choices());
  write({10, 11}, {1, 90});
  KernelTuner without = make();
  EXPECT_EQ(Question().ask(without), "a") << "it cannot run any more";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(KernelTunerTest, TimesAgainWhereTheFileIsDamaged) {
  KernelTuner first = make();
  EXPECT_EQ(Question().ask(first), "c");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    testing::write_file(entry.path(), testing::read_file(entry.path()).substr(0, 40));
    ++files;
  }
  EXPECT_EQ(files, 1);
  KernelTuner second = make();
  EXPECT_EQ(Question().ask(second), "c");
  EXPECT_EQ(script.timers, 2);
  EXPECT_FALSE(warnings_.empty());
  KernelTuner third = make();
  EXPECT_EQ(Question().ask(third), "c");
  EXPECT_EQ(script.timers, 2);
}

// ---- other ranks

TEST_F(KernelTunerTest, FollowsWhatAnotherRankChose) {
  KernelTuner first(std::nullopt, [](Device) { return std::make_unique<ScriptedTimer>(); });
  EXPECT_EQ(Question().ask(first), "c");
  EXPECT_EQ(Question(64).ask(first), "a");
  EXPECT_EQ(first.choices(), "c\ttest_tuned of a b c d e f: float32(1024, 1024) none kind=0" +
                                 std::string(settings::allow_tf32() ? " tf32\n" : "\n"));

  write({10, 11, 12}, {1, 90, 80});
  KernelTuner second = make();
  EXPECT_EQ(Question(2048).ask(second), "a");
  second.follow(first.choices());
  EXPECT_EQ(Question().ask(second), "c");
  EXPECT_EQ(Question(2048).ask(second), "a");
  EXPECT_EQ(script.timers, 1);
  EXPECT_EQ(std::ranges::count(second.choices(), '\n'), 2);
}

TEST_F(KernelTunerTest, FollowsAlsoWhereItHasChosenOtherwise) {
  KernelTuner first(std::nullopt, [](Device) { return std::make_unique<ScriptedTimer>(); });
  Question().ask(first);
  write({10, 11, 12}, {1, 90, 80});
  KernelTuner second = make();
  EXPECT_EQ(Question().ask(second), "a");
  EXPECT_EQ(Question(2048).ask(second), "a");
  second.follow(first.choices());
  EXPECT_EQ(Question().ask(second), "c");
  EXPECT_EQ(Question(2048).ask(second), "a");
  EXPECT_EQ(script.timers, 2) << "what was measured is not measured again";
}

TEST_F(KernelTunerTest, IgnoresWhatItCannotFollow) {
  KernelTuner tuner = make();
  tuner.follow("");
  tuner.follow("no line's end");
  tuner.follow("no tab\n\n\t\nx\ty\n");
  tuner.follow("gone\ttest_tuned of a b c d e f: float32(1024, 1024) none kind=0\n");
  EXPECT_EQ(Question().ask(tuner), "c");
}

// ---- dispatch

TEST_F(KernelTunerTest, DispatchAsksOnlyWhereThereIsAChoice) {
  const Tensor x = Tensor::zeros({2, 2});
  choices_by_time = 0;
  call(tuned_op(), {x, Tensor()}, TunedAttributes{});
  EXPECT_EQ(choices_by_time, 1);
  EXPECT_EQ(script.running, "a");

  const TensorSpec* const inputs[] = {&x.spec(), nullptr};
  const Attributes attributes = TunedAttributes{};
  const InferContext infer(tuned_op().definition, inputs, attributes);
  const KernelQuery query(infer, std::span(&x.spec(), 1));
  script.workspaces["a"] = 100;
  EXPECT_EQ(choose_kernel(tuned_op(), Device::cpu(), query.within(99)).kernel->name, "b");
  EXPECT_EQ(choices_by_time, 1) << "with little scratch the estimate decides";

  static const Op& single = OpRegistry::instance().add(
      {.name = "test_tuned_single",
       .inputs = {{"x"}},
       .outputs = {{"y"}},
       .infer = [](const InferContext& c) { return std::vector{c.input(0)}; },
       .choose = [](const Op&, Device, const KernelQuery&) -> KernelChoice { throw Error("asked"); }});
  OpRegistry::instance().add_kernel("test_tuned_single", {.run = [](const KernelContext&) {}});
  EXPECT_NO_THROW(call(single, {x}));
}

TEST_F(KernelTunerTest, AForcedKernelIsNotAskedForItsTime) {
  const Tensor x = Tensor::zeros({2, 2});
  write({10, kNever, 12, 13, 14, 15}, {1, 1, 1, 1, 1, 1});
  choices_by_time = 0;
  for (const char* name : kNames) {
    const ForcedKernel forced("test_tuned", name);
    script.estimates.erase(name);  // at() would throw
    call(tuned_op(), {x, Tensor()}, TunedAttributes{});
    EXPECT_EQ(script.running, name);
    EXPECT_EQ(forced.runs(), 1);
  }
  EXPECT_EQ(choices_by_time, 0);
  EXPECT_EQ(script.timers, 0);
}

// ---- with a clock

template <int microseconds>
void wait(const KernelContext& context) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(context.workspace()) % 256, 0u);
  for (const std::span<const TensorView> views :
       {std::span(&context.input(0), 1), std::span(&context.output(0), 1)}) {
    for (int64_t i = 0; i < views[0].numel(); ++i) {
      const float value = views[0].as<float>()[i];
      ASSERT_TRUE(std::isfinite(value) && value != 0.0F);
    }
  }
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

TEST_F(KernelTunerTest, TimesKernelsOnTensorsOfTheirOwn) {
  OpRegistry& registry = OpRegistry::instance();
  const Op& op = registry.add(
      {.name = "test_clock", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = [](const InferContext& c) {
         return std::vector{c.input(0)};
       }});
  const auto bytes = [](const KernelQuery&) { return size_t{1000}; };
  registry.add_kernel("test_clock", {.name = "quick", .workspace_bytes = bytes, .run = wait<1>});
  registry.add_kernel("test_clock", {.name = "slow", .workspace_bytes = bytes, .run = wait<20000>});
  const TensorSpec x{{400, 400}, DType::kFloat32, {}};
  const TensorSpec* const inputs[] = {&x};
  const Attributes none;
  const InferContext infer(op.definition, inputs, none);
  KernelTuner tuner(std::nullopt);
  EXPECT_EQ(tuner.choose(op, Device::cpu(), KernelQuery(infer, std::span(&x, 1))).kernel->name, "quick");
}

}  // namespace
}  // namespace sinter
