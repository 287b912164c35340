// How many cases random tests draw, and from which seed on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace sinter::test {

/// SINTER_TEST_CASES, if that is set, or else `usual`.
inline int random_cases(int usual) {
  const char* const text = std::getenv("SINTER_TEST_CASES");
  return text != nullptr ? std::max(1, std::atoi(text)) : usual;
}

/// SINTER_TEST_SEED, if that is set, or else `usual`: of the first case.
inline uint64_t random_seed(uint64_t usual) {
  const char* const text = std::getenv("SINTER_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

/// For tests that draw another number than most, of which a user asks for fewer or more: as large a share of
/// `usual` as SINTER_TEST_CASES is of the 200 that each op draws.
inline int share_of_cases(int usual) {
  constexpr int kCasesOfAnOp = 200;
  return std::max(
      1, static_cast<int>(static_cast<long long>(usual) * random_cases(kCasesOfAnOp) / kCasesOfAnOp));
}

}  // namespace sinter::test
