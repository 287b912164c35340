// The methods of Tensor that call ops. They are declared in core, which is below and may not call them.
#include <algorithm>

#include <sinter/core/tensor/tensor.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/gather/gather.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/tensor/statistics.h>
#include <sinter/ops/where/where.h>

namespace sinter {
namespace {

/// The places that a Slice has of an axis of this extent.
struct Places {
  int64_t begin, end;  // begin <= end
};

Places places_of(const Slice& slice, int64_t extent) {
  SINTER_CHECK(slice.step > 0, "[slice] expected a step > 0 but got {}", slice.step);
  const auto within = [&](int64_t place) {
    return std::clamp<int64_t>(place < 0 ? place + extent : place, 0, extent);
  };
  const int64_t begin = within(slice.begin.value_or(0));
  return {begin, std::max(begin, within(slice.end.value_or(extent)))};
}

/// x with every `step`th element of `axis` from `begin` on.
Tensor strided(const Tensor& x, int axis, const Places& places, int64_t step) {
  const Tensor part = ops::slice(x, axis, places.begin, places.end);
  if (step == 1) return part;
  const auto end = static_cast<double>(places.end - places.begin);
  return ops::index_select(part, axis, Tensor::arange(0.0, end, static_cast<double>(step)).to(x.device()));
}

Tensor part_of(const Tensor& x, int axis, const Slice& slice) {
  return strided(x, axis, places_of(slice, x.size(axis)), slice.step);
}

Tensor element_of(const Tensor& x, int axis, int64_t i) {
  const int64_t extent = x.size(axis), place = i < 0 ? i + extent : i;
  SINTER_CHECK(place >= 0 && place < extent,
               "[tensor] expected an index in [{}, {}) along axis {} but got {}", -extent, extent, axis, i);
  return ops::squeeze(ops::slice(x, axis, place, place + 1), axis);
}

}  // namespace

Tensor Tensor::set_requires_grad(bool value) const {
  SINTER_CHECK(is_leaf(), "[tensor] requires_grad can only be set on a leaf, not on the result of an op");
  SINTER_CHECK(!value || is_float(dtype()),
               "[tensor] only floating-point tensors can require a gradient, not {}", dtype());
  if (!is_traced()) {
    impl_->requires_grad = value;
    return *this;
  }
  if (value == requires_grad()) return *this;
  SINTER_CHECK(value,
               "[tensor] requires_grad cannot be taken back while a job is traced; detach() ends a gradient");
  // A value of its own in the graph, so that no gradient flows from here to what it was computed from.
  TraceAccess::become_leaf(*this, reshape(shape()));
  return *this;
}

Tensor Tensor::to(DType dtype) const {
  return ops::cast(*this, dtype);
}

Tensor Tensor::to(Device device, DType dtype) const {
  // The smaller of the two travels.
  return size_of(dtype) < size_of(this->dtype()) ? to(dtype).to(device) : to(device).to(dtype);
}

Tensor Tensor::clone() const {
  return ops::copy(*this);
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  ops::copy_(*this, source);
  return *this;
}

const Tensor& Tensor::fill_(double value) const {
  ops::fill_(*this, value);
  return *this;
}

Tensor Tensor::reshape(const IntList& extents) const {
  return ops::reshape(*this, extents.to_vector());
}

Tensor Tensor::flatten(int64_t first, int64_t last) const {
  return ops::flatten(*this, first, last);
}

Tensor Tensor::squeeze(int64_t axis) const {
  return ops::squeeze(*this, axis);
}

Tensor Tensor::unsqueeze(int64_t axis) const {
  return ops::unsqueeze(*this, axis);
}

Tensor Tensor::permute(const IntList& axes) const {
  return ops::permute(*this, axes.to_vector());
}

Tensor Tensor::transpose(int64_t axis0, int64_t axis1) const {
  return ops::transpose(*this, axis0, axis1);
}

Tensor Tensor::broadcast_to(const Shape& shape) const {
  return ops::broadcast_to(*this, shape);
}

Tensor Tensor::operator[](int64_t i) const {
  SINTER_CHECK(rank() > 0, "[tensor] a scalar has no element {}", i);
  return element_of(*this, 0, i);
}

Tensor Tensor::operator[](const Tensor& indices) const {
  return ops::index_select(*this, 0, indices);
}

Tensor Tensor::index(std::initializer_list<TensorIndex> indices) const {
  const auto takes_axis = [](const TensorIndex& index) {
    return std::holds_alternative<int64_t>(index) || std::holds_alternative<Slice>(index);
  };
  const auto is_ellipsis = [](const TensorIndex& index) { return std::holds_alternative<Ellipsis>(index); };
  const auto named = std::ranges::count_if(indices, takes_axis);
  SINTER_CHECK(named <= rank() && std::ranges::count_if(indices, is_ellipsis) <= 1,
               "[index] expected at most {} axes and one ellipsis for shape {} but got {} and {}", rank(),
               shape(), named, std::ranges::count_if(indices, is_ellipsis));
  Tensor part = *this;
  int axis = 0;
  for (const TensorIndex& index : indices) {
    if (const auto* i = std::get_if<int64_t>(&index)) {
      part = element_of(part, axis, *i);
    } else if (const auto* slice = std::get_if<Slice>(&index)) {
      part = part_of(part, axis++, *slice);
    } else if (is_ellipsis(index)) {
      axis += rank() - static_cast<int>(named);
    } else {
      part = part.unsqueeze(axis++);
    }
  }
  return part;
}

Tensor Tensor::slice(int64_t axis, std::optional<int64_t> begin, std::optional<int64_t> end,
                     int64_t step) const {
  return part_of(*this, normalize_axis(axis, rank(), "slice"), Slice(begin, end, step));
}

Tensor Tensor::gather(int64_t axis, const Tensor& indices) const {
  return ops::gather(*this, axis, indices);
}

Tensor Tensor::masked_fill(const Tensor& mask, double value) const {
  return ops::masked_fill(*this, mask, value);
}

Tensor Tensor::sum(const IntList& axes, const ReduceOptions& options) const {
  return ops::sum(*this, axes, options);
}

Tensor Tensor::mean(const IntList& axes, const ReduceOptions& options) const {
  return ops::mean(*this, axes, options);
}

Tensor Tensor::max(const IntList& axes, const ReduceOptions& options) const {
  return ops::max(*this, axes, options);
}

Tensor Tensor::min(const IntList& axes, const ReduceOptions& options) const {
  return ops::min(*this, axes, options);
}

Tensor Tensor::norm(const IntList& axes, const ReduceOptions& options) const {
  return ops::norm(*this, axes, options);
}

Tensor Tensor::var(const IntList& axes, const VarianceOptions& options) const {
  return ops::var(*this, axes, options);
}

Tensor Tensor::std(const IntList& axes, const VarianceOptions& options) const {
  return ops::std(*this, axes, options);
}

Tensor Tensor::all(const IntList& axes, const ReduceOptions& options) const {
  return ops::all(*this, axes, options);
}

Tensor Tensor::any(const IntList& axes, const ReduceOptions& options) const {
  return ops::any(*this, axes, options);
}

Tensor Tensor::argmax() const {
  return ops::argmax(*this);
}

Tensor Tensor::argmax(int64_t axis, const ReduceOptions& options) const {
  return ops::argmax(*this, axis, options);
}

Tensor Tensor::argmin() const {
  return ops::argmin(*this);
}

Tensor Tensor::argmin(int64_t axis, const ReduceOptions& options) const {
  return ops::argmin(*this, axis, options);
}

}  // namespace sinter
