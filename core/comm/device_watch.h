// Notices that work on a GPU fails, or waits for other ranks too long. Internal to core/comm.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <sinter/core/comm/collective_backend.h>
#include <sinter/core/comm/link/socket.h>

namespace sinter::comm {

struct DeviceWatchOptions {
  double timeout_seconds = 600.0;  ///< in which the next piece of work must have ended
  double poll_seconds = 0.2;
  const char* who = "its GPU";  ///< waits, in the error's words
  /// Called at most once, by the watch's thread: what waits for the work must be woken.
  std::function<void(const CommunicationError& error)> on_error = {};
};

/// A thread that asks a backend for errors of its work and for progress. Time in which this process was
/// stopped does not count. The thread that computes waits for
/// the device and cannot ask; that which says "alive" must wait for nobody, as calls of a driver may.
class DeviceWatch {
 public:
  /// The backend must outlive this.
  DeviceWatch(CollectiveBackend& backend, DeviceWatchOptions options);
  /// Ends at once, unless on_error is being called.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

 private:
  void run();
  void look(Deadline now);

  CollectiveBackend& backend_;
  const DeviceWatchOptions options_;
  int64_t ended_work_ = 0;
  Deadline moved_ = Clock::now();  // when work had ended, or there was none

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace sinter::comm
