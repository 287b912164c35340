// What is decided and kept for each GPU, as far as it needs none.
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/cuda/lost_devices.h>
#include <sinter/core/cuda/spare_list.h>

namespace sinter::cuda {
namespace {

// ---- can_launch_early

TEST(CanLaunchEarly, TakesTheGpuAndTheCodeTogether) {
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    for (const int compiled : {75, 80, 86, 89, 90, 100, 120}) {
      const bool expected = capability >= 90 && compiled >= 90;
      EXPECT_EQ(can_launch_early(capability, compiled), expected) << compiled << " on " << capability;
    }
  }
}

// ---- LostDevices

TEST(LostDevices, EachIsLostByItself) {
  LostDevices lost;
  EXPECT_FALSE(lost.any());
  lost.add(1, 700, "cudaEventQuery");
  EXPECT_TRUE(lost.any());
  EXPECT_FALSE(lost.contains(0));
  EXPECT_TRUE(lost.contains(1));
  EXPECT_FALSE(lost.contains(2));
  EXPECT_EQ(lost.find(0).error, 0);
  EXPECT_EQ(lost.find(1).error, 700);
  EXPECT_STREQ(lost.find(1).call, "cudaEventQuery");
}

TEST(LostDevices, TheFirstErrorCounts) {
  LostDevices lost;
  lost.add(3, 700, "the first");
  lost.add(3, 719, "the second");
  EXPECT_EQ(lost.find(3).error, 700);
  EXPECT_STREQ(lost.find(3).call, "the first");
}

TEST(LostDevices, TakesAnyIndex) {
  LostDevices lost;
  lost.add(1000, 700, "call");
  EXPECT_TRUE(lost.contains(1000));
  EXPECT_FALSE(lost.contains(0));
}

// ---- SpareList

struct Node {
  int number = 0;
  Node* next = nullptr;
};

TEST(SpareList, GivesBackWhatWasPutLast) {
  SpareList<Node> spares;
  EXPECT_EQ(spares.take(), nullptr);
  Node a, b;
  spares.put(&a);
  spares.put(&b);
  EXPECT_EQ(spares.take(), &b);
  EXPECT_EQ(spares.take(), &a);
  EXPECT_EQ(spares.take(), nullptr);
}

TEST(SpareList, ThreadsThatTakeAndPutMakeNoMoreThanTheyHoldAtOnce) {
  constexpr int kThreads = 4, kHeld = 3, kRounds = 20000;
  SpareList<Node> spares;
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<Node*> held;
      for (int i = 0; i < kRounds; ++i) {
        Node* node = spares.take();
        if (node == nullptr) node = new Node{++made};
        EXPECT_EQ(node->next, nullptr);
        held.push_back(node);
        if (held.size() == kHeld) {
          for (Node* each : held) spares.put(each);
          held.clear();
        }
      }
      for (Node* each : held) spares.put(each);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(made, kThreads * kHeld);
  std::set<Node*> all;
  while (Node* const node = spares.take()) all.insert(node);
  EXPECT_EQ(all.size(), static_cast<size_t>(made));
  for (Node* node : all) delete node;
}

}  // namespace
}  // namespace sinter::cuda
