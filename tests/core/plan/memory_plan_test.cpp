// Plans against an oracle that knows nothing of how they are made, and their quality on training steps.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/plan/memory_plan.h>

#include "common/error_message.h"
#include "training_lifetimes.h"

namespace sinter {
namespace {

using testing::resnet_lifetimes;

using Lifetimes = std::vector<BufferLifetime>;

size_t rounded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

bool live_at_once(const BufferLifetime& a, const BufferLifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// The most bytes in use in one step: some buffer begins in such a step.
size_t bound_of(const Lifetimes& buffers) {
  size_t most = 0;
  for (const BufferLifetime& start : buffers) {
    size_t live = 0;
    for (const BufferLifetime& other : buffers) {
      if (other.first <= start.first && start.first <= other.last) live += rounded(other.bytes);
    }
    most = std::max(most, live);
  }
  return most;
}

/// What is wrong with a plan; empty if nothing is.
std::string fault_in(const MemoryPlan& plan, const Lifetimes& buffers) {
  if (plan.offsets.size() != buffers.size()) return "not an offset for each buffer";
  size_t end = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (plan.offsets[i] % 256 != 0) return "an offset of " + std::to_string(plan.offsets[i]);
    if (buffers[i].bytes > 0) end = std::max(end, plan.offsets[i] + rounded(buffers[i].bytes));
    for (size_t j = 0; j < i; ++j) {
      if (buffers[i].bytes == 0 || buffers[j].bytes == 0 || !live_at_once(buffers[i], buffers[j])) continue;
      const size_t a = plan.offsets[i], b = plan.offsets[j];
      if (a < b + buffers[j].bytes && b < a + buffers[i].bytes) {
        return "buffers " + std::to_string(j) + " and " + std::to_string(i) + " overlap";
      }
    }
  }
  if (plan.bytes != end)
    return "an arena of " + std::to_string(plan.bytes) + " bytes for " + std::to_string(end);
  if (plan.lower_bound != bound_of(buffers)) return "a bound of " + std::to_string(plan.lower_bound);
  return plan.bytes < plan.lower_bound ? "an arena below the bound" : "";
}

double ratio_of(const MemoryPlan& plan) {
  return static_cast<double>(plan.bytes) / static_cast<double>(plan.lower_bound);
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  /// Mostly some hundred bytes to a megabyte, some nothing, some of one granule's size or nearly.
  size_t bytes() {
    switch (below(8)) {
      case 0:
        return static_cast<size_t>(below(3)) * 256;
      case 1:
        return 255 + static_cast<size_t>(below(3));
      default:
        return 1 + engine_() % (uint64_t{64} << below(15));
    }
  }

 private:
  std::mt19937_64 engine_;
};

Lifetimes random_lifetimes(Random& random, int most) {
  Lifetimes buffers(static_cast<size_t>(random.below(most)));
  const int steps = 1 + random.below(2 * most), longest = 1 + random.below(steps);
  const int start = random.below(7) - 3;
  for (BufferLifetime& buffer : buffers) {
    buffer.bytes = random.bytes();
    buffer.first = start + random.below(steps);
    buffer.last = buffer.first + (random.one_in(4) ? 0 : random.below(longest));
  }
  return buffers;
}

/// A training step of a net of `layers` layers of random sizes: an activation lives until the mirrored step
/// of the backward pass, a gradient for a few steps, the gradient of weights until the update at the end;
/// some layers are read further on, too, and keep masks and statistics.
Lifetimes random_training(Random& random, int layers) {
  Lifetimes buffers;
  const int end = 2 * layers + 1;
  for (int layer = 0; layer < layers; ++layer) {
    const int mirrored = 2 * layers - layer;
    const size_t bytes = random.bytes();
    const int further = random.one_in(8) ? random.below(1 + std::min(20, layer)) : 0;
    buffers.push_back({bytes, layer, mirrored});
    buffers.push_back({bytes, mirrored, std::min(mirrored + 1 + further, end)});
    if (random.one_in(2)) buffers.push_back({random.bytes(), mirrored, end});
    if (random.one_in(2)) buffers.push_back({bytes / 8, layer, mirrored});
    if (random.one_in(3))
      buffers.push_back({static_cast<size_t>(4 * (1 + random.below(2048))), layer, mirrored});
    if (random.one_in(3)) buffers.push_back({bytes, layer, layer + 1});
  }
  return buffers;
}

TEST(MemoryPlan, NothingNeedsNothing) {
  const MemoryPlan none = plan_memory({});
  EXPECT_TRUE(none.offsets.empty());
  EXPECT_EQ(none.bytes, 0u);
  EXPECT_EQ(none.lower_bound, 0u);
  const MemoryPlan empty = plan_memory(Lifetimes{{0, 0, 9}, {0, 3, 3}});
  EXPECT_EQ(empty.offsets, (std::vector<size_t>{0, 0}));
  EXPECT_EQ(empty.bytes, 0u);
}

TEST(MemoryPlan, BuffersOfOneStepLieSideBySideAndThoseOfTheNextStepTakeTheirPlace) {
  const Lifetimes buffers = {{300, 0, 0}, {256, 0, 0}, {1, 1, 1}, {1024, 1, 1}, {0, 0, 1}};
  const MemoryPlan plan = plan_memory(buffers);
  EXPECT_EQ(fault_in(plan, buffers), "");
  EXPECT_EQ(plan.lower_bound, 1280u);
  EXPECT_EQ(plan.bytes, 1280u);
}

TEST(MemoryPlan, ABufferIsInUseDuringItsLastStep) {
  const Lifetimes buffers = {{256, 0, 1}, {256, 1, 2}, {256, 2, 3}};
  const MemoryPlan plan = plan_memory(buffers);
  EXPECT_EQ(fault_in(plan, buffers), "");
  EXPECT_EQ(plan.bytes, 512u);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_NE(plan.offsets[0], plan.offsets[1]);
}

TEST(MemoryPlan, StepsMayBeAnyNumbers) {
  constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();
  const Lifetimes buffers = {{256, kLeast, kMost}, {512, kLeast, -1}, {512, 0, kMost}, {256, kMost, kMost}};
  const MemoryPlan plan = plan_memory(buffers);
  EXPECT_EQ(fault_in(plan, buffers), "");
  EXPECT_EQ(plan.bytes, 1024u);
}

TEST(MemoryPlan, RefusesWhatCannotBe) {
  EXPECT_EQ(test::message_of([] {
              plan_memory(Lifetimes{{1, 0, 0}, {1, 5, 4}});
            }),
            "[plan] buffer 1 is in use from step 5 on, but only until step 4");
  const size_t large = size_t{3} << 60;
  EXPECT_NO_THROW(plan_memory(Lifetimes{{large, 0, 0}}));
  EXPECT_THROW(plan_memory(Lifetimes{{large, 0, 0}, {large, 1, 1}}), InvalidArgument);
  EXPECT_THROW(plan_memory(Lifetimes{{std::numeric_limits<size_t>::max(), 0, 0}}), InvalidArgument);
}

TEST(MemoryPlan, NoTwoBuffersInUseOverlapInThousandsOfPrograms) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    const Lifetimes buffers = random_lifetimes(random, 2 + random.below(i % 100 == 0 ? 200 : 30));
    ASSERT_EQ(fault_in(plan_memory(buffers), buffers), "") << "program " << i;
  }
}

TEST(MemoryPlan, NoTwoBuffersInUseOverlapInTrainingSteps) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  double worst = 1.0;
  for (int i = 0; i < 1000; ++i) {
    const Lifetimes buffers = random_training(random, 1 + random.below(i % 50 == 0 ? 150 : 20));
    const MemoryPlan plan = plan_memory(buffers);
    ASSERT_EQ(fault_in(plan, buffers), "") << "program " << i;
    if (plan.lower_bound > 0) worst = std::max(worst, ratio_of(plan));
  }
  RecordProperty("worst_ratio", std::to_string(worst));
}

struct Net {
  int depth;
  int64_t batch, side;
  size_t element_bytes;
};

class MemoryPlanOfResNet : public ::testing::TestWithParam<Net> {};

TEST_P(MemoryPlanOfResNet, IsWithinTwoPercentOfTheBound) {
  const auto [depth, batch, side, element_bytes] = GetParam();
  const Lifetimes buffers = resnet_lifetimes(depth, batch, side, element_bytes);
  const MemoryPlan plan = plan_memory(buffers);
  EXPECT_EQ(fault_in(plan, buffers), "");
  EXPECT_LE(ratio_of(plan), 1.02);
  RecordProperty("buffers", std::to_string(buffers.size()));
  RecordProperty("ratio", std::to_string(ratio_of(plan)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryPlanOfResNet,
                         ::testing::Values(Net{18, 1, 224, 2}, Net{18, 32, 224, 2}, Net{18, 256, 224, 2},
                                           Net{18, 128, 32, 4}, Net{50, 1, 224, 2}, Net{50, 32, 224, 2},
                                           Net{50, 256, 224, 2}, Net{50, 7, 176, 4}, Net{50, 128, 32, 4},
                                           Net{152, 64, 224, 2}),
                         [](const auto& of_net) {
                           const Net& net = of_net.param;
                           return "ResNet" + std::to_string(net.depth) + "Batch" + std::to_string(net.batch) +
                                  "Side" + std::to_string(net.side) + "Bytes" +
                                  std::to_string(net.element_bytes);
                         });

/// The ratios of plans for so many random training steps.
std::vector<double> ratios_of_training(uint64_t seed, int count) {
  Random random(seed);
  std::vector<double> ratios;
  for (int i = 0; i < count; ++i) {
    ratios.push_back(ratio_of(plan_memory(random_training(random, 100 + random.below(400)))));
  }
  return ratios;
}

TEST(MemoryPlan, LargeTrainingStepsOfAnySizesComeNearTheirBounds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<double> ratios = ratios_of_training(seed, 40);
  const double mean = std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size());
  EXPECT_LE(mean, 1.01);
  RecordProperty("mean_ratio", std::to_string(mean));
}

// The bound is the bytes that live at a time, which no plan reaches for some buffers. So the worst plan is
// judged for steps that stay the same.
TEST(MemoryPlan, NoneOfManyLargeTrainingStepsIsFarFromItsBound) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const std::vector<double> ratios = ratios_of_training(seed, 40);
    EXPECT_LE(*std::max_element(ratios.begin(), ratios.end()), 1.06) << "seed " << seed;
  }
}

TEST(MemoryPlan, TheSameBuffersGiveTheSamePlan) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 20; ++i) {
    const Lifetimes buffers = random_lifetimes(random, 120);
    const MemoryPlan first = plan_memory(buffers), second = plan_memory(buffers);
    ASSERT_EQ(first.offsets, second.offsets);
    ASSERT_EQ(first.bytes, second.bytes);
  }
}

/// Of the processor: others may use the machine, too.
double milliseconds_of(const Lifetimes& buffers) {
  const std::clock_t start = std::clock();
  plan_memory(buffers);
  return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Buffers of which about every `one_in`-th is in use at a time, the hardest to place.
Lifetimes random_overlaps(Random& random, int count, int one_in) {
  Lifetimes buffers;
  for (int i = 0; i < count; ++i) {
    const int first = random.below(count);
    buffers.push_back({static_cast<size_t>(1 + random.below(1 << 20)), first,
                       first + random.below(2 * std::max(count / one_in, 1))});
  }
  return buffers;
}

// Loose by a factor of ten: builds with sanitizers are slow.
TEST(MemoryPlan, IsMadeInTheTimeOfAFewSteps) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const double resnet = milliseconds_of(resnet_lifetimes(152, 64));
  const double training = milliseconds_of(random_training(random, 900));
  const double overlaps = milliseconds_of(random_overlaps(random, 3000, 4));
  const double many = milliseconds_of(random_overlaps(random, 20000, 4));
  RecordProperty("resnet152_ms", std::to_string(resnet));
  RecordProperty("training_ms", std::to_string(training));
  RecordProperty("3000_buffers_ms", std::to_string(overlaps));
  RecordProperty("20000_buffers_ms", std::to_string(many));
  EXPECT_LT(resnet, 1000);
  EXPECT_LT(training, 1000);
  EXPECT_LT(overlaps, 1000);
  EXPECT_LT(many, 13000);
}

}  // namespace
}  // namespace sinter
