// CallObserver: sees every kernel that runs, for profilers.
#pragma once

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

/// Installs `observer` for all threads, nullptr for none, and gives the one before. It is not owned, and must
/// stay until no thread is in an op that began before it was replaced.
CallObserver* set_call_observer(CallObserver* observer);

}  // namespace sinter
