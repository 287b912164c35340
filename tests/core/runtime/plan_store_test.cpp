// Plans in memory: which stay, which give way, and many threads at once.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/plan_store.h>

namespace sinter {
namespace {

/// Counts those that are alive.
struct Plan {
  explicit Plan(int n) : number(n) { ++alive; }
  ~Plan() { --alive; }
  Plan(const Plan&) = delete;

  int number;
  static inline std::atomic<int> alive = 0;
};

using Store = PlanStore<int, Plan, std::hash<int>>;

std::shared_ptr<const Plan> make(int number) {
  return std::make_shared<Plan>(number);
}

TEST(PlanStore, FindsWhatWasAdded) {
  Store store;
  EXPECT_FALSE(store.find(1).has_value());
  EXPECT_EQ(store.add(1, make(10), 4)->number, 10);
  ASSERT_TRUE(store.find(1).has_value());
  EXPECT_EQ((*store.find(1))->number, 10);
  EXPECT_FALSE(store.find(2).has_value());
}

TEST(PlanStore, RemembersThatThereIsNone) {
  Store store;
  EXPECT_EQ(store.add(1, nullptr, 4), nullptr);
  ASSERT_TRUE(store.find(1).has_value());
  EXPECT_EQ(*store.find(1), nullptr);
}

TEST(PlanStore, TheFirstOfTwoStays) {
  Store store;
  store.add(1, make(10), 4);
  EXPECT_EQ(store.add(1, make(11), 4)->number, 10);
  EXPECT_EQ((*store.find(1))->number, 10);
  EXPECT_EQ(store.size(), 1u);
}

TEST(PlanStore, APlanForNowServesItsTimeAndGivesWay) {
  Store store;
  EXPECT_EQ(store.add_for_now(1, make(10), 4)->number, 10);
  for (uint64_t i = 0; i < Store::kFirstLease; ++i) {
    const auto found = store.find(1);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ((*found)->number, 10);
  }
  EXPECT_FALSE(store.find(1).has_value());
  EXPECT_EQ(store.add_for_now(1, make(11), 4)->number, 11) << "it takes the other's place";
  for (uint64_t i = 0; i < 2 * Store::kFirstLease; ++i) {
    const auto found = store.find(1);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ((*found)->number, 11);
  }
  EXPECT_FALSE(store.find(1).has_value());
  EXPECT_EQ(store.add(1, make(12), 4)->number, 12);
  for (uint64_t i = 0; i < 10 * Store::kFirstLease; ++i) ASSERT_TRUE(store.find(1).has_value());
  EXPECT_EQ(store.add_for_now(1, make(13), 4)->number, 12) << "a plan that stays, stays";
  EXPECT_EQ(store.size(), 1u);
  EXPECT_EQ(Plan::alive, 1);
}

TEST(PlanStore, ThatThereIsNoneMayBeForNowToo) {
  Store store;
  store.add_for_now(1, nullptr, 4);
  for (uint64_t i = 0; i < Store::kFirstLease; ++i) EXPECT_EQ(store.find(1), std::optional(Store::Shared()));
  EXPECT_FALSE(store.find(1).has_value());
}

TEST(PlanStore, LetsGoWhatWasNotFoundForLongest) {
  Store store;
  for (int i = 0; i < 3; ++i) store.add(i, make(i), 3);
  store.find(0);
  store.add(3, make(3), 3);
  EXPECT_FALSE(store.find(1).has_value());
  store.find(2);
  store.find(0);
  store.add(4, make(4), 3);
  EXPECT_FALSE(store.find(3).has_value());
  for (const int kept : {0, 2, 4}) EXPECT_TRUE(store.find(kept).has_value()) << kept;
  EXPECT_EQ(store.size(), 3u);
}

TEST(PlanStore, ALowerLimitHoldsFromTheNextPlanOn) {
  Store store;
  for (int i = 0; i < 9; ++i) store.add(i, make(i), 9);
  store.add(9, make(9), 2);
  EXPECT_EQ(store.size(), 2u);
  EXPECT_TRUE(store.find(8).has_value());
  EXPECT_TRUE(store.find(9).has_value());
}

TEST(PlanStore, APlanThatRunsOutlivesItsPlace) {
  {
    Store store;
    const auto running = store.add(1, make(10), 1);
    store.add(2, make(20), 1);
    EXPECT_FALSE(store.find(1).has_value());
    EXPECT_EQ(running->number, 10);
    EXPECT_EQ(Plan::alive, 2);
  }
  EXPECT_EQ(Plan::alive, 0);
}

TEST(PlanStore, ServesManyThreads) {
  constexpr int kKeys = 40, kLimit = 16;
  {
    Store store;
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 5000; ++i) {
          const int key = (i * (t + 3)) % kKeys;
          auto found = store.find(key);
          const auto plan = found ? *found : store.add(key, make(key), kLimit);
          if (plan->number != key) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(store.size(), size_t{kLimit});
    EXPECT_EQ(Plan::alive, kLimit);
  }
  EXPECT_EQ(Plan::alive, 0);
}

}  // namespace
}  // namespace sinter
