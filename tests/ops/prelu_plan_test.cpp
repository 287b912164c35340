// How PReLU's kernels cut tensors: every element once, each with its own channel's slope and sum.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/prelu/prelu_plan.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using testing_plans::integer;

constexpr int kCases = 100000;

/// Mostly small extents, now and then none or a few hundred.
ChannelView random_view(Generator& generator) {
  const auto extent = [&](int64_t most) {
    return generator.uniform() < 0.02 ? 0
                                      : integer(generator, 1, generator.uniform() < 0.1 ? most * 8 : most);
  };
  return {extent(9), extent(9), generator.uniform() < 0.3 ? 1 : extent(20)};
}

int64_t channel_of(const ChannelView& view, int64_t element) {
  return element / view.inner % view.channels;
}

std::string text(const ChannelView& view) {
  return "(" + std::to_string(view.outer) + ", " + std::to_string(view.channels) + ", " +
         std::to_string(view.inner) + ")";
}

TEST(PReluPlan, OrdersOfSlopesHoldWhatTheyPromise) {
  Generator generator(2);
  for (int i = 0; i < kCases; ++i) {
    const ChannelView view = random_view(generator);
    const int64_t pack = int64_t{1} << integer(generator, 0, 3);
    const SlopeOrder order = slope_order(view, pack);
    for (int64_t first = 0; first + pack <= view.numel(); first += pack) {
      const int64_t channel = channel_of(view, first);
      int changes = 0;
      for (int64_t e = first + 1; e < first + pack; ++e) {
        changes += channel_of(view, e) != channel_of(view, e - 1) ? 1 : 0;
        if (order == SlopeOrder::kVectors) {
          ASSERT_EQ(channel_of(view, e), channel + e - first) << text(view);
        }
      }
      ASSERT_LE(changes, order == SlopeOrder::kRuns ? 1 : pack) << text(view) << " at " << first;
      ASSERT_TRUE(order != SlopeOrder::kVectors || channel % pack == 0) << text(view);
    }
  }
}

}  // namespace
}  // namespace sinter::ops
