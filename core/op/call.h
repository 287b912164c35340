// Calling an op: the one way from a user's function into a kernel.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include <sinter/core/op/registry.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Checks the inputs against the schema, infers the outputs, picks a kernel, runs it on the current stream
/// and, if an input requires a gradient and recording is on, records the call. Returns the outputs that this
/// call has. Throws InvalidArgument (inputs, attributes), Unsupported (no kernel), OutOfMemory and
/// DeviceError.
std::vector<Tensor> call(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {});

inline std::vector<Tensor> call(const Op& op, std::initializer_list<Tensor> inputs,
                                const Attributes& attributes = {}) {
  return call(op, std::span<const Tensor>(inputs.begin(), inputs.size()), attributes);
}

}  // namespace sinter
