#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/settings.h>

namespace sinter {
namespace {

TEST(Settings, AreIndependentSwitches) {
  const bool tf32 = settings::allow_tf32(), deterministic = settings::deterministic(),
             autotune = settings::autotune();
  settings::set_allow_tf32(!tf32);
  EXPECT_EQ(settings::allow_tf32(), !tf32);
  EXPECT_EQ(settings::deterministic(), deterministic);
  EXPECT_EQ(settings::autotune(), autotune);
  settings::set_deterministic(!deterministic);
  EXPECT_EQ(settings::deterministic(), !deterministic);
  EXPECT_EQ(settings::autotune(), autotune);
  settings::set_autotune(!autotune);
  EXPECT_EQ(settings::autotune(), !autotune);
  settings::set_allow_tf32(tf32);
  settings::set_deterministic(deterministic);
  settings::set_autotune(autotune);
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
