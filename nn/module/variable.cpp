#include <utility>

#include <sinter/core/op/node.h>
#include <sinter/nn/module/variable.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/permute/permute.h>

namespace sinter::nn {

Variable::Variable(std::string name, const Tensor& canonical, const VariableOptions& options)
    : name_(std::move(name)), slot_(std::make_shared<Slot>(Slot{Tensor(), options})) {
  slot_->tensor = from_canonical(canonical);
}

Variable Variable::renamed(std::string name) const {
  Variable copy = *this;
  copy.name_ = std::move(name);
  return copy;
}

const Tensor& Variable::tensor() const {
  static const Tensor none;
  return slot_ != nullptr ? slot_->tensor : none;
}

Shape Variable::canonical_shape() const {
  const Shape& kept = shape();
  return is_permuted(tensor()) ? Shape{kept[0], kept[3], kept[1], kept[2]} : kept;
}

void Variable::assign(const Tensor& value) const {
  SINTER_CHECK(value.shape() == canonical_shape(),
               "[variable] '{}' has shape {} but a value of shape {} came", name_, canonical_shape(),
               value.shape());
  SINTER_CHECK(value.dtype() == tensor().dtype() || (is_float(value.dtype()) && is_float(tensor().dtype())),
               "[variable] '{}' is {} but a value of dtype {} came", name_, tensor().dtype(), value.dtype());
  const NoGrad no_grad;
  const Tensor moved = ops::cast(value.detach().to(tensor().device()), tensor().dtype());
  ops::copy_(tensor(), is_permuted(tensor()) ? ops::permute(moved, {0, 2, 3, 1}) : moved);
}

Tensor Variable::to_canonical(const Tensor& kept) const {
  const NoGrad no_grad;
  const Tensor value = kept.detach();
  return is_permuted(value) ? ops::permute(value, {0, 3, 1, 2}) : ops::copy(value);
}

Tensor Variable::from_canonical(const Tensor& canonical) const {
  const NoGrad no_grad;
  const Tensor value = canonical.detach();
  return is_permuted(value) ? ops::permute(value, {0, 2, 3, 1}) : ops::copy(value);
}

void Variable::to(Device device) const {
  if (slot_->options.on_host) return;
  const Tensor grad = tensor().grad();
  replace(tensor().to(device), grad.defined() ? grad.to(device) : grad);
}

void Variable::to(DType dtype) const {
  if (!is_float(tensor().dtype())) return;
  const DType wanted = slot_->options.keep_float32 ? accumulate_dtype(dtype) : dtype;
  const NoGrad no_grad;
  const Tensor grad = tensor().grad();
  replace(ops::cast(tensor(), wanted), grad.defined() ? ops::cast(grad, wanted) : grad);
}

void Variable::replace(const Tensor& value, const Tensor& grad) const {
  if (value.is_same(tensor())) return;
  const bool requires_grad = tensor().requires_grad();
  slot_->tensor = value.detach();
  slot_->tensor.set_requires_grad(requires_grad);
  slot_->tensor.set_grad(grad);
}

}  // namespace sinter::nn
