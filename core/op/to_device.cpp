// Tensor::to(Device): the one recorded computation whose result is on another device, and therefore no op of
// the registry, whose inputs and outputs are on one.
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/trace_access.h>

namespace sinter {
namespace {

std::vector<Tensor> to_device_gradient(const GradientContext& context) {
  return {context.grad().to(context.input_spec(0).device)};
}

const Op& to_device_op() {
  static const Op* const op = [] {
    auto* made = new Op;  // outlives every static tensor
    made->definition.name = "to_device";
    made->definition.inputs = {{.name = "x"}};
    made->definition.outputs = {{.name = "y"}};
    made->definition.gradient = to_device_gradient;
    return made;
  }();
  return *op;
}

}  // namespace

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  SINTER_CHECK(!is_traced(), "[tensor] a job runs on one device: {} cannot go to {} while the job is traced",
               TraceAccess::value(*this)->description(), device);
  Tensor copy = empty(shape(), dtype(), device);
  copy_bytes(copy.raw_data(), device, raw_data(), this->device(), spec().bytes());
  if (storage()->pinned()) synchronize(device);  // the caller may change it now
  if (requires_grad() && grad_enabled()) record_copy(to_device_op(), *this, copy);
  return copy;
}

}  // namespace sinter
