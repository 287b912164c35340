#include <utility>

#include <sinter/core/op/node.h>
#include <sinter/nn/module/clone_scope.h>
#include <sinter/nn/module/variable.h>
#include <sinter/nn/module/variable_reads.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/permute/permute.h>

namespace sinter::nn {
namespace {

thread_local VariableReads* current_reads = nullptr;

/// A copy of filters in the other layout: `layout`.
Tensor turned(const Tensor& filters, Layout layout) {
  const NoGrad no_grad;
  return ops::copy(ops::permute(filters.detach(), layout == Layout::kNHWC
                                                      ? std::vector<int64_t>{0, 2, 3, 1}
                                                      : std::vector<int64_t>{0, 3, 1, 2}));
}

}  // namespace

VariableReads* Variable::set_reads(VariableReads* reads) {
  return std::exchange(current_reads, reads);
}

Variable::Variable(std::string name, const Tensor& canonical, const VariableOptions& options)
    : name_(std::move(name)), slot_(std::make_shared<Slot>(Slot{Tensor(), options})) {
  slot_->master = from_canonical(canonical);
}

Variable::Variable(const Variable& other)
    : name_(other.name_), slot_(detail::CloneScope::copy_of(other.slot_, &Variable::clone_slot)) {}

std::shared_ptr<Variable::Slot> Variable::clone_slot(const Slot& slot) {
  const NoGrad no_grad;
  auto copy = std::make_shared<Slot>(Slot{ops::copy(slot.master.detach()), slot.options});
  if (slot.working.defined()) copy->working = ops::copy(slot.working.detach());
  const Tensor& used = slot.working.defined() ? slot.working : slot.master;
  (copy->working.defined() ? copy->working : copy->master).set_requires_grad(used.requires_grad());
  return copy;
}

Variable Variable::renamed(std::string name) const {
  Variable copy = *this;
  copy.name_ = std::move(name);
  return copy;
}

const Tensor& Variable::tensor() const {
  if (current_reads != nullptr && slot_ != nullptr) [[unlikely]] {
    const Tensor& other = current_reads->see(*this);
    if (other.defined()) return other;
  }
  return is_mixed() ? slot_->working : master();
}

const Tensor& Variable::master() const {
  static const Tensor none;
  return slot_ != nullptr ? slot_->master : none;
}

void Variable::refresh_working() const {
  if (!is_mixed()) return;
  const NoGrad no_grad;
  ops::copy_(slot_->working, ops::cast(master(), slot_->working.dtype()));
}

Shape Variable::canonical_shape() const {
  const Shape& kept = shape();
  return is_permuted(tensor()) ? Shape{kept[0], kept[3], kept[1], kept[2]} : kept;
}

void Variable::assign(const Tensor& value) const {
  SINTER_CHECK(value.shape() == canonical_shape(),
               "[variable] '{}' has shape {} but a value of shape {} came", name_, canonical_shape(),
               value.shape());
  const DType own = master().dtype();
  SINTER_CHECK(value.dtype() == own || (is_float(value.dtype()) && is_float(own)),
               "[variable] '{}' is {} but a value of dtype {} came", name_, own, value.dtype());
  const NoGrad no_grad;
  const Tensor moved = ops::cast(value.detach().to(master().device()), own);
  ops::copy_(master(), is_permuted(master()) ? ops::permute(moved, {0, 2, 3, 1}) : moved);
  refresh_working();
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

Tensor Variable::follow(const Tensor& kept, Layout before) const {
  if (!kept.defined() || kept.rank() != 4 || layout() == before) return kept;
  return turned(kept, layout());
}

void Variable::to(Layout layout) const {
  if (!slot_->options.layout || *slot_->options.layout == layout) return;
  if (master().rank() == 4) {
    const Tensor grad = tensor().grad();
    const Tensor value = turned(master(), layout),
                 working = is_mixed() ? turned(slot_->working, layout) : Tensor();
    replace(value, working, grad.defined() ? turned(grad, layout) : grad);
  }
  slot_->options.layout = layout;
}

void Variable::to(Device device) const {
  if (slot_->options.on_host) return;
  const Tensor grad = tensor().grad();
  replace(master().to(device), is_mixed() ? slot_->working.to(device) : Tensor(),
          grad.defined() ? grad.to(device) : grad);
}

void Variable::to(DType dtype) const {
  if (!is_float(master().dtype())) return;
  const DType wanted = slot_->options.keep_float32 ? accumulate_dtype(dtype) : dtype;
  const NoGrad no_grad;
  const Tensor grad = tensor().grad();
  replace(ops::cast(master(), wanted), {}, grad.defined() ? ops::cast(grad, wanted) : grad);
}

void Variable::to_mixed(DType dtype) const {
  SINTER_CHECK(is_half(dtype), "[variable] expected float16 or bfloat16 for the working copy but got {}",
               dtype);
  if (!is_float(master().dtype())) return;
  if (slot_->options.keep_float32) return to(DType::kFloat32);
  const NoGrad no_grad;
  const Tensor grad = tensor().grad();
  const Tensor value = ops::cast(master(), DType::kFloat32);
  replace(value, ops::cast(value, dtype), grad.defined() ? ops::cast(grad, dtype) : grad);
}

void Variable::replace(const Tensor& master, const Tensor& working, const Tensor& grad) const {
  if (master.is_same(slot_->master) && working.is_same(slot_->working)) return;
  const bool requires_grad = tensor().requires_grad();
  // Detached: only the tensor that modules compute with takes part in autograd.
  slot_->master = master.detach();
  slot_->working = working.defined() ? working.detach() : working;
  tensor().set_requires_grad(requires_grad);
  tensor().set_grad(grad);
}

}  // namespace sinter::nn
