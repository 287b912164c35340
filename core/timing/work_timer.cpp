#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/timing/work_timer.h>

namespace sinter {
namespace {

constexpr uint8_t kFiller =
    0x3C;  // repeated, it reads as 0.0115 in float32 and bfloat16 and as 1.06 in float16
// Microseconds; other programs take a core for tens of thousands.
constexpr double kLongOnCpu = 2e5;
constexpr size_t kLeastFlush = size_t{32} << 20;
constexpr size_t kMostFlush = size_t{256} << 20;

/// One for each device, since streams live until the program ends.
Stream timing_stream(Backend& backend, Device device) {
  static std::mutex mutex;
  static auto& streams = *new std::map<Device, Stream>;
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, backend.create_stream(device.index)).first->second;
}

class DeviceTimer final : public WorkTimer {
 public:
  explicit DeviceTimer(Device device) : backend_(backend_of(device)) {
    backend_.make_current(device.index);
    // Other streams' work would be timed too.
    if (!backend_.wait_until_idle(device.index)) {
      throw_error<Unsupported>("[timing] work on {} cannot be timed while work is being captured", device);
    }
    stream_ = timing_stream(backend_, device);
    const size_t cache = backend_.cache_bytes(device.index);
    if (cache > 0) flush_bytes_ = std::clamp(4 * cache, kLeastFlush, kMostFlush);
    flush_ = scratch(flush_bytes_);
  }

  ~DeviceTimer() override {
    try {
      backend_.synchronize(stream_);
    } catch (const Error& error) {
      log::debug("[timing] {}", error.what());  // whoever timed has met it too
    }
  }

  const Stream& stream() const override { return stream_; }

  void* scratch(size_t bytes) override {
    if (bytes == 0) return nullptr;
    blocks_.push_back(allocate(bytes));
    void* const block = blocks_.back().get();
    memory().fill(block, kFiller, bytes, stream_.id);
    return block;
  }

  double measure(const std::function<void()>& queue, TimeBudget& budget) override {
    const auto run = [&] {
      // The flush also keeps a GPU busy while the host queues the work, so that the host's time is not
      // measured.
      if (flush_ != nullptr) memory().fill(flush_, kFiller, flush_bytes_, stream_.id);
      const auto start = backend_.mark_time(stream_);
      const auto host_start = std::chrono::steady_clock::now();
      queue();
      const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - host_start;
      const double time = backend_.mark_time(stream_)->microseconds_since(*start);
      return RunTime{time, std::min(host.count(), time)};
    };
    return budget.measure(run, stream_.device.is_cpu() ? kLongOnCpu : TimeBudget::kLong);
  }

 private:
  struct Free {
    RawMemory* memory;
    void operator()(void* block) const noexcept { memory->deallocate(block); }
  };
  using Block = std::unique_ptr<void, Free>;

  RawMemory& memory() { return backend_.raw_memory(stream_.device.index); }

  Block allocate(size_t bytes) {
    void* block = memory().allocate(bytes);
    if (block == nullptr) {
      backend_.memory_pool(stream_.device.index).trim();
      block = memory().allocate(bytes);
    }
    if (block == nullptr) {
      throw_error<OutOfMemory>("[timing] no room for {} bytes in which to time work on {}", bytes,
                               stream_.device);
    }
    return Block(block, Free{&memory()});
  }

  Backend& backend_;
  Stream stream_;
  std::vector<Block> blocks_;
  size_t flush_bytes_ = 0;
  void* flush_ = nullptr;
};

}  // namespace

std::unique_ptr<WorkTimer> make_work_timer(Device device) {
  return std::make_unique<DeviceTimer>(device);
}

}  // namespace sinter
