// Samples: what tests, gradient checks and benchmarks need to know of an op - random inputs and attributes,
// and an independent reference. They live beside the op in <op>_samples.cpp and are no part of the library.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Draws the random parts of a sample. Everything derives from one seed, which a failing test prints.
class SampleMaker {
 public:
  SampleMaker(uint64_t seed, DType dtype) : generator_(seed), dtype_(dtype) {}

  /// The floating-point dtype under test.
  DType dtype() const { return dtype_; }
  /// An integer in [low, high].
  int64_t integer(int64_t low, int64_t high);
  double uniform(double low, double high);
  bool chance(double probability) { return generator_.uniform() < probability; }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return *(choices.begin() + integer(0, static_cast<int64_t>(choices.size()) - 1));
  }
  /// A shape of the given rank with small extents: 0 and 1 now and then, else odd and even numbers up to
  /// `most`.
  Shape shape(int rank, int64_t most = 9);

  /// A tensor on the CPU of the dtype under test, uniform in [low, high).
  Tensor tensor(const Shape& shape, double low = -2.0, double high = 2.0);
  /// As tensor(), but every element at least `gap` away from each of `kinks`: for functions with corners.
  Tensor tensor_off(const Shape& shape, const std::vector<double>& kinks, double gap = 0.05,
                    double low = -2.0, double high = 2.0);
  /// Distinct values with a spacing of at least 0.01, shuffled: for functions that compare elements.
  Tensor distinct(const Shape& shape);
  /// int64 values in [low, high].
  Tensor indices(const Shape& shape, int64_t low, int64_t high);

  Generator& generator() { return generator_; }

 private:
  Generator generator_;
  DType dtype_;
};

/// The inputs and attributes of one call.
struct OpSample {
  std::vector<Tensor> inputs;
  Attributes attributes;
};

/// A tensor in double precision: what references read and give.
struct ReferenceTensor {
  Shape shape;
  std::vector<double> values;

  ReferenceTensor() = default;
  explicit ReferenceTensor(const Shape& s) : shape(s), values(static_cast<size_t>(s.numel())) {}
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};

/// A tensor's elements as doubles (exact for all dtypes but large int64).
ReferenceTensor reference_of(const Tensor& tensor);

/// The relative tolerance of one rounding in `dtype`, times a small factor: 1e-12, 1e-5, 2e-3 and 1.6e-2 for
/// float64, float32, float16 and bfloat16; 0 for the others.
double default_tolerance(DType dtype);

struct OpSamples {
  std::string op;
  /// A random call; `maker.dtype()` is one of `dtypes`.
  std::function<OpSample(SampleMaker& maker)> make = {};
  /// The outputs of the call by plain loops in double precision, written independently of the kernels. One
  /// tensor per output that the call gives; for ops with mutated inputs, their new values follow in the order
  /// of the inputs.
  std::function<std::vector<ReferenceTensor>(const OpSample& sample)> reference = {};
  /// The dtypes that `make` understands.
  std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
  /// See tolerance_of. Raise it only for sums of many terms, with a reason beside it.
  double tolerance_scale = 1.0;
  /// The size of the terms that an output of a sample sums up, for outputs that can be much smaller than
  /// those: what is left of terms that cancel carries their rounding. A bound of it is the largest sum of the
  /// terms' absolute values; for n random terms of size t it is some t sqrt(n). Null: outputs are as exact as
  /// they are large.
  std::function<double(const OpSample& sample, size_t output)> term_size = {};
  /// Compares gradients with finite differences (float64). Off only for ops without a gradient.
  bool check_gradient = true;
};

/// The most by which an element of an output may differ from its reference, if `largest` is the largest
/// |reference| of that output: the dtype's tolerance of that; the tolerance of the dtype in which ops
/// compute, float32 for the 16-bit ones, of the terms; and one unit of the dtype's smallest numbers.
double tolerance_of(DType dtype, double largest, const OpSamples& samples, const OpSample& sample,
                    size_t output);

/// For OpSamples::term_size: terms of about 1, whatever the sample.
inline double unit_terms(const OpSample&, size_t) {
  return 1.0;
}

/// The absolute values of a floating-point tensor; other tensors, and undefined ones, as they are.
Tensor absolute(const Tensor& tensor);
OpSample absolute(const OpSample& sample);
/// The largest |element|, 0 if there is none.
double largest_of(const ReferenceTensor& tensor);

/// For OpSamples::term_size of ops that sum products of inputs with factors >= 0: at absolute inputs, the
/// reference is the sum of the terms' absolute values.
template <std::vector<ReferenceTensor> (*kReference)(const OpSample&)>
double product_terms(const OpSample& sample, size_t output) {
  return largest_of(kReference(absolute(sample))[output]);
}

/// The samples of every built-in op, by op name.
class SampleRegistry {
 public:
  static const SampleRegistry& builtin();
  void add(OpSamples samples);
  /// nullptr if the op has none.
  const OpSamples* find(const std::string& op) const;
  const std::map<std::string, OpSamples>& all() const { return samples_; }

 private:
  std::map<std::string, OpSamples> samples_;
};

}  // namespace sinter::ops
