// A second thread is noticed while the first is inside.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/exclusive_use.h>

#include "common/error_message.h"

namespace sinter {
namespace {

TEST(ExclusiveUse, RefusesASecondCallWhileOneRuns) {
  ExclusiveUse use;
  {
    const ExclusiveUse::Scope scope(use, "job", "take another job");
    const ExclusiveUse copy(use);
    std::string message;
    std::thread([&] {
      message = test::message_of([&] { const ExclusiveUse::Scope second(use, "job", "take another job"); });
    }).join();
    EXPECT_EQ(message,
              "[job] expected calls one after the other but got one while another runs, which would spoil "
              "both: take another job");
    ExclusiveUse fresh(copy);
    const ExclusiveUse::Scope of_copy(fresh, "job", "");  // which nobody uses
  }
  std::thread([&] { const ExclusiveUse::Scope later(use, "job", ""); }).join();  // one after the other
}

TEST(ExclusiveUse, LetsOneInAtATime) {
  ExclusiveUse use;
  int64_t inside = 0;  // not atomic: whoever is in is alone
  std::atomic<int64_t> entered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 2000; ++call) {
        try {
          const ExclusiveUse::Scope scope(use, "job", "");
          ++inside;
          ++entered;
        } catch (const InvalidArgument&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inside, entered);
  EXPECT_GT(inside, 0);
}

}  // namespace
}  // namespace sinter
