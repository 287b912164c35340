// Tensor: a handle on a dense, row-major array on one device, and its place in the autograd graph.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/base/dtype.h>
#include <sinter/core/base/int_list.h>
#include <sinter/core/base/shape.h>
#include <sinter/core/tensor/index.h>
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
class Generator;
class Hook;              // autograd/hook.h
struct BackwardOptions;  // autograd/backward.h

/// What a tensor is made of, beside its shape: `Tensor::zeros({2, 3}, {.dtype = DType::kFloat16})`.
struct TensorOptions {
  DType dtype = DType::kFloat32;
  Device device = {};
  bool requires_grad = false;  ///< for floating-point dtypes
};

/// Of reductions: axes that are reduced disappear or, with keep_dims, stay with extent 1.
struct ReduceOptions {
  bool keep_dims = false;
};

struct VarianceOptions {
  bool unbiased = true;  ///< divides by n - 1 in place of n; NaN where that is 0
  bool keep_dims = false;
};

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
  /// run beside other work (to_async). For Device::cpu() it is an ordinary tensor. Throws DeviceError if
  /// the device is not there.
  static Tensor empty_pinned(const Shape& shape, DType dtype, Device device);
  static Tensor empty(const Shape& shape, const TensorOptions& options);
  static Tensor empty_like(const Tensor& x) { return empty(x.spec()); }
  static Tensor zeros(const Shape& shape, DType dtype = DType::kFloat32, Device device = {});
  static Tensor zeros(const Shape& shape, const TensorOptions& options) { return full(shape, 0.0, options); }
  static Tensor zeros_like(const Tensor& x) { return full_like(x, 0.0); }
  static Tensor ones(const Shape& shape, DType dtype = DType::kFloat32, Device device = {}) {
    return full(shape, 1.0, dtype, device);
  }
  static Tensor ones(const Shape& shape, const TensorOptions& options) { return full(shape, 1.0, options); }
  static Tensor ones_like(const Tensor& x) { return full_like(x, 1.0); }
  /// All elements `value`, rounded to a floating-point dtype; other dtypes must represent it (ops::full).
  static Tensor full(const Shape& shape, double value, DType dtype = DType::kFloat32, Device device = {});
  static Tensor full(const Shape& shape, double value, const TensorOptions& options);
  static Tensor full_like(const Tensor& x, double value) {
    return full(x.shape(), value, x.dtype(), x.device());
  }
  /// begin, begin + step, ... before `end` (beyond it where step < 0), computed in double precision. Throws
  /// InvalidArgument for a step of 0, numbers that are not finite or whose whole part the dtype cannot hold,
  /// and more elements than a tensor can have.
  static Tensor arange(double begin, double end, double step = 1.0,
                       const TensorOptions& options = {.dtype = DType::kInt64});
  static Tensor arange(int64_t end) { return arange(0.0, static_cast<double>(end)); }

  /// Uniform in [0, 1), or of the standard normal distribution; in float32, and then rounded to a
  /// floating-point dtype. These four draw on the host, from default_generator() if none is given: a job that
  /// is traced refuses them, since it would draw once and for all. What is to be drawn in every step of a job
  /// is an input of it.
  static Tensor rand(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
  static Tensor randn(const Shape& shape, const TensorOptions& options = {}, Generator* generator = nullptr);
  /// Whole numbers in [low, high), each as likely. InvalidArgument if there are none or the dtype lacks one.
  static Tensor randint(int64_t low, int64_t high, const Shape& shape,
                        const TensorOptions& options = {.dtype = DType::kInt64},
                        Generator* generator = nullptr);
  /// 0, ..., n - 1 in a random order, int64.
  static Tensor randperm(int64_t n, Device device = {}, Generator* generator = nullptr);

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
  /// A tensor over memory that somebody else owns, dense and row-major, on the device that `spec` names;
  /// nothing is copied. `release` runs when the last tensor over it goes. On a GPU whoever owns the memory
  /// takes care of streams too.
  static Tensor from_blob(void* data, const TensorSpec& spec, std::function<void()> release = {}) {
    return over(Storage::wrap(data, spec.bytes(), spec.device, std::move(release)), 0, spec);
  }
  /// A tensor of `spec` over a part of `storage`; throws InvalidArgument if it does not fit or devices
  /// differ.
  static Tensor over(std::shared_ptr<Storage> storage, size_t offset_bytes, const TensorSpec& spec);

  /// No conversion to bool says this: `if (a < b)` would ask whether the result is there.
  bool defined() const { return impl_ != nullptr; }

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
  /// The same as a T, without its fraction if T is an integer, which must be able to hold the rest
  /// (InvalidArgument).
  template <class T>
  T item() const {
    if (dtype() != dtype_of<T> || numel() != 1) return static_cast<T>(item_for(dtype_of<T>));
    T value;
    copy_to_host(&value, dtype_of<T>);
    return value;
  }

  /// This tensor on `device`: itself if it is there already, else a copy in the order of the current stream
  /// of the GPU that takes part; from or to the CPU it waits for it (to_async does not). Where this tensor
  /// requires a gradient and calls are recorded, so is the copy: its gradient comes back to where this is.
  Tensor to(Device device) const;
  /// In another dtype, as ops::cast; itself if it has it already.
  Tensor to(DType dtype) const;
  Tensor to(Device device, DType dtype) const;
  /// A tensor over the same memory that autograd does not know.
  Tensor detach() const;
  /// A tensor of its own memory with the same values, and this one's history.
  Tensor clone() const;

  // ---- in place; throw InvalidArgument if a gradient of this tensor is being recorded. They return *this.

  /// Takes the values of `source`, which has the same shape, dtype and device.
  const Tensor& copy_(const Tensor& source) const;
  const Tensor& fill_(double value) const;
  const Tensor& zero_() const { return fill_(0.0); }

  // ---- the same as functions in ops, which say what they take, give and throw

  Tensor reshape(const IntList& extents) const;
  /// The axes from `first` to `last` as one; x.flatten(1) makes (N, C, H, W) to (N, C*H*W).
  Tensor flatten(int64_t first = 0, int64_t last = -1) const;
  Tensor squeeze(int64_t axis) const;
  Tensor unsqueeze(int64_t axis) const;
  Tensor permute(const IntList& axes) const;
  Tensor transpose(int64_t axis0 = -2, int64_t axis1 = -1) const;
  Tensor broadcast_to(const Shape& shape) const;

  /// Element i of axis 0, which disappears: a view. Negative ones count from the back.
  Tensor operator[](int64_t i) const;
  /// The elements of axis 0 at `indices`, int64 of any shape, which takes the axis's place; as
  /// ops::index_select.
  Tensor operator[](const Tensor& indices) const;
  /// A number, a Slice, kNewAxis or kEllipsis for each axis; axes that are not named stay whole:
  /// x.index({0, Slice(1, -1), kEllipsis, kNewAxis}).
  Tensor index(std::initializer_list<TensorIndex> indices) const;
  /// The elements that Slice(begin, end, step) has of one axis.
  Tensor slice(int64_t axis, std::optional<int64_t> begin, std::optional<int64_t> end,
               int64_t step = 1) const;
  Tensor gather(int64_t axis, const Tensor& indices) const;
  Tensor masked_fill(const Tensor& mask, double value) const;

  Tensor sum(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor mean(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor max(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor min(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor norm(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor var(const IntList& axes = {}, const VarianceOptions& options = {}) const;
  Tensor std(const IntList& axes = {}, const VarianceOptions& options = {}) const;
  Tensor all(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor any(const IntList& axes = {}, const ReduceOptions& options = {}) const;
  Tensor argmax() const;
  Tensor argmax(int64_t axis, const ReduceOptions& options = {}) const;
  Tensor argmin() const;
  Tensor argmin(int64_t axis, const ReduceOptions& options = {}) const;

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

  // ---- autograd; grad() of results with respect to any tensors is in <sinter/autograd/grad.h>

  /// True for a leaf that asks for a gradient and for everything computed from one.
  bool requires_grad() const { return impl_ != nullptr && (impl_->requires_grad || impl_->node != nullptr); }
  /// Asks for a gradient; only for leaves of floating-point dtype, else InvalidArgument. Returns this tensor.
  Tensor set_requires_grad(bool value) const;
  /// True unless an op computed this tensor with recording on.
  bool is_leaf() const { return checked().node == nullptr; }
  /// The gradient that backward accumulated here; undefined if there is none.
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  /// Adds the gradient of this tensor, of one element, to grad() of every leaf that it was computed from and
  /// that requires one; as backward(x), which says what it throws (<sinter/autograd/backward.h>).
  void backward() const;
  void backward(const BackwardOptions& options) const;
  /// Lets backward() add the gradient of this tensor to its grad() although it is no leaf, as it does for
  /// leaves, for as long as what computed it is recorded. Nothing changes for a leaf. Returns this tensor.
  /// Throws InvalidArgument unless it requires a gradient, and while a job is traced, whose gradients stay in
  /// it: grad() of results gives them there.
  Tensor retain_grad() const;
  /// Calls `hook` with the gradient of this tensor, all that has arrived, whenever backward() or grad() has
  /// computed it, while the Hook that is returned lives (<sinter/autograd/hook.h>). What it gives, of the
  /// same spec, takes the gradient's place, for grad() and for whatever this was computed from; an undefined
  /// tensor leaves it as it is. Hooks of one tensor run in the order in which they were registered, and what
  /// retain_grad() keeps comes behind them. A hook's own calls are recorded only under create_graph. Throws
  /// InvalidArgument unless this tensor requires a gradient, and while a job is traced; a job whose parameter
  /// has a hook refuses to step.
  Hook register_hook(std::function<Tensor(const Tensor& gradient)> hook) const;
  /// The same with a function that gives nothing: it looks at the gradient, which stays as it is.
  template <std::invocable<const Tensor&> F>
  requires std::is_void_v<std::invoke_result_t<F&, const Tensor&>> Hook register_hook(F hook)
  const;

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
  /// item(), which an integer dtype must be able to hold but for its fraction.
  double item_for(DType asked) const;

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
