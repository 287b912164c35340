// A fork-join pool: parallel_for hands the same body to all workers at once and waits for them.
//
// Why not a pool with queues: a kernel of a small network takes 20 to 100 microseconds, and waking a sleeping
// worker takes about 15. So workers look for the next job for a moment before they sleep, and the caller does
// the same while it waits for them; a queue per worker would buy nothing, since all parts of a job start
// together.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {
namespace {

constexpr int kMaxThreads = 1024;

/// How long a thread looks for news before it sleeps: a few times the cost of waking it.
constexpr auto kSpinTime = std::chrono::microseconds(50);

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

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `value` differs from `old`: first looking, then asleep.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 64; ++i) {
      if (const T now = value.load(std::memory_order_acquire); now != old) return now;
      pause();
    }
    std::this_thread::yield();  // on a busy machine, what is waited for may be queued for this very processor
  } while (std::chrono::steady_clock::now() < deadline);
  T now = old;
  while ((now = value.load(std::memory_order_acquire)) == old) value.wait(old, std::memory_order_acquire);
  return now;
}

/// The threads beside the caller. One job at a time.
class Workers {
 public:
  /// Starts `count` threads or, where the system gives no more, fewer: the results are the same, later.
  explicit Workers(int count) {
    threads_.reserve(static_cast<size_t>(count));
    std::string reason;
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error& error) {
      reason = error.code().message();
    } catch (const std::bad_alloc&) {
      reason = "out of memory";
    }
    if (reason.empty()) return;
    log::warning("[threads] only {} of {} threads could be started ({}); the work is shared among them",
                 threads_.size() + 1, count + 1, reason);
  }
  ~Workers() {
    stop_ = true;
    announce();
    for (std::thread& thread : threads_) thread.join();
  }

  /// Runs `part(i)` for i in [0, parts): the caller takes the parts 0, n, 2 n, ... of n threads, the first
  /// worker 1, n + 1, ..., and so on. `part` must not throw.
  void run(int parts, const std::function<void(int)>& part) {
    parts_ = parts;
    part_ = &part;
    unfinished_.store(std::min(parts, crew_size()) - 1, std::memory_order_relaxed);
    announce();
    run_share(0, parts, part);
    for (int left = unfinished_.load(std::memory_order_acquire); left != 0;)
      left = wait_for_change(unfinished_, left);
    // Workers without a part may still be reading this job; they must be through before the next one is
    // written.
    for (int left = readers_.load(std::memory_order_acquire); left != 0;)
      left = wait_for_change(readers_, left);
  }

 private:
  int crew_size() const { return static_cast<int>(threads_.size()) + 1; }

  void run_share(int first, int parts, const std::function<void(int)>& part) const {
    for (int i = first; i < parts; i += crew_size()) part(i);
  }

  void announce() {
    readers_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    job_.fetch_add(1, std::memory_order_release);
    job_.notify_all();
  }

  void serve(int index) {
    uint32_t job = 0;
    for (;;) {
      job = wait_for_change(job_, job);
      const bool stop = stop_;
      const int parts = parts_;
      const std::function<void(int)>* part = part_;
      if (readers_.fetch_sub(1, std::memory_order_acq_rel) == 1) readers_.notify_one();
      if (stop) return;
      if (index + 1 >= parts) continue;
      run_share(index + 1, parts, *part);
      if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::atomic<uint32_t> job_ = 0;    // counts the jobs
  std::atomic<int> unfinished_ = 0;  // parts of the present job on workers
  std::atomic<int> readers_ = 0;     // workers that have not looked at the present job yet
  bool stop_ = false;                // these three are written before job_ and read after it
  int parts_ = 0;
  const std::function<void(int)>* part_ = nullptr;
};

struct Crew {
  std::atomic<int> threads = default_threads();
  std::unique_ptr<Workers> workers;  // null until the first job, and when there is one thread
  std::mutex busy;                   // held while a job runs
};

std::atomic<Crew*> crew_to_forget = nullptr;

/// In a process that fork() has made only the thread that called it goes on: its first job starts workers of
/// its own. Those of the parent, which are not there to be joined, and the lock, which one of the parent's
/// threads may hold, are left as they are.
void forget_workers() {
  Crew& all = *crew_to_forget.load();
  static_cast<void>(all.workers.release());
  new (&all.busy) std::mutex;
}

// Never destroyed: joining threads while a process exits is a source of hangs, and the kernel ends them
// anyway.
Crew& crew() {
  static Crew* const instance = [] {
    Crew* const made = new Crew;
    crew_to_forget = made;
    ::pthread_atfork(nullptr, nullptr, forget_workers);
    return made;
  }();
  return *instance;
}

thread_local bool inside_parallel_for = false;
thread_local bool inside_body = false;  // the same, but for threads that only hold a SerialGuard

/// While one lives, this thread runs the body of a parallel_for.
class BodyGuard {
 public:
  BodyGuard() : previous_(inside_body) { inside_body = true; }
  ~BodyGuard() { inside_body = previous_; }
  BodyGuard(const BodyGuard&) = delete;
  BodyGuard& operator=(const BodyGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace

SerialGuard::SerialGuard() : previous_(inside_parallel_for) {
  inside_parallel_for = true;
}
SerialGuard::~SerialGuard() {
  inside_parallel_for = previous_;
}

int num_threads() {
  return crew().threads.load(std::memory_order_relaxed);
}

void set_num_threads(int count) {
  SINTER_CHECK(count >= 1 && count <= kMaxThreads, "[threads] expected 1 to {} threads but got {}",
               kMaxThreads, count);
  SINTER_CHECK(
      !inside_body,
      "[threads] expected set_num_threads outside of parallel_for but it was called within one, which "
      "it would wait for");
  const std::lock_guard lock(crew().busy);
  if (count == crew().threads) return;
  crew().workers.reset();
  crew().threads = count;
}

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  Crew& all = crew();
  grain = std::max<int64_t>(grain, 1);
  const int64_t parts = std::min<int64_t>(num_threads(), (count + grain - 1) / grain);
  if (parts <= 1 || inside_parallel_for) {
    const BodyGuard in_body;
    return body(0, count);
  }

  std::mutex mutex;
  std::exception_ptr error;
  const std::function<void(int)> run_part = [&](int part) {
    const SerialGuard inside;
    const BodyGuard in_body;
    try {
      body(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  if (const std::unique_lock lock(all.busy, std::try_to_lock); lock.owns_lock()) {
    if (all.workers == nullptr) all.workers = std::make_unique<Workers>(all.threads - 1);
    all.workers->run(static_cast<int>(parts), run_part);
  } else {
    // Another thread's job has the workers: the same parts, one after the other, give the same result.
    for (int part = 0; part < static_cast<int>(parts); ++part) run_part(part);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace sinter
