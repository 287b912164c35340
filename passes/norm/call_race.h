// Which of several ways to make the same calls is the fastest: timed once, then remembered in memory and on
// the disk (core/runtime/plan_cache.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/graph.h>

namespace sinter::passes {

/// Calls copied out of a job's graph into one of their own, on tensors of their own.
class CopiedCalls {
 public:
  explicit CopiedCalls(Device device) : device_(device) {}

  /// The copy of a call. What copies before it give it reads from them; for all else there are new tensors.
  GraphNode& add(const GraphNode& node);
  /// To be edited before the calls are timed.
  Graph& graph() { return *graph_; }

  /// Microseconds of all calls, one after the other and out of a cold cache: a median. `accepts` sees the
  /// program before anything runs; if it returns false, Unsupported is thrown. Takes the graph. Throws
  /// Unsupported and OutOfMemory.
  double time(const std::function<bool(const Program&)>& accepts = {});

 private:
  Device device_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::map<const GraphValue*, GraphValue*> twins_{{nullptr, nullptr}};
};

/// One way to make the calls.
struct Contender {
  std::string name;              ///< what files remember it by
  std::function<double()> time;  ///< microseconds; throws if it cannot run
};

struct RaceResult {
  size_t winner = 0;
  /// By contender: what was measured now; nothing if that one failed, or if the winner was remembered.
  std::vector<std::optional<double>> times;
};

/// The fastest of the contenders for a problem on a device. Files remember it under `topic`, which says what
/// the race is about and names the versions of libraries that decide. One race at a time: others would
/// disturb its times. Without autotuning a problem that nobody timed goes to the first. A contender that
/// fails is out; throws DeviceLost if it is the GPU that is lost.
RaceResult race(Device device, const std::string& topic, const std::string& problem,
                std::span<const Contender> contenders);

}  // namespace sinter::passes
