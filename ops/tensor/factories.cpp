// The factories of Tensor that count and draw.
#include <cmath>
#include <numeric>

#include <sinter/core/base/checked.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/tensor/fill_pairs_internal.h>

namespace sinter {
namespace {

Generator& chosen(Generator* generator) {
  return generator != nullptr ? *generator : default_generator();
}

Tensor finished(const Tensor& made, const TensorOptions& options) {
  const Tensor moved = ops::cast(made, options.dtype).to(options.device);
  return options.requires_grad ? moved.set_requires_grad(true) : moved;
}

void expect_float(const TensorOptions& options, const char* tag) {
  SINTER_CHECK(is_float(options.dtype), "[{}] expected a floating-point dtype but got {}", tag,
               options.dtype);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, const TensorOptions& options) {
  const Tensor made = empty(shape, options.dtype, options.device);
  return options.requires_grad ? made.set_requires_grad(true) : made;
}

Tensor Tensor::full(const Shape& shape, double value, const TensorOptions& options) {
  const Tensor made = full(shape, value, options.dtype, options.device);
  return options.requires_grad ? made.set_requires_grad(true) : made;
}

Tensor Tensor::arange(double begin, double end, double step, const TensorOptions& options) {
  SINTER_CHECK(step != 0.0 && std::isfinite(begin) && std::isfinite(end) && std::isfinite(step),
               "[arange] expected finite numbers and a step that is not 0 but got {}, {} and {}", begin, end,
               step);
  const double steps = std::max(std::ceil((end - begin) / step), 0.0);
  SINTER_CHECK(steps <= static_cast<double>(kMaxElements),
               "[arange] expected at most {} elements but got {} to {} in steps of {}", kMaxElements, begin,
               end, step);
  const auto count = static_cast<int64_t>(steps);
  const Tensor made = empty({count}, DType::kFloat64);
  for (int64_t i = 0; i < count; ++i) made.data<double>()[i] = begin + static_cast<double>(i) * step;
  if (count > 0) {
    for (const int64_t i : {int64_t{0}, count - 1})
      check_holds("arange", options.dtype, std::trunc(made.data<double>()[i]));
  }
  return finished(made, options);
}

Tensor Tensor::rand(const Shape& shape, const TensorOptions& options, Generator* generator) {
  expect_float(options, "rand");
  const Tensor made = empty(shape);
  const RandomKey key = chosen(generator).next_on_host(made.numel());
  float* const values = made.data<float>();
  // What a narrow dtype would round to 1 becomes the largest number below it.
  const float most = options.dtype == DType::kBFloat16  ? 1.0F - 0x1p-8F
                     : options.dtype == DType::kFloat16 ? 1.0F - 0x1p-11F
                                                        : 1.0F;
  parallel_for((made.numel() + 3) / 4, 4096, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const PhiloxBlock block = philox(key.seed, key.offset + static_cast<uint64_t>(b));
      for (int64_t i = 4 * b; i < std::min(4 * b + 4, made.numel()); ++i)
        values[i] = std::min(uniform_from_word(block.words[i % 4]), most);
    }
  });
  return finished(made, options);
}

Tensor Tensor::randn(const Shape& shape, const TensorOptions& options, Generator* generator) {
  expect_float(options, "randn");
  return finished(ops::fill_pairs(shape, chosen(generator),
                                  [](const ops::UniformPair& u) { return ops::normal_pair(u, 0.0, 1.0); }),
                  options);
}

Tensor Tensor::randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options,
                       Generator* generator) {
  SINTER_CHECK(low < high, "[randint] expected low < high but got {} and {}", low, high);
  for (const int64_t number : {low, high - 1}) {
    if (options.dtype != DType::kInt64) check_holds("randint", options.dtype, static_cast<double>(number));
  }
  Generator& from = chosen(generator);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const Tensor made = empty(shape, DType::kInt64);
  int64_t* const values = made.data<int64_t>();
  for (int64_t i = 0; i < made.numel(); ++i)
    values[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + from.below(span));
  return finished(made, options);
}

Tensor Tensor::randperm(int64_t n, Device device, Generator* generator) {
  SINTER_CHECK(n >= 0, "[randperm] expected a number >= 0 but got {}", n);
  Generator& from = chosen(generator);
  const Tensor made = empty({n}, DType::kInt64);
  int64_t* const values = made.data<int64_t>();
  std::iota(values, values + n, int64_t{0});
  for (int64_t left = n; left > 1; --left)  // R. Fisher, F. Yates
    std::swap(values[left - 1], values[from.below(static_cast<uint64_t>(left))]);
  return made.to(device);
}

}  // namespace sinter
