#pragma once

#include <sinter/core/runtime/thread_pool.h>

namespace sinter::test {

/// As long as it lives, kernels run on so many threads.
class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace sinter::test
