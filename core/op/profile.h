// OpProfile: where the time of a program's op calls goes, by op and kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>

namespace sinter {

/// Times every op call of every thread between its construction and stop().
///
///   OpProfile profile;
///   train();
///   profile.stop();
///   fmt::print("{}", profile.table());
///
/// Marks around each call cost some microseconds of host time on a GPU. There, a call lasts from the end of
/// the work before it on its stream to its own end: if the GPU had to wait for the host, that is counted too,
/// so rows of small ops on an idle GPU show the host's time. Calls that only make a view are not counted.
class OpProfile {
 public:
  struct Options {
    bool by_shape = false;  ///< a row of its own for all inputs and outputs of the same dtypes and shapes
  };

  /// The calls of one op that ran on one kernel and device.
  struct Row {
    std::string op, kernel;
    std::string shapes;  ///< "float32 (2, 3), none -> float32 (2, 3)" with by_shape, else empty
    Device device;
    uint64_t calls = 0;
    double device_us = 0;  ///< microseconds on the device, of all calls
    double host_us = 0;    ///< microseconds that the calling thread spent in the kernel's host code
    double bytes = 0;      ///< of all inputs and outputs
  };

  /// Throws InvalidArgument while another profile is running, or another CallObserver: they would time each
  /// other.
  OpProfile() : OpProfile(Options{}) {}
  explicit OpProfile(const Options& options);
  ~OpProfile();
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;

  /// Ends the timing; calls under way on other threads still count. A second call does nothing.
  void stop();

  /// What has been timed so far, the longest device time first. Waits for the devices to get there.
  std::vector<Row> rows() const;
  /// The rows as text, with shares of the whole, times per call and a line of totals.
  std::string table() const;

 private:
  class Record;
  class Observer;

  std::shared_ptr<Record> record_;
};

}  // namespace sinter
