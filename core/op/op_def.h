// OpDef: the one definition of an op that every mode reads - eager calls, gradient checks, tests and, later,
// jobs.
#pragma once

#include <bit>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct OpDef;

/// One input of an op, as its schema names it.
struct InputDef {
  std::string name;
  bool optional = false;  ///< may be an undefined tensor
  bool mutated = false;   ///< the kernel writes to it; autograd's version counter is bumped
};

/// One output. Gradients flow through differentiable ones only.
struct OutputDef {
  std::string name;
  bool differentiable = true;
};

/// The inputs of a call as shape inference sees them, with checks that name op and input in their errors.
class InferContext {
 public:
  InferContext(const OpDef& op, std::span<const TensorSpec* const> inputs, const Attributes& attributes)
      : op_(op), inputs_(inputs), attributes_(attributes) {}

  const OpDef& op() const { return op_; }
  /// The op's name, for errors.
  const char* tag() const;
  size_t input_count() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorSpec& input(size_t i) const { return *inputs_[i]; }
  const Shape& shape(size_t i) const { return input(i).shape; }
  const Attributes& attributes() const { return attributes_; }
  template <AttributesStruct T>
  const T& attributes() const {
    return attributes_.as<T>();
  }

  /// Each throws InvalidArgument unless input i is as expected.
  void expect_rank(size_t i, int rank) const;
  void expect_rank(size_t i, std::initializer_list<int> ranks) const;
  void expect_float(size_t i) const;
  void expect_dtype(size_t i, DType dtype) const;
  void expect_same_dtype(size_t i, size_t j) const;
  void expect_shape(size_t i, const Shape& shape) const;

 private:
  std::string input_name(size_t i) const;

  const OpDef& op_;
  std::span<const TensorSpec* const> inputs_;  // null for absent optional inputs
  const Attributes& attributes_;
};

/// What a gradient rule sees: the gradients of the outputs, and of inputs and outputs the specs, and the
/// values of those that the op declared in `gradient_reads`.
class GradientContext {
 public:
  virtual ~GradientContext() = default;

  virtual const Attributes& attributes() const = 0;
  template <AttributesStruct T>
  const T& attributes() const {
    return attributes().as<T>();
  }
  virtual size_t input_count() const = 0;
  /// Values; throws InternalError unless declared. Undefined for an absent optional input.
  virtual Tensor input(size_t i) const = 0;
  virtual Tensor output(size_t i) const = 0;
  virtual const TensorSpec& input_spec(size_t i) const = 0;
  virtual const TensorSpec& output_spec(size_t i) const = 0;
  /// The gradient of output i; undefined if nothing depends on that output. With one output it is always
  /// defined.
  virtual Tensor grad(size_t i = 0) const = 0;
  /// True if the gradient of input i is asked for; others may be returned undefined.
  virtual bool needs(size_t i) const = 0;
};

/// Which tensors an op's gradient reads, as bit masks over inputs and outputs. What is not listed is not kept
/// alive.
struct GradientReads {
  uint64_t inputs = 0;
  uint64_t outputs = 0;
};

/// `reads_of({0, 2})`: the mask of inputs or outputs 0 and 2.
constexpr uint64_t reads_of(std::initializer_list<int> indices) {
  uint64_t mask = 0;
  for (int i : indices) mask |= uint64_t{1} << i;
  return mask;
}
inline constexpr uint64_t kReadsAll = ~uint64_t{0};

struct OpDef {
  /// Checks inputs and attributes (throws InvalidArgument) and gives the outputs. Fewer specs than declared
  /// outputs mean that the trailing ones are absent in this call.
  using Infer = std::vector<TensorSpec> (*)(const InferContext&);
  /// One gradient per input, undefined where there is none; written with the op functions that users call.
  using Gradient = std::vector<Tensor> (*)(const GradientContext&);
  /// For views: the element of input 0 at which output 0 starts when it shares the storage; nothing: run the
  /// kernel.
  using View = std::optional<int64_t> (*)(const InferContext&);

  std::string name;
  std::vector<InputDef> inputs;
  /// The whole list of inputs may repeat any number of times: (x, x, ...), (p, g, p, g, ...).
  bool variadic = false;
  std::vector<OutputDef> outputs = {};  ///< may be none if an input is mutated
  Infer infer = nullptr;
  Gradient gradient = nullptr;  ///< null: not differentiable
  GradientReads gradient_reads = {};
  View view = nullptr;

  const InputDef& input_def(size_t i) const { return inputs[variadic ? i % inputs.size() : i]; }
};

}  // namespace sinter
