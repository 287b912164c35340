#include <algorithm>
#include <cmath>

#include <sinter/core/base/checked.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/host_read.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/core/tensor/trace_access.h>

namespace sinter {
namespace {
thread_local HostReadObserver host_read_observer = nullptr;
}  // namespace

void set_host_read_observer(HostReadObserver observer) {
  host_read_observer = observer;
}

void note_host_read(const Tensor& tensor) {
  if (host_read_observer != nullptr) [[unlikely]]
    host_read_observer(tensor);
}

std::string to_string(const TensorSpec& spec) {
  return fmt::format("{} {} on {}", spec.dtype, spec.shape, spec.device);
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  auto impl = std::make_shared<Impl>();
  impl->spec = {shape, dtype, device};
  impl->storage = Storage::allocate(impl->spec.bytes(), device);
  return Tensor(std::move(impl));
}

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype, Device device) {
  auto impl = std::make_shared<Impl>();
  impl->spec = {shape, dtype, Device::cpu()};
  impl->storage = Storage::allocate_pinned(impl->spec.bytes(), device);
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0.0, dtype, device);
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  // Made on the CPU and copied: for set-up code. Kernels fill their outputs themselves, and ops::full runs on
  // the device.
  check_holds("full", dtype, value);
  Tensor made = empty(shape, dtype);
  dispatch_all(dtype, "full", [&]<class T> {
    std::fill_n(static_cast<T*>(made.raw_data()), made.numel(), static_cast<T>(value));
  });
  return made.to(device);
}

Tensor Tensor::from_bytes(const void* values, size_t count, const Shape& shape, DType dtype, Device device) {
  SINTER_CHECK(count == static_cast<size_t>(shape.numel()),
               "[tensor] shape {} has {} elements but {} values were given", shape, shape.numel(), count);
  Tensor made = empty(shape, dtype, device);
  copy_bytes(made.raw_data(), device, values, Device::cpu(), made.spec().bytes());
  if (!device.is_cpu()) synchronize(device);  // the values may be pinned: the caller may change them now
  return made;
}

Tensor Tensor::over(std::shared_ptr<Storage> storage, size_t offset_bytes, const TensorSpec& spec) {
  SINTER_CHECK(storage->device() == spec.device, "[tensor] storage on {} cannot hold a tensor on {}",
               storage->device(), spec.device);
  SINTER_CHECK(offset_bytes <= storage->bytes() && spec.bytes() <= storage->bytes() - offset_bytes,
               "[tensor] {} at byte {} does not fit into a storage of {} bytes", spec, offset_bytes,
               storage->bytes());
  auto impl = std::make_shared<Impl>();
  impl->spec = spec;
  impl->storage = std::move(storage);
  impl->offset_bytes = offset_bytes;
  return Tensor(std::move(impl));
}

double Tensor::item() const {
  SINTER_CHECK(numel() == 1, "[tensor] item() needs a tensor with one element but got shape {}", shape());
  return dispatch_all(dtype(), "item", [&]<class T> {
    T value{};
    copy_to_host(&value, dtype());
    return static_cast<double>(value);
  });
}

double Tensor::item_for(DType asked) const {
  const double value = item();
  if (asked != DType::kBool) check_holds("item", asked, std::trunc(value));
  return value;
}

Tensor Tensor::detach() const {
  if (is_traced()) return TraceAccess::make(impl_->spec, impl_->traced, false);
  return over(checked().storage, impl_->offset_bytes, impl_->spec);
}

Tensor Tensor::grad() const {
  return Tensor(checked().grad);
}

void Tensor::set_grad(const Tensor& grad) const {
  if (grad.defined()) {
    SINTER_CHECK(grad.spec() == spec(), "[tensor] a gradient must match its tensor: expected {} but got {}",
                 spec(), grad.spec());
  }
  checked();
  impl_->grad = grad.impl_;
}

void Tensor::fail_undefined() {
  throw InvalidArgument(
      "[tensor] expected a tensor but got an undefined one, such as the gradient of a leaf that no "
      "backward() "
      "has reached or that is frozen");
}

void Tensor::fail_traced() const {
  throw_error<InvalidArgument>(
      "[tensor] the value of a traced tensor is known only when the job runs: {}, {}, was asked for its "
      "value "
      "(by item(), data() or the like) while the job was traced; compute with ops, or do it outside of the "
      "job",
      impl_->traced->description(), impl_->spec);
}

void Tensor::check_host_access(DType asked) const {
  SINTER_CHECK(asked == dtype(), "[tensor] data<{}>() asked of a {} tensor", asked, dtype());
  if (is_traced()) fail_traced();
  SINTER_CHECK(device().is_cpu(),
               "[tensor] data() needs a tensor on the cpu but this one is on {}; use to() first", device());
  note_host_read(*this);
}

void Tensor::copy_to_host(void* values, DType asked) const {
  SINTER_CHECK(asked == dtype(), "[tensor] {} values asked of a {} tensor; use ops::cast first", asked,
               dtype());
  if (!is_traced()) note_host_read(*this);
  copy_bytes(values, Device::cpu(), raw_data(), device(), spec().bytes());
  synchronize(device());
}

}  // namespace sinter
