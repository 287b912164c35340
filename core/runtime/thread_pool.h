// The CPU's worker threads, shared by all kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace sinter {

/// How many threads a kernel may use, the caller's included. Starts from the environment variable
/// SINTER_THREADS, else the number of processors that this process may run on. Kernels ask their KernelQuery
/// and KernelContext instead, which agree whatever happens between choosing and running.
int num_threads();

/// Changes the number; 1 <= count <= 1024, else InvalidArgument. Waits for the parallel_for that runs.
void set_num_threads(int count);

/// Splits [0, count) into ranges of about `grain` items or more and calls `body(begin,
/// end)` on each, on several threads; returns when all have finished. The caller takes part. Runs on the
/// calling thread alone when there is too little work or when called from inside another parallel_for. The
/// ranges depend only on count, grain and num_threads(), never on timing. The first exception of a body is
/// rethrown here.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

/// While one lives, parallel_for runs in place when this thread calls it: for threads that work beside the
/// one that computes, and would else take the workers from it.
class SerialGuard {
 public:
  [[nodiscard]] SerialGuard();
  ~SerialGuard();
  SerialGuard(const SerialGuard&) = delete;
  SerialGuard& operator=(const SerialGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace sinter
