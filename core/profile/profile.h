// OpProfile: where the time of a program's op calls goes, by op and kernel, and call after call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/file_system/file_system.h>

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
///
/// While a profile runs, jobs run call by call (core/executor/program.h): the sum of their calls is more than
/// a step takes as one launch.
class OpProfile {
 public:
  struct Options {
    bool by_shape = false;  ///< a row of its own for all inputs and outputs of the same dtypes and shapes
    bool by_scope = false;  ///< a row of its own for each part of the model from which a job calls the op
    /// How many calls are kept one by one for write_trace(), the first ones; 0: none. Each takes about 80
    /// bytes.
    size_t timeline = 0;
  };

  /// The calls of one op that ran on one kernel and device.
  struct Row {
    std::string op, kernel;
    std::string shapes;  ///< "float32 (2, 3), none -> float32 (2, 3)" with by_shape, else empty
    std::string scope;   ///< "layer1.0.conv1" with by_scope (GraphNode::scope); empty for eager calls
    Device device;
    uint64_t calls = 0;
    double device_us = 0;  ///< microseconds on the device, of all calls
    double host_us = 0;    ///< microseconds that the calling thread spent in the kernel's host code
    double bytes = 0;      ///< of all inputs and outputs
    double copy_us = 0;    ///< what copies of so many bytes take, call by call; 0 if no copy could be timed
    double flops = 0;      ///< floating-point operations, of ops that count them (OpDef::flops)

    /// Bytes per second as a share of what a copy reaches. The copy reads one half of the call's bytes and
    /// writes the other, from and to the device's own memory, on the CPU on all threads. It is timed as calls
    /// are, once per device and size: for powers of two up to 256 MiB read, in places that no other copy has
    /// used for at least 64 MiB, so that small caches do not help; between them times are interpolated, and
    /// above the rate stays. A call that finds its inputs in a cache, or reads only part of them, may pass
    /// 100 %.
    double copy_share() const { return device_us > 0 ? copy_us / device_us : 0.0; }
    /// 10^12 floating-point operations per second.
    double teraflops() const { return device_us > 0 ? 1e-6 * flops / device_us : 0.0; }
  };

  /// Which rows are shown. Rows that differ only in what is false here are added up; what is true says
  /// nothing unless Options has it too.
  struct Selection {
    bool by_shape = true;
    bool by_scope = true;
    size_t max_rows =
        std::numeric_limits<size_t>::max();  ///< the longest so many; the table adds up the others
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

  /// What has been timed so far, the longest device time first. Waits for the devices to get there, and times
  /// copies that no profile of the process has timed yet, with up to 512 MiB of the device's free memory; if
  /// it has less, smaller ones.
  std::vector<Row> rows() const { return rows(Selection{}); }
  std::vector<Row> rows(const Selection& selection) const;
  /// The rows as text, with shares of the whole, times per call and a line of totals. Lines have 120
  /// characters at most where names are not very long; shapes stand at their end and may pass that. Times are
  /// "time ms" for all calls, "us/call" on the device and "host us" for each; "GB" counts all inputs and
  /// outputs, "of copy" is Row::copy_share(), and "TFLOP/s" Row::teraflops().
  std::string table() const { return table(Selection{}); }
  std::string table(const Selection& selection) const;

  /// Writes the calls that Options::timeline keeps to a file that chrome://tracing and ui.perfetto.dev show:
  /// JSON with "traceEvents", among them one with "ph" "X" for each call, whose "ts" and "dur" are
  /// microseconds since the profile began, "pid" is the device and "tid" its stream or, on the CPU, the
  /// calling thread, both numbered as they came. "args" has kernel, shapes, scope, bytes and, where they are
  /// counted, flops. A file that was there is replaced in one step. Waits for the devices; calls of other
  /// threads wait for it. Throws InvalidArgument if no calls are kept, and IoError with the path and what the
  /// system says.
  void write_trace(const std::filesystem::path& path, FileSystem& files = FileSystem::native()) const;

 private:
  class Record;
  class Observer;

  std::shared_ptr<Record> record_;
};

}  // namespace sinter
