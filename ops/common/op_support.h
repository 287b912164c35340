// What every op folder uses: finding its own definition, and calling it.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include <sinter/core/op/call.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>

namespace sinter::ops {

/// A built-in op: `static const Op& op = builtin("relu");`
inline const Op& builtin(std::string_view name) {
  return OpRegistry::instance().get(name);
}

/// Calls an op that has one output.
inline Tensor call_single(const Op& op, std::initializer_list<Tensor> inputs,
                          const Attributes& attributes = {}) {
  return std::move(call(op, inputs, attributes).front());
}

}  // namespace sinter::ops
