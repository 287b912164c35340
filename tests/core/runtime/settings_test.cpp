// Switches and the environment variables that they start from.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/settings.h>

#include "common/error_message.h"

namespace sinter {
namespace {

/// All settings as a fresh process with this environment sees them.
struct Seen {
  bool tf32, deterministic, autotune;
  size_t plans;
  bool operator==(const Seen&) const = default;
};

Seen seen() {
  return {settings::allow_tf32(), settings::deterministic(), settings::autotune(), settings::plan_limit()};
}

/// While it lives, these are the only variables of the settings, whatever the tests were started with.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables = {}) {
    for (const char* name : kNames) {
      if (const char* const value = std::getenv(name)) before_.emplace_back(name, value);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr std::array kNames = {"SINTER_ALLOW_TF32", "SINTER_DETERMINISTIC", "SINTER_AUTOTUNE",
                                        "SINTER_PLAN_LIMIT"};
  std::vector<std::pair<const char*, std::string>> before_;
};

/// Exits with 0 if a fresh process sees `expected`.
void expect_seen(const Seen& expected) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // starts this program anew, for the same test
  EXPECT_EXIT(std::exit(seen() == expected ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(SettingsDeathTest, StartFromTheirDefaults) {
  const Environment environment;
  expect_seen({.tf32 = false, .deterministic = false, .autotune = true, .plans = 1024});
}
TEST(SettingsDeathTest, Tf32StartsFromItsVariable) {
  const Environment environment{{"SINTER_ALLOW_TF32", "1"}};
  expect_seen({.tf32 = true, .deterministic = false, .autotune = true, .plans = 1024});
}
TEST(SettingsDeathTest, DeterministicStartsFromItsVariable) {
  const Environment environment{{"SINTER_DETERMINISTIC", "1"}};
  expect_seen({.tf32 = false, .deterministic = true, .autotune = true, .plans = 1024});
}
TEST(SettingsDeathTest, AutotuneAndPlansStartFromTheirVariables) {
  const Environment environment{{"SINTER_AUTOTUNE", "0"}, {"SINTER_PLAN_LIMIT", "9"}};
  expect_seen({.tf32 = false, .deterministic = false, .autotune = false, .plans = 9});
}

TEST(SettingsDeathTest, WrongVariablesAreNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto print_error = [](auto action) {
    fmt::print(stderr, "{}", test::message_of(action));
    std::exit(0);
  };
  const Environment environment{{"SINTER_DETERMINISTIC", "yes"}, {"SINTER_PLAN_LIMIT", "0"}};
  EXPECT_EXIT(print_error([] { settings::deterministic(); }), ::testing::ExitedWithCode(0),
              "SINTER_DETERMINISTIC: expected 0 or 1 but got 'yes'");
  EXPECT_EXIT(print_error([] { settings::plan_limit(); }), ::testing::ExitedWithCode(0),
              "SINTER_PLAN_LIMIT: expected a positive number but got '0'");
}

TEST(Settings, ThereIsRoomForOnePlanAtLeast) {
  const size_t limit = settings::plan_limit();
  settings::set_plan_limit(7);
  EXPECT_EQ(settings::plan_limit(), 7u);
  EXPECT_THROW(settings::set_plan_limit(0), InvalidArgument);
  EXPECT_EQ(settings::plan_limit(), 7u);
  settings::set_plan_limit(limit);
}

}  // namespace
}  // namespace sinter
