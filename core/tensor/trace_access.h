// The traced parts of a tensor that only the tracer touches.
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
  /// How many handles of this very tensor there are.
  static long handles(const Tensor& tensor) { return tensor.impl_.use_count(); }
};

}  // namespace sinter
