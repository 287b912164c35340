// The calls of a profile one by one, and their file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {

/// Keeps the first calls that it is given, and counts the others.
class Timeline {
 public:
  struct Call {
    const Op* op = nullptr;
    const Kernel* kernel = nullptr;
    std::string shapes, scope;
    Stream stream;
    std::thread::id thread;  ///< that called
    double queued_us = 0;    ///< when, since the profile began, by the host's clock
    double us = 0;           ///< how long it took on the device
    double bytes = 0, flops = 0;
  };

  explicit Timeline(size_t most) : most_(most) {}

  size_t most() const { return most_; }
  /// `start` is the mark before the call; the calls of a stream come in its order.
  void add(const Call& call, std::shared_ptr<const TimeMark> start);
  /// Throws IoError.
  void write(const std::filesystem::path& path, FileSystem& files) const;

 private:
  /// What runs in order: a stream of a GPU, a thread on the CPU.
  struct Lane {
    Device device;
    int number = 0;  // in the order in which they came, from 0
    int64_t end_ns = 0;
  };
  /// Where marks of a device stand on the host's clock.
  struct Origin {
    std::shared_ptr<const TimeMark> mark;
    double us = 0;
  };
  struct Event {
    const Op* op;
    const Kernel* kernel;
    const std::string* shapes;
    const std::string* scope;
    const Lane* lane;
    int64_t start_ns, ns;
    double bytes, flops;
  };

  Lane& lane_of(const Call& call);
  double start_of(const Call& call, std::shared_ptr<const TimeMark> start);

  const size_t most_;
  uint64_t left_out_ = 0;
  std::set<std::string> texts_;
  std::map<std::tuple<Device, StreamId, std::thread::id>, Lane> lanes_;
  std::map<Device, Origin> origins_;
  std::vector<Event> events_;
};

}  // namespace sinter
