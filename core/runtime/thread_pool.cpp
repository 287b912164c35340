#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include <sched.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>

#define EIGEN_USE_THREADS
#include <unsupported/Eigen/CXX11/ThreadPool>

namespace sinter {
namespace {

constexpr int kMaxThreads = 1024;

int default_threads() {
  if (const char* text = std::getenv("SINTER_THREADS"); text != nullptr) {
    char* end = nullptr;
    const long count = std::strtol(text, &end, 10);
    SINTER_CHECK(end != text && *end == '\0' && count >= 1 && count <= kMaxThreads,
                 "[threads] SINTER_THREADS must be a number from 1 to {} but is '{}'", kMaxThreads, text);
    return static_cast<int>(count);
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    return std::clamp(CPU_COUNT(&allowed), 1, kMaxThreads);
  return 1;
}

struct Workers {
  int threads = default_threads();
  std::unique_ptr<Eigen::ThreadPool> pool;  // threads - 1 workers; null when there is one thread

  void start() {
    pool.reset();
    if (threads > 1) pool = std::make_unique<Eigen::ThreadPool>(threads - 1);
  }
  Workers() { start(); }
};

// Never destroyed: joining threads while a process exits is a source of hangs, and the kernel ends them
// anyway.
Workers& workers() {
  static Workers* instance = new Workers;
  return *instance;
}

thread_local bool inside_parallel_for = false;

}  // namespace

int num_threads() {
  return workers().threads;
}

void set_num_threads(int count) {
  SINTER_CHECK(count >= 1 && count <= kMaxThreads, "[threads] expected 1 to {} threads but got {}",
               kMaxThreads, count);
  if (count == workers().threads) return;
  workers().threads = count;
  workers().start();
}

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  Workers& crew = workers();
  grain = std::max<int64_t>(grain, 1);
  const int64_t parts = std::min<int64_t>(crew.threads, (count + grain - 1) / grain);
  if (parts <= 1 || inside_parallel_for) return body(0, count);

  std::mutex mutex;
  std::exception_ptr error;
  const auto run_part = [&](int64_t part) {
    inside_parallel_for = true;
    try {
      body(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    inside_parallel_for = false;
  };
  Eigen::Barrier barrier(static_cast<unsigned>(parts - 1));
  for (int64_t part = 1; part < parts; ++part) {
    crew.pool->Schedule([&, part] {
      run_part(part);
      barrier.Notify();
    });
  }
  run_part(0);
  barrier.Wait();
  if (error) std::rethrow_exception(error);
}

}  // namespace sinter
