// The parts of a tensor that only the tracer and the engine of gradients touch: what is traced, and handles
// that keep no tensor alive.
#pragma once

#include <memory>
#include <utility>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct TraceAccess {
  /// A tensor without an array.
  static Tensor make(const TensorSpec& spec, std::shared_ptr<TracedValue> value, bool requires_grad) {
    auto impl = std::make_shared<Tensor::Impl>();
    impl->spec = spec;
    impl->traced = std::move(value);
    impl->requires_grad = requires_grad;
    return Tensor(std::move(impl));
  }
  /// Null for a tensor that has an array.
  static const std::shared_ptr<TracedValue>& value(const Tensor& tensor) { return tensor.impl_->traced; }
  /// A tensor, known and found again without being kept alive.
  static std::weak_ptr<void> watch(const Tensor& tensor) { return tensor.impl_; }
  static const void* id(const Tensor& tensor) { return tensor.impl_.get(); }
  /// Undefined once nobody holds it any more.
  static Tensor watched(const std::weak_ptr<void>& tensor) {
    return Tensor(std::static_pointer_cast<Tensor::Impl>(tensor.lock()));
  }
  /// Makes this very tensor, which is traced, stand for the value of `other`, and require a gradient.
  static void become_leaf(const Tensor& tensor, const Tensor& other) {
    tensor.impl_->traced = other.impl_->traced;
    tensor.impl_->requires_grad = true;
  }
  /// How many handles of this very tensor there are.
  static long handles(const Tensor& tensor) { return tensor.impl_.use_count(); }
};

}  // namespace sinter
