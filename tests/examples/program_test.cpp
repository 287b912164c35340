// How errors leave a program.
#include "run/program.h"

#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace sinter::examples {
namespace {

TEST(ProgramDeathTest, WhatEndsAThreadOfALibraryIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = []() -> int {
    std::thread([] { throw std::runtime_error("the peer is gone"); }).join();
    return 0;
  };
  EXPECT_EXIT(run_program(body), testing::ExitedWithCode(1),
              "^error: a thread of a library has failed: the peer is gone");
}

TEST(ProgramDeathTest, TheProgramItselfMaySayWhyFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = []() -> int {
    std::thread([] { throw std::runtime_error("the peer is gone"); }).detach();
    throw std::runtime_error("rank 0 is lost");
  };
  EXPECT_EXIT(std::exit(run_program(body)), testing::ExitedWithCode(1), "^error: rank 0 is lost\n$");
}

}  // namespace
}  // namespace sinter::examples
