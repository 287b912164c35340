// CallObserver: sees every kernel that runs, for profilers.
#pragma once

#include <string_view>

#include <sinter/core/op/registry.h>

namespace sinter {

/// Told about every kernel that call() runs, on the thread that calls. Views run none.
class CallObserver {
 public:
  virtual ~CallObserver() = default;

  /// What the kernel queues on `stream` lies between these two. An exception in `before` goes to the caller
  /// of the op; `after` is left out if the kernel throws.
  virtual void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream& stream) = 0;
  virtual void after(const Stream& stream) = 0;
};

/// While it lives, kernels that run on this thread belong to a part of the user's model: what call_scope()
/// gives to observers. A program sets it for each of its calls (GraphNode::scope); eager calls have none.
class CallScope {
 public:
  /// `scope` must outlive the guard.
  [[nodiscard]] explicit CallScope(std::string_view scope);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  std::string_view outer_;
};

/// Of the innermost CallScope of the calling thread; empty if there is none.
std::string_view call_scope();

/// Installs `observer` for all threads, nullptr for none, and gives the one before. It is not owned, and must
/// stay until no thread is in an op that began before it was replaced.
CallObserver* set_call_observer(CallObserver* observer);
/// The one that is installed, or nullptr.
CallObserver* call_observer();

}  // namespace sinter
