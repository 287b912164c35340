// What samples draw, and how exact results must be.
#include <algorithm>
#include <cmath>

#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

Tensor rounded(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor made = Tensor::empty(shape, dtype);
  dispatch_float(dtype, "samples", [&]<class T> {
    for (size_t i = 0; i < values.size(); ++i) made.data<T>()[i] = static_cast<T>(values[i]);
  });
  return made;
}

}  // namespace

void register_builtin_samples(
    SampleRegistry& registry);  // generated: calls register_<op>_samples of every folder

int64_t SampleMaker::integer(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(generator_.below(static_cast<uint64_t>(high - low + 1)));
}

double SampleMaker::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(generator_.uniform());
}

Shape SampleMaker::shape(int rank, int64_t most) {
  std::vector<int64_t> extents;
  for (int i = 0; i < rank; ++i) {
    extents.push_back(chance(0.02) ? 0 : chance(0.15) ? 1 : integer(1, most));
  }
  return Shape(extents);
}

Tensor SampleMaker::tensor(const Shape& shape, double low, double high) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) value = uniform(low, high);
  return rounded(values, shape, dtype_);
}

Tensor SampleMaker::tensor_off(const Shape& shape, const std::vector<double>& kinks, double gap, double low,
                               double high) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (double& value : values) {
    bool near = true;
    while (near) {
      value = uniform(low, high);
      near = false;
      for (double kink : kinks) near = near || std::abs(value - kink) < gap;
    }
  }
  return rounded(values, shape, dtype_);
}

Tensor SampleMaker::distinct(const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  const double step = std::max(0.01, 4.0 / (1.0 + static_cast<double>(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = step * (static_cast<double>(i) - static_cast<double>(values.size()) / 2.0);
    std::swap(values[i], values[generator_.below(i + 1)]);
  }
  return rounded(values, shape, dtype_);
}

Tensor SampleMaker::indices(const Shape& shape, int64_t low, int64_t high) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  for (int64_t& value : values) value = integer(low, high);
  return Tensor::from_values(values, shape);
}

ReferenceTensor reference_of(const Tensor& tensor) {
  ReferenceTensor reference(tensor.shape());
  dispatch_all(tensor.dtype(), "reference", [&]<class T> {
    for (int64_t i = 0; i < tensor.numel(); ++i) reference[i] = static_cast<double>(tensor.data<T>()[i]);
  });
  return reference;
}

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-12;
    case DType::kFloat32:
      return 1e-5;
    case DType::kFloat16:
      return 2e-3;
    case DType::kBFloat16:
      return 1.6e-2;
    default:
      return 0.0;
  }
}

Tensor absolute(const Tensor& tensor) {
  if (!tensor.defined() || !is_float(tensor.dtype())) return tensor;
  std::vector<double> values = reference_of(tensor).values;
  for (double& value : values) value = std::abs(value);
  return rounded(values, tensor.shape(), tensor.dtype());
}

OpSample absolute(const OpSample& sample) {
  OpSample made{{}, sample.attributes};
  for (const Tensor& input : sample.inputs) made.inputs.push_back(absolute(input));
  return made;
}

double largest_of(const ReferenceTensor& tensor) {
  double largest = 0.0;
  for (const double value : tensor.values) largest = std::max(largest, std::abs(value));
  return largest;
}

double tolerance_of(DType dtype, double largest, const OpSamples& samples, const OpSample& sample,
                    size_t output) {
  const double smallest = dtype == DType::kFloat16    ? 0x1p-24
                          : dtype == DType::kBFloat16 ? 0x1p-133
                          : dtype == DType::kFloat32  ? 0x1p-149
                          : dtype == DType::kFloat64  ? 0x1p-1074
                                                      : 0.0;
  const double terms = samples.term_size ? samples.term_size(sample, output) : 0.0;
  const double of_terms = default_tolerance(is_half(dtype) ? DType::kFloat32 : dtype) * terms;
  return samples.tolerance_scale * (default_tolerance(dtype) * largest + of_terms) + smallest;
}

const SampleRegistry& SampleRegistry::builtin() {
  static const SampleRegistry registry = [] {
    SampleRegistry made;
    register_builtin_samples(made);
    return made;
  }();
  return registry;
}

void SampleRegistry::add(OpSamples samples) {
  const std::string op = samples.op;
  SINTER_CHECK(samples_.emplace(op, std::move(samples)).second, "[samples] op '{}' has samples already", op);
}

const OpSamples* SampleRegistry::find(const std::string& op) const {
  const auto found = samples_.find(op);
  return found == samples_.end() ? nullptr : &found->second;
}

}  // namespace sinter::ops
