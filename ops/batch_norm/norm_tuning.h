// TEMPORARY experiment switches.
#pragma once
#include <cstdlib>
namespace sinter::ops {
inline int norm_tuning(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}
}  // namespace sinter::ops
