#include "sweep_call.h"

#include <algorithm>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/prelu/prelu.h>

namespace sinter::bench {
namespace {

/// MurmurHash3's finaliser (A. Appleby, public domain) of a mix of both numbers.
uint32_t hash(uint64_t i, uint64_t which) {
  auto h = static_cast<uint32_t>(i * 0x9E3779B1U + which * 0x85EBCA77U);
  h ^= h >> 16U;
  h *= 0x85EBCA6BU;
  h ^= h >> 13U;
  h *= 0xC2B2AE35U;
  h ^= h >> 16U;
  return h;
}

double data_bytes(const Tensor& tensor) {
  return static_cast<double>(tensor.spec().bytes());
}

Shape stored_shape(const SweepCase& c) {
  if (!c.has_layout || c.layout == Layout::kNCHW) return Shape(c.shape);
  return {c.shape[0], c.shape[2], c.shape[3], c.shape[1]};
}

SweepCall prelu_call(const SweepCase& c, HashedTensors& tensors) {
  const Shape shape = stored_shape(c);
  const Tensor x = tensors.numbers(shape, c.dtype, 1), dy = tensors.numbers(shape, c.dtype, 2);
  const Tensor alpha = tensors.numbers({c.kind == "one slope" ? 1 : c.shape[1]}, c.dtype, 5);
  if (c.direction == "forward") {
    return {[=, layout = c.layout] {
              return NamedTensors{{"y", ops::prelu(x, alpha, {.layout = layout})}};
            },
            2 * data_bytes(x)};
  }
  return {[=, layout = c.layout] {
            const auto [dx, dalpha] = ops::vjp::prelu(dy, x, alpha, layout);
            return NamedTensors{{"dx", dx}, {"dalpha", dalpha}};
          },
          3 * data_bytes(x)};
}

SweepCall permute_call(const SweepCase& c, HashedTensors& tensors) {
  const Tensor x = tensors.bits(stored_shape(c), c.dtype, 1);
  return {[x, axes = c.axes] { return NamedTensors{{"y", ops::permute(x, axes)}}; }, 2 * data_bytes(x)};
}

SweepCall batch_norm_call(const SweepCase& c, HashedTensors& tensors) {
  const NormCase norm = norm_case_of(c);
  const NormInputs inputs = {
      .data = [&](const Shape& shape, DType dtype,
                  uint64_t which) { return tensors.numbers(shape, dtype, which); },
      .parameter = [&](int64_t channels, DType dtype, double,
                       uint64_t which) { return tensors.numbers({channels}, dtype, which); }};
  const auto call = std::make_shared<NormTensors>(norm, inputs);
  const bool has_mask = norm.tail != NormTail::kNone;
  if (c.direction == "forward") {
    return {[=] {
              const std::vector<Tensor> outputs = call->forward();
              NamedTensors named = {{"y", outputs[0]}};
              if (has_mask) named.emplace_back("mask", outputs[3]);
              return named;
            },
            norm_forward_bytes(norm)};
  }
  return {[=, outputs = call->forward()] {
            const ops::BatchNormActGrads grads = call->backward(outputs);
            NamedTensors named;
            for (const auto& [name, tensor] : {std::pair<const char*, Tensor>{"dx", grads.dx},
                                               {"dweight", grads.dweight},
                                               {"dbias", grads.dbias},
                                               {"dalpha", grads.dalpha},
                                               {"daddend", grads.daddend},
                                               {"daddend_weight", grads.daddend_weight},
                                               {"daddend_bias", grads.daddend_bias}}) {
              if (tensor.defined()) named.emplace_back(name, tensor);
            }
            if (has_mask) named.emplace_back("mask", outputs[3]);
            return named;
          },
          norm_backward_bytes(norm)};
}

/// a (m, n) or (batch, m, n) and one vector or several, in the order in which a user would write the product.
SweepCall matvec_call(const SweepCase& c, HashedTensors& tensors) {
  const size_t rank = c.shape.size();
  const int64_t m = c.shape[rank - 2], n = c.shape[rank - 1];
  const bool is_left = c.kind == "a x" || c.kind == "aT x", transpose = c.kind == "aT x" || c.kind == "x aT";
  const int64_t length = c.kind == "a x" || c.kind == "x aT" ? n : m;  // of a vector
  const Tensor a = tensors.numbers(Shape(c.shape), c.dtype, 1);
  std::vector<int64_t> x_shape(c.shape.begin(), c.shape.end() - 2);
  if (c.vectors > 1 && !is_left) x_shape.push_back(c.vectors);
  x_shape.push_back(length);
  if (c.vectors > 1 && is_left) x_shape.push_back(c.vectors);
  const Tensor x = tensors.numbers(Shape(x_shape), c.dtype, 2);
  const double out_bytes = data_bytes(x) / static_cast<double>(length) * static_cast<double>(m + n - length);
  const auto product = [=, vectors = c.vectors] {
    if (vectors == 1) return ops::matvec(a, x, {.transpose_a = transpose});
    return is_left ? ops::matmul(a, x, {.transpose_a = transpose})
                   : ops::matmul(x, a, {.transpose_b = transpose});
  };
  return {[=] { return NamedTensors{{"y", product()}}; }, data_bytes(a) + data_bytes(x) + out_bytes};
}

class KernelNames : public CallObserver {
 public:
  KernelNames() : outer_(set_call_observer(this)) {}
  ~KernelNames() override { set_call_observer(outer_); }
  KernelNames(const KernelNames&) = delete;
  KernelNames& operator=(const KernelNames&) = delete;

  void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream&) override {
    std::string name = fmt::format("{}: {}", op.name(), kernel.name);
    if (kernel.prepare != nullptr) {
      const std::shared_ptr<const Prepared> prepared = kernel.prepare(query);
      if (prepared != nullptr && !prepared->detail().empty())
        name += fmt::format(" ({})", prepared->detail());
    }
    names_.push_back(std::move(name));
  }
  void after(const Stream&) override {}

  std::string text() const { return fmt::format("{}", fmt::join(names_, "; ")); }

 private:
  CallObserver* outer_;
  std::vector<std::string> names_;
};

}  // namespace

Tensor HashedTensors::repeated(const Tensor& block, const Shape& shape, DType dtype) const {
  const Tensor made = Tensor::empty(shape, dtype, device_);
  const size_t bytes = made.spec().bytes();
  auto* const data = static_cast<std::byte*>(made.raw_data());
  size_t known = std::min(bytes, block.spec().bytes());
  copy_bytes(data, device_, block.raw_data(), block.device(), known);
  while (known < bytes) {
    const size_t piece = std::min(known, bytes - known);
    copy_bytes(data + known, device_, data, device_, piece);
    known += piece;
  }
  return made;
}

Tensor HashedTensors::numbers(const Shape& shape, DType dtype, uint64_t which) {
  std::vector<float> values(static_cast<size_t>(std::min(kPeriod, shape.numel())));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(2 * static_cast<int>(hash(i, which) & 0xFFU) - 255) / 128.0F;
  return repeated(ops::cast(Tensor::from_values(values, {std::ssize(values)}), dtype), shape, dtype);
}

Tensor HashedTensors::bits(const Shape& shape, DType dtype, uint64_t which) {
  const auto count = static_cast<size_t>(std::min(kPeriod, shape.numel()));
  const size_t size = size_of(dtype);
  std::vector<uint8_t> block(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t low = hash(i, which), word = low | (low ^ 0x5BD1E995U) << 32U;
    for (size_t k = 0; k < size; ++k) block[i * size + k] = static_cast<uint8_t>(word >> 8 * k);
  }
  return repeated(Tensor::from_values(block, {std::ssize(block)}), shape, dtype);
}

Tensor HashedTensors::listed(const Shape& shape, DType dtype, uint64_t which, int64_t count,
                             const std::vector<double>& values) {
  // Whole turns of the values, so that they go on where the block is repeated.
  const auto turns = static_cast<int64_t>(values.size());
  const int64_t period = turns == 0 ? kPeriod : std::max(turns, kPeriod / turns * turns);
  std::vector<double> block(static_cast<size_t>(std::min(period, shape.numel())));
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = count > 0 ? static_cast<double>(hash(i, which) % static_cast<uint64_t>(count))
                         : values[i % values.size()];
  }
  return repeated(ops::cast(Tensor::from_values(block, {std::ssize(block)}), dtype), shape, dtype);
}

SweepCall make_call(const SweepCase& c, Device device) {
  HashedTensors tensors(device);
  if (c.family == "prelu") return prelu_call(c, tensors);
  if (c.family == "permute") return permute_call(c, tensors);
  if (c.family == "batch_norm") return batch_norm_call(c, tensors);
  return matvec_call(c, tensors);
}

std::string kernels_of(const std::function<void()>& work) {
  KernelNames names;
  work();
  return names.text();
}

}  // namespace sinter::bench
