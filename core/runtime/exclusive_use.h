// ExclusiveUse: notices a second call in an object that serves one at a time.
#pragma once

#include <atomic>

#include <sinter/core/base/error.h>

namespace sinter {

/// A member of an object whose calls must not overlap. Each call holds a Scope; one that begins while another
/// runs, of another thread or from within, is an error instead of a wrong result. Costs two atomic
/// instructions a call. A copy of the object is in nobody's use.
class ExclusiveUse {
 public:
  ExclusiveUse() = default;
  ExclusiveUse(const ExclusiveUse&) {}
  ExclusiveUse& operator=(const ExclusiveUse&) { return *this; }

  class [[nodiscard]] Scope {
   public:
    /// Throws InvalidArgument, which begins with `tag` and ends with `advice`, if another Scope lives.
    Scope(ExclusiveUse& use, const char* tag, const char* advice) : use_(use) {
      SINTER_CHECK(!use.taken_.exchange(true, std::memory_order_acquire),
                   "[{}] expected calls one after the other but got one while another runs, which would "
                   "spoil both: {}",
                   tag, advice);
    }
    ~Scope() { use_.taken_.store(false, std::memory_order_release); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ExclusiveUse& use_;
  };

 private:
  std::atomic<bool> taken_ = false;
};

}  // namespace sinter
