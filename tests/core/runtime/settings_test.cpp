#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sinter
