// Tensor: a handle on a dense, row-major array on one device, and its place in the autograd graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/base/dtype.h>
#include <sinter/core/base/shape.h>
#include <sinter/core/tensor/storage.h>

namespace sinter {

/// Everything about a tensor but its contents: what shape inference works on.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::kFloat32;
  Device device;

  size_t bytes() const { return static_cast<size_t>(shape.numel()) * size_of(dtype); }
  bool operator==(const TensorSpec&) const = default;
};

/// "float32 (2, 3) on cpu".
std::string to_string(const TensorSpec& spec);

struct Node;

/// What stands for the array of a tensor while a job is traced: a value of its graph (core/graph/graph.h).
class TracedValue {
 public:
  virtual ~TracedValue() = default;
  /// Where it comes from, for errors: "the output of conv2d in layer1.0.conv1".
  virtual std::string description() const = 0;
};

/// A value handle: copies refer to the same array. A default-constructed tensor is undefined and stands for
/// "none". The array is always dense and row-major in the order of the shape; there are no strides.
///
/// While a job is traced (core/graph/tracer.h) a tensor may be *traced*: its spec is known, but it has no
/// array before the job runs, so that whatever asks for its values, memory or version throws InvalidArgument.
class Tensor {
 public:
  Tensor() = default;

  /// A tensor with undefined contents.
  static Tensor empty(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
  static Tensor empty(const TensorSpec& spec) { return empty(spec.shape, spec.dtype, spec.device); }
  /// A tensor on the CPU with undefined contents in page-locked memory, from and to which copies to `device`
  /// run beside other work (copy_async). For Device::cpu() it is an ordinary tensor. Throws DeviceError if
  /// the device is not there.
  static Tensor empty_pinned(const Shape& shape, DType dtype, Device device);
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
  /// All elements `value`, rounded to the dtype.
  static Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32, Device device = {});
  /// A copy of `values` in row-major order; throws InvalidArgument unless there are shape.numel() of them.
  template <class T>
  static Tensor from_values(std::span<const T> values, const Shape& shape, Device device = {}) {
    return from_bytes(values.data(), values.size(), shape, dtype_of<std::remove_cv_t<T>>, device);
  }
  template <class T>
  static Tensor from_values(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from_values(std::span<const T>(values), shape, device);
  }
  /// `Tensor::from_values({1.0f, 2.0f}, {2})`; the dtype is that of the values, or is named:
  /// `Tensor::from_values<float>({1, 2}, {2})`.
  template <class T>
  static Tensor from_values(std::initializer_list<T> values, const Shape& shape, Device device = {}) {
    return from_values(std::span<const T>(values.begin(), values.size()), shape, device);
  }
  /// A rank-0 tensor.
  template <class T>
  static Tensor scalar(T value, Device device = {}) {
    return from_values(std::span<const T>(&value, 1), Shape{}, device);
  }
  /// A tensor of `spec` over a part of `storage`; throws InvalidArgument if it does not fit or devices
  /// differ.
  static Tensor over(std::shared_ptr<Storage> storage, size_t offset_bytes, const TensorSpec& spec);

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  const TensorSpec& spec() const { return checked().spec; }
  const Shape& shape() const { return spec().shape; }
  DType dtype() const { return spec().dtype; }
  Device device() const { return spec().device; }
  int rank() const { return shape().rank(); }
  int64_t numel() const { return shape().numel(); }
  /// Extent of `axis`, negative axes counting from the back; throws InvalidArgument if out of range.
  int64_t size(int axis) const { return shape()[normalize_axis(axis, rank(), "tensor")]; }

  /// The array's first byte, on its own device.
  void* raw_data() const { return static_cast<std::byte*>(storage()->data()) + impl_->offset_bytes; }
  /// The array on the CPU; throws InvalidArgument for another dtype or device.
  template <class T>
  T* data() const {
    check_host_access(dtype_of<std::remove_cv_t<T>>);
    return static_cast<T*>(raw_data());
  }
  /// A copy of all elements in row-major order, from any device; waits for the device.
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> values(static_cast<size_t>(numel()));
    copy_to_host(values.data(), dtype_of<T>);
    return values;
  }
  /// The only element as a double, from any device and dtype; throws InvalidArgument unless numel() is 1.
  double item() const;

  /// This tensor on `device`: itself if it is there already, else a copy, queued on the current stream of the
  /// GPU that takes part. Where this tensor requires a gradient and calls are recorded, so is the copy: its
  /// gradient comes back to the device of this one.
  Tensor to(Device device) const;
  /// A tensor over the same memory that autograd does not know.
  Tensor detach() const;

  const std::shared_ptr<Storage>& storage() const {
    if (checked().storage == nullptr) [[unlikely]]
      fail_traced();
    return impl_->storage;
  }
  size_t offset_bytes() const { return checked().offset_bytes; }
  /// True while there is no array yet, only a place in a job's graph.
  bool is_traced() const { return impl_ != nullptr && impl_->traced != nullptr; }
  /// Number of in-place changes of the memory so far.
  uint64_t version() const { return storage()->version(); }

  // ---- autograd; the rest of it is in <sinter/autograd/backward.h>

  /// True for a leaf that asks for a gradient and for everything computed from one.
  bool requires_grad() const { return impl_ != nullptr && (impl_->requires_grad || impl_->node != nullptr); }
  /// Asks for a gradient; only for leaves of floating-point dtype, else InvalidArgument. Returns this tensor.
  Tensor set_requires_grad(bool value) const;
  /// True unless an op computed this tensor with recording on.
  bool is_leaf() const { return checked().node == nullptr; }
  /// The gradient that backward accumulated here; undefined if there is none.
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;

  /// Two handles are the same tensor, not merely equal in value.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

 private:
  friend struct AutogradAccess;
  friend struct TraceAccess;

  struct Impl {
    TensorSpec spec;
    std::shared_ptr<Storage> storage;
    size_t offset_bytes = 0;
    bool requires_grad = false;
    int node_output = 0;         // which output of `node` this tensor is
    std::shared_ptr<Node> node;  // the op that computed it; null for leaves
    std::shared_ptr<Impl> grad;
    std::shared_ptr<TracedValue> traced;  // in place of storage
  };

  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  static Tensor from_bytes(const void* values, size_t count, const Shape& shape, DType dtype, Device device);
  const Impl& checked() const {
    if (impl_ == nullptr) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();
  [[noreturn]] void fail_traced() const;
  void check_host_access(DType asked) const;
  void copy_to_host(void* values, DType asked) const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace sinter

template <>
struct fmt::formatter<sinter::TensorSpec> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(const sinter::TensorSpec& spec, Context& context) const {
    return write(sinter::to_string(spec), context);
  }
};
