// PadTargets inverts pad_source: what the GPU's gradient of padding relies on.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/pad/pad_math.h>

namespace sinter::ops {
namespace {

class PadTargetsTest : public ::testing::TestWithParam<PadMode> {};

TEST_P(PadTargetsTest, AreTheIndicesThatRepeatAnElementInRisingOrder) {
  const PadMode mode = GetParam();
  for (int64_t extent = 1; extent <= 6; ++extent) {
    const int64_t most = mode == PadMode::kReflect ? extent - 1 : 7;
    for (int64_t before = 0; before <= most; ++before) {
      for (int64_t after = 0; after <= most; ++after) {
        for (int64_t index = 0; index < extent; ++index) {
          std::vector<int64_t> expected, targets;
          for (int64_t i = 0; i < before + extent + after; ++i) {
            if (pad_source(i, before, extent, mode) == index) expected.push_back(i);
          }
          const PadTargets found(index, before, extent, after, mode);
          for (int64_t n = 0; n < found.count(); ++n) targets.push_back(found[n]);
          EXPECT_EQ(targets, expected)
              << "extent " << extent << ", before " << before << ", after " << after << ", index " << index;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PadTargetsTest,
                         ::testing::Values(PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace sinter::ops
