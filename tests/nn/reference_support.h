// The formulas of tests/reference/formula.py, and comparisons with the PyTorch values that were stored by
// them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/ops/cast/cast.h>

#include "common/project_folder.h"

namespace sinter::testing {

inline uint64_t reference_seed(const std::string& name) {
  return extend_crc32(0, std::as_bytes(std::span(name)));
}

inline uint32_t reference_word(uint64_t seed, int64_t i) {
  return philox(seed, static_cast<uint64_t>(i) / 4).words[i % 4];
}

struct Uniform {
  double scale = 1.0;
  double base = 0.0;
};

/// float32, uniform in base +- scale.
inline Tensor reference_values(const std::string& name, const Shape& shape, Uniform range = {}) {
  const Tensor tensor = Tensor::empty(shape);
  const uint64_t seed = reference_seed(name);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const double unit = 2.0 * static_cast<double>(uniform_from_word(reference_word(seed, i))) - 1.0;
    tensor.data<float>()[i] = static_cast<float>(range.base + range.scale * unit);
  }
  return tensor;
}

inline Tensor reference_leaf(const std::string& name, const Shape& shape, Uniform range = {}) {
  return reference_values(name, shape, range).set_requires_grad(true);
}

/// A parameter or buffer of a model: see parameter() in formula.py.
inline Tensor reference_parameter(const std::string& name, const Shape& shape) {
  if (shape.rank() >= 2) {
    return reference_values(name, shape, {.scale = std::sqrt(6.0 / static_cast<double>(shape.stride(0)))});
  }
  const bool around_one = name.ends_with("weight") || name.ends_with("running_var");
  return reference_values(name, shape, {.scale = 0.25, .base = around_one ? 1.0 : 0.0});
}

inline std::vector<double> to_doubles(const Tensor& tensor) {
  return ops::cast(tensor.detach(), DType::kFloat64).to_vector<double>();
}

constexpr int kSamples = 64;
constexpr int kProjections = 8;

/// L2 norm, sum, 64 elements at random places, and 8 sums with random signs.
inline std::vector<double> reference_digest(const std::string& name, const Tensor& tensor) {
  const std::vector<double> values = to_doubles(tensor);
  std::vector<double> digest(2 + kSamples + kProjections);
  double squares = 0.0;
  const uint64_t sign_seed = reference_seed(name + "/signs");
  for (size_t i = 0; i < values.size(); ++i) {
    squares += values[i] * values[i];
    digest[1] += values[i];
    const uint32_t bits = reference_word(sign_seed, static_cast<int64_t>(i));
    for (size_t p = 0; p < kProjections; ++p)
      digest[2 + kSamples + p] += (bits >> p) & 1u ? values[i] : -values[i];
  }
  digest[0] = std::sqrt(squares);
  const uint64_t place_seed = reference_seed(name + "/places");
  for (size_t s = 0; s < kSamples; ++s) {
    const PhiloxBlock block = philox(place_seed, s);
    digest[2 + s] = values[((uint64_t{block.words[0]} << 32) | block.words[1]) % values.size()];
  }
  return digest;
}

/// The stored values of one file.
class Reference {
 public:
  explicit Reference(const std::string& name)
      : tensors_(nn::read_safetensors((test::test_data() / "reference" / (name + ".safetensors")).string())
                     .tensors) {}

  const Tensor& operator[](const std::string& name) const {
    ++used_;
    return find(name);
  }
  /// Comparisons so far; a test compares it with size(), so that no stored value is forgotten.
  size_t used() const { return used_; }
  size_t size() const { return tensors_.size(); }

  /// Expects all elements within `tolerance` times the largest stored one.
  void expect_near(const std::string& name, const Tensor& actual, double tolerance) const {
    const Tensor& expected = (*this)[name];
    ASSERT_EQ(actual.spec(), expected.spec()) << name;
    const std::vector<double> a = to_doubles(actual), b = to_doubles(expected);
    double largest = 0.0, error = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      error = std::max(error, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : INFINITY);
    }
    EXPECT_LE(error, tolerance * largest) << name << ": relative error " << error / largest;
  }

  /// Expects the digest of a tensor within `tolerance` of the scale of each of its numbers: sums and
  /// projections add errors of all elements, so they are measured by the norm, as is the norm; samples by the
  /// largest sample.
  void expect_digest(const std::string& stored, const std::string& name, const Tensor& actual,
                     double tolerance) const {
    EXPECT_LE(digest_error(stored, name, actual), tolerance) << stored;
    ++used_;
  }
  /// The error that expect_digest() judges.
  double digest_error(const std::string& stored, const std::string& name, const Tensor& actual) const {
    const std::vector<double> b = find(stored).to_vector<double>();
    const std::vector<double> a = reference_digest(name, actual);
    if (a.size() != b.size()) return INFINITY;
    double largest = 0.0, worst = 0.0;
    for (size_t i = 2; i < 2 + kSamples; ++i) largest = std::max(largest, std::abs(b[i]));
    for (size_t i = 0; i < a.size(); ++i) {
      const double scale = i >= 2 && i < 2 + kSamples ? largest : b[0];
      const double error = a[i] == b[i] ? 0.0 : std::abs(a[i] - b[i]) / scale;
      worst = error <= worst ? worst : error;  // NaN too
      if (std::isnan(error)) return INFINITY;
    }
    return worst;
  }

 private:
  const Tensor& find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw InvalidArgument("no reference value " + name);
    return found->second;
  }

  nn::NamedTensors tensors_;
  mutable size_t used_ = 0;
};

}  // namespace sinter::testing
