#pragma once

#include <sinter/core/runtime/settings.h>

namespace sinter::test {

/// As long as it lives, equal calls give equal bits, on a GPU too.
class Deterministic {
 public:
  Deterministic() { settings::set_deterministic(true); }
  ~Deterministic() { settings::set_deterministic(before_); }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  bool before_ = settings::deterministic();
};

}  // namespace sinter::test
