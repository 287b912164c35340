#include <chrono>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include <sinter/core/runtime/cpu_backend.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {
namespace {

constexpr size_t kCpuAlignment = 64;  // a cache line, and the widest vector

class CpuMemory final : public RawMemory {
 public:
  void* allocate(size_t bytes) override {
    if (bytes > SIZE_MAX - kCpuAlignment) return nullptr;
    return std::aligned_alloc(kCpuAlignment, (bytes + kCpuAlignment - 1) / kCpuAlignment * kCpuAlignment);
  }
  void deallocate(void* block) noexcept override { std::free(block); }
  void fill(void* block, uint8_t byte, size_t bytes, StreamId) override { std::memset(block, byte, bytes); }

  // Work on the CPU is finished when a call returns, so one event that is always done serves all.
  void* record_event(StreamId) override { return this; }
  bool event_done(void*) override { return true; }
  void wait_event(void*) override {}
  void release_event(void*) noexcept override {}

  Capacity capacity() override {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
            static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
  }
  std::string name() const override { return "cpu"; }
};

/// Work on the CPU is finished when a call returns, so a mark is a reading of the clock.
class CpuTimeMark final : public TimeMark {
 public:
  double microseconds_since(const TimeMark& earlier) const override {
    return std::chrono::duration<double, std::micro>(at_ - static_cast<const CpuTimeMark&>(earlier).at_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point at_ = std::chrono::steady_clock::now();
};

class CpuBackend final : public Backend {
 public:
  DeviceType type() const override { return DeviceType::kCpu; }
  int device_count() override { return 1; }
  std::string unavailable_reason() override { return {}; }
  std::string describe(int) override {
    return fmt::format("cpu: {} thread{}, {} GiB memory", num_threads(), num_threads() == 1 ? "" : "s",
                       memory_.capacity().total >> 30);
  }
  void make_current(int) override {}
  MemoryPool& memory_pool(int) override { return pool_; }
  MemoryPool& pinned_pool(int) override { return pool_; }
  RawMemory& raw_memory(int) override { return memory_; }
  Stream default_stream(int) override { return {}; }
  Stream create_stream(int) override { return {}; }
  Workspace& workspace(const Stream&) override {
    // Several threads may run ops at once (a trainer and its loader), so each has its own arena.
    thread_local Workspace workspace(pool_, 0);
    return workspace;
  }
  void synchronize(const Stream&) override {}
  void stream_wait(const Stream&, void*) override {}
  void copy(void* to, Device, const void* from, Device, size_t bytes, const Stream&) override {
    std::memcpy(to, from, bytes);
  }
  std::unique_ptr<TimeMark> mark_time(const Stream&) override { return std::make_unique<CpuTimeMark>(); }
  void push_range(const char*) override {}
  void pop_range() noexcept override {}

 private:
  CpuMemory memory_;
  MemoryPool pool_{memory_, {.mode = pool_mode_from_environment(), .byte_limit = {}}};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace sinter
