// The activation that a normalisation can have fused behind it.
#pragma once

#include <cstdint>
#include <string_view>

namespace sinter::ops::fused {

enum class Activation : uint8_t { kNone, kRelu, kPRelu };

constexpr std::string_view to_string(Activation activation) {
  return activation == Activation::kNone ? "none" : activation == Activation::kRelu ? "relu" : "prelu";
}

}  // namespace sinter::ops::fused
