// Which of two ways to make the same calls is the faster: timed once, then remembered in memory and on the
// disk (core/runtime/plan_cache.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/graph.h>
#include <sinter/core/timing/time_budget.h>
#include <sinter/passes/pass.h>

namespace sinter::passes {

/// Calls copied out of a job's graph into one of their own, on tensors of their own.
class CopiedCalls {
 public:
  explicit CopiedCalls(Device device) : device_(device) {}

  /// The copy of a call. What copies before it give it reads from them; for all else there are new tensors.
  GraphNode& add(const GraphNode& node);
  /// To be edited before the calls are timed.
  Graph& graph() { return *graph_; }

  /// Microseconds of all calls, one after the other and out of a cold cache: as `budget`
  /// measures them. `accepts` sees the program before anything runs; if it returns false, Unsupported is
  /// thrown. Takes the graph. Throws Unsupported and OutOfMemory.
  double time(TimeBudget& budget, const std::function<bool(const Program&)>& accepts = {});

 private:
  Device device_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  std::map<const GraphValue*, GraphValue*> twins_{{nullptr, nullptr}};
};

/// One way to make the calls.
struct Contender {
  std::string name;                                ///< what files remember it by
  std::function<double(TimeBudget& budget)> time;  ///< microseconds; throws if it cannot run
};

struct Race {
  Device device;
  /// What files remember the result under: what the race is about, with the versions of libraries that
  /// decide, and the problem.
  std::string topic, problem;
  Contender usual, other;
  std::string usual_words;  ///< of the usual way, for the verdict: "with a pass of its own"
};

/// Whether the other way is taken, and why.
struct Verdict {
  bool other = false;
  std::string reason;
};

/// The verdict on a problem. One race at a time: others would disturb its times. Without autotuning a problem
/// that nobody timed stays with the usual way, and with settings::deterministic() all do, for the bits would
/// depend on a measurement. A way that fails is out; throws DeviceLost if it is the GPU that is lost.
Verdict run_race(const Race& race);

/// Calls that a pass left as they were, by reason, so that a report has one line for many: "sums of bn1 and 2
/// more: slower".
class LeftCalls {
 public:
  void add(const std::string& reason, std::string name) { names_[reason].push_back(std::move(name)); }
  /// Each line between `before` and `behind`, which stands in front of the reason.
  void report(PassContext& context, const std::string& before, const std::string& behind) const;

 private:
  std::map<std::string, std::vector<std::string>> names_;
};

}  // namespace sinter::passes
