// What reading a hostile file costs.
#pragma once

#include <cstdint>
#include <ctime>

#include <sys/resource.h>

namespace sinter::test {

/// What an attack may cost; sanitizers make everything slower and larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kMostSeconds = 30;
inline constexpr int64_t kMostMemory = int64_t{8} << 30;
#else
inline constexpr double kMostSeconds = 1;
inline constexpr int64_t kMostMemory = int64_t{512} << 20;
#endif

/// Seconds of processor time so far: what else the machine does is no part of it.
inline double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// The most memory that this process has had, in bytes.
inline int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace sinter::test
