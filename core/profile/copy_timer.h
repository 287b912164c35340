// How long copies on a device take, for comparison with ops.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include <sinter/core/base/device.h>

namespace sinter {

/// Times copies inside the memory of devices; what OpProfile::Row::copy_share() compares with. Times are kept
/// for the rest of the process, the memory that was copied for as long as this lives; it is taken from the
/// device itself, not from the pool, whose counters do not show it.
class CopyTimer {
 public:
  CopyTimer();
  ~CopyTimer();
  CopyTimer(const CopyTimer&) = delete;
  CopyTimer& operator=(const CopyTimer&) = delete;

  /// Microseconds of a copy that reads and writes `bytes` bytes together, half and half. Waits for the
  /// calling thread's current stream of the device. 0 if the device has no memory left to try. Throws
  /// DeviceError.
  double microseconds(Device device, double bytes);

 private:
  class Buffers;

  double measured(Device device, int exponent);

  std::map<Device, std::unique_ptr<Buffers>> buffers_;
};

}  // namespace sinter
