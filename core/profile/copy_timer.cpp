#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include <sinter/core/profile/copy_timer.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {
namespace {

constexpr int kSmallest = 10, kLargest = 28;  // copies of 1 KiB to 256 MiB
constexpr size_t kLeastRoom = size_t{64} << 20;
constexpr int64_t kCpuGrain = 256 << 10;
constexpr size_t kRuns = 7;  // the median counts
constexpr int kHeadStart = 4;

std::mutex times_mutex;

/// By device and exponent of the size.
std::map<std::pair<Device, int>, double>& known_times() {
  static auto& times = *new std::map<std::pair<Device, int>, double>;
  return times;
}

}  // namespace

/// A source and a destination of the same size, or none if the device has no room.
class CopyTimer::Buffers {
 public:
  explicit Buffers(Device device) : device_(device), backend_(backend_of(device)) {
    backend_.make_current(device.index);
  }
  ~Buffers() { release(); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  /// Makes room for copies of up to `bytes`; gives whether there is.
  bool reserve(size_t bytes) {
    const size_t room = std::max(bytes, kLeastRoom);
    if (room <= room_) return true;
    release();
    RawMemory& memory = backend_.raw_memory(device_.index);
    if (const size_t free = memory.capacity().free; free > 0 && free < 2 * room) return false;
    from_ = static_cast<std::byte*>(memory.allocate(room));
    to_ = from_ != nullptr ? static_cast<std::byte*>(memory.allocate(room)) : nullptr;
    if (to_ == nullptr) {
      release();
      return false;
    }
    room_ = room;
    // Pages that were never written to are not there yet, and zeros cost a GPU less power than data.
    const Stream stream = current_stream(device_);
    memory.fill(from_, 0x3c, room, stream.id);
    memory.fill(to_, 0x3c, room, stream.id);
    return true;
  }

  double time(size_t bytes) {
    const Stream stream = current_stream(device_);
    copy(bytes, stream);
    if (!device_.is_cpu()) {  // work for the GPU, so that it does not wait for the host afterwards
      for (int i = 0; i < kHeadStart; ++i) copy(room_, stream);
    }
    std::array<std::pair<std::unique_ptr<TimeMark>, std::unique_ptr<TimeMark>>, kRuns> marks;
    for (auto& [start, stop] : marks) {
      start = backend_.mark_time(stream);
      copy(bytes, stream);
      stop = backend_.mark_time(stream);
    }
    std::array<double, kRuns> times{};
    for (size_t i = 0; i < kRuns; ++i) times[i] = marks[i].second->microseconds_since(*marks[i].first);
    const auto middle = times.begin() + kRuns / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  /// The next `bytes` of the buffers.
  void copy(size_t bytes, const Stream& stream) {
    if (next_ + bytes > room_) next_ = 0;
    std::byte* const to = to_ + next_;
    const std::byte* const from = from_ + next_;
    next_ += bytes;
    if (!device_.is_cpu()) return backend_.copy(to, device_, from, device_, bytes, stream);
    parallel_for(static_cast<int64_t>(bytes), kCpuGrain, [to, from](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }

  void release() noexcept {
    if (from_ == nullptr) return;
    RawMemory& memory = backend_.raw_memory(device_.index);
    memory.deallocate(std::exchange(from_, nullptr));
    if (to_ != nullptr) memory.deallocate(std::exchange(to_, nullptr));
    room_ = next_ = 0;
  }

  Device device_;
  Backend& backend_;
  std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  size_t room_ = 0, next_ = 0;
};

CopyTimer::CopyTimer() = default;
CopyTimer::~CopyTimer() = default;

/// Of a copy of 2^exponent bytes; 0 if there is no room for it.
double CopyTimer::measured(Device device, int exponent) {
  const std::lock_guard lock(times_mutex);
  auto& times = known_times();
  if (const auto found = times.find({device, exponent}); found != times.end()) return found->second;
  auto& buffers = buffers_[device];
  if (buffers == nullptr) buffers = std::make_unique<Buffers>(device);
  const size_t bytes = size_t{1} << exponent;
  if (!buffers->reserve(bytes)) return 0.0;
  return times[{device, exponent}] = buffers->time(bytes);
}

double CopyTimer::microseconds(Device device, double bytes) {
  const double copied = bytes / 2;
  if (copied <= 0) return 0.0;
  const int below = std::clamp(static_cast<int>(std::floor(std::log2(copied))), kSmallest, kLargest);
  if (copied <= std::ldexp(1.0, kSmallest)) return measured(device, kSmallest);
  if (below < kLargest) {
    const double short_us = measured(device, below), long_us = measured(device, below + 1);
    const double part = copied / std::ldexp(1.0, below) - 1.0;
    if (short_us > 0 && long_us > 0) return short_us + part * (long_us - short_us);
  }
  for (int exponent = below; exponent >= kSmallest;
       --exponent) {  // the rate of the largest for which there is room
    const double us = measured(device, exponent);
    if (us > 0) return us * copied / std::ldexp(1.0, exponent);
  }
  return 0.0;
}

}  // namespace sinter
