// Which GPUs this process has lost, and to what. Errors are the CUDA runtime's, as numbers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace sinter::cuda {

/// All members are safe to call from several threads, and reading does not wait.
class LostDevices {
 public:
  struct Loss {
    int error = 0;          ///< 0: the device is not lost
    const char* call = "";  ///< that met the error
  };

  /// What lost `device`: the first that was noted.
  Loss find(int device) const {
    const Slot& slot = slots_[index_of(device)];
    const int error = slot.error.load(std::memory_order_acquire);
    return error == 0 ? Loss{} : Loss{error, slot.call};
  }
  bool contains(int device) const { return find(device).error != 0; }
  bool any() const {
    return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.error != 0; });
  }

  /// Notes that `error`, which is not 0, has lost `device`. `call` is a literal.
  void add(int device, int error, const char* call) {
    const std::lock_guard lock(mutex_);
    Slot& slot = slots_[index_of(device)];
    if (slot.error != 0) return;
    slot.call = call;
    slot.error.store(error, std::memory_order_release);
  }

 private:
  static constexpr int kSlots = 64;  // GPUs beyond share the last

  struct Slot {
    std::atomic<int> error = 0;
    const char* call = "";  // written before the error
  };

  static size_t index_of(int device) { return static_cast<size_t>(std::clamp(device, 0, kSlots - 1)); }

  std::mutex mutex_;  // of add
  std::array<Slot, kSlots> slots_;
};

}  // namespace sinter::cuda
