// OpDef: the one definition of an op that every mode reads - eager calls, jobs, gradient checks and tests.
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

struct Op;  // core/op/registry.h
struct OpDef;
struct KernelChoice;  // core/op/kernel.h
class KernelQuery;
struct NormChain;  // core/op/norm_chain.h
struct FusedNorm;

/// One input of an op, as its schema names it.
struct InputDef {
  std::string name;
  bool optional = false;  ///< may be an undefined tensor
  bool mutated = false;   ///< kernels write to it, in calls for which OpDef::mutates says so
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
  void expect_number(size_t i) const;  ///< any dtype but bool
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

/// In which precision an op computes when a job is made mixed (passes/mixed_precision.cpp).
enum class Precision : uint8_t {
  kUnchanged,  ///< says nothing: its floating-point inputs are given as float32, as the model was written
  kReduced,    ///< in 16 bit: convolutions and products of matrices
  kFloat32,    ///< in float32, whatever comes: sums over many elements, losses
  kFollow,     ///< in 16 bit if all inputs that a job computes come so: what only moves or maps elements.
               ///< Beside a float32 one, such as the mean that a norm subtracts, it computes in float32
};

/// How an op's images and filters follow when a job is turned channels-last (passes/channels_last.cpp).
struct LayoutRule {
  enum class Kind : uint8_t {
    kFixed,  ///< works on the axes as they are: its inputs keep, or get back, the order they were traced in
    kAttribute,  ///< has a field `layout` of type Layout, which says how its images and filters lie
    kAnyOrder,   ///< maps equal places of tensors of one shape, or broadcast to it, to each other, or treats
                 ///< axes alike but for those that its attributes name: any order of axes does
  };
  /// kAnyOrder, for attributes that name axes: those that do the same on inputs whose axis i was axis
  /// order[i]. Nothing if there are none: an output of lower rank would have its axes in another order.
  using Reordered = std::optional<Attributes> (*)(const Attributes& attributes,
                                                  std::span<const int64_t> order);
  Kind kind = Kind::kFixed;
  uint64_t images = 0;         ///< kAttribute: inputs of rank 4 that are images, as a mask (reads_of)
  uint64_t filters = 0;        ///< inputs of rank 4 that are filters: OIHW or OHWI
  uint64_t image_outputs = 1;  ///< kAttribute: outputs of rank 4 that are images or filters
  Reordered reordered = nullptr;
};

/// What an op is to rewrites that fuse it with its neighbours.
enum class Role : uint8_t {
  kNone,
  kNormalization,  ///< a normalisation of input 0; OpTraits::fuse_norm says how it takes in what follows it
  kSum,            ///< the sum of two inputs, which broadcast
  /// Inputs x, filters and optionally a bias; linear in the filters, whose first axis is the output's
  /// channels, and in the bias (channels).
  kConvolution,
  kRelu,         ///< max(x, 0) of its one input
  kPRelu,        ///< x or slope * x: inputs x and slope
  kCast,         ///< another dtype of its one input
  kPermutation,  ///< its one input with its axes in another order
  /// A key of random numbers from fields `seed` and `offset` (uint64_t), which count from its optional input.
  kRandomKey,
};

/// An input that is a sum may be given in two parts, which the op adds up itself: `second`, an optional input
/// that is absent otherwise, is added to `first`.
struct SummedInput {
  int first = -1, second = -1;                    ///< -1: there is no such input
  bool (*can)(const Attributes& call) = nullptr;  ///< whether a call can take a second part; null: always
};

/// What rewrites of jobs may know of an op. An op that says nothing is traced, differentiated and replayed as
/// it is; each trait lets it take part in one rewrite more.
struct OpTraits {
  /// Element i of the output depends on element i of the inputs that have its shape, and the kernels may
  /// write the output over such an input.
  bool elementwise = false;
  Precision precision = Precision::kUnchanged;
  /// Floating-point inputs that stay float32 beside 16-bit data, as a mask: the parameters of a norm.
  uint64_t float32_inputs = 0;
  LayoutRule layout = {};
  Role role = Role::kNone;
  /// Of a Role::kNormalization: makes one call of it and of what follows it, or says why it cannot. Null: it
  /// is left as it is.
  FusedNorm (*fuse_norm)(const NormChain& chain) = nullptr;
  SummedInput summed_input = {};
  /// The name of an op that takes the same inputs and attributes and gives, behind this op's only output y,
  /// the sums over all but the channels of y's elements and of their squares, (2, channels) in the dtype in
  /// which y is computed. Null: there is none.
  const char* with_channel_sums = nullptr;
  /// False: where a program is captured, such a call is made between two graphs. For those that put work on
  /// another stream: in a graph of several branches every kernel starts later.
  bool captured = true;
};

struct OpDef {
  /// Checks inputs and attributes (throws InvalidArgument) and gives the outputs. Fewer specs than declared
  /// outputs mean that the trailing ones are absent in this call.
  using Infer = std::vector<TensorSpec> (*)(const InferContext&);
  /// One gradient per input, undefined where there is none; written with the op functions that users call.
  using Gradient = std::vector<Tensor> (*)(const GradientContext&);
  /// For views: the element of input 0 at which output 0 starts when it shares the storage; nothing: run the
  /// kernel.
  using View = std::optional<int64_t> (*)(const InferContext&);
  /// The floating-point operations that a call stands for, as profiles count them: what its mathematics asks
  /// for, an addition and a multiplication one each, whatever the kernel does in their place. Products with
  /// the zeros of a padding count too, as is usual for convolutions.
  using Flops = double (*)(const InferContext&, std::span<const TensorSpec> outputs);
  using Choose = KernelChoice (*)(const Op& op, Device device, const KernelQuery& query);

  std::string name;
  std::vector<InputDef> inputs;
  /// The whole list of inputs may repeat any number of times: (x, x, ...), (p, g, p, g, ...).
  bool variadic = false;
  std::vector<OutputDef> outputs = {};  ///< may be none if an input is mutated
  Infer infer = nullptr;
  Gradient gradient = nullptr;  ///< null: not differentiable
  GradientReads gradient_reads = {};
  View view = nullptr;
  OpTraits traits = {};
  Flops flops = nullptr;  ///< null: not counted; for products, whose time is that of their arithmetic
  /// Whether a call changes its inputs that are marked `mutated`: a norm does so in training only. Null:
  /// every call does.
  bool (*changes)(const Attributes& attributes) = nullptr;
  /// Chooses among the kernels of a device, if there are several, none is forced and scratch is not limited:
  /// choose_by_time (core/op/autotune/choose_by_time.h). Null: estimates alone decide.
  Choose choose = nullptr;

  /// Whether a call with these attributes writes to input i, if it is there; the version of its contents
  /// (Storage::version) then moves.
  bool mutates(size_t i, const Attributes& attributes) const {
    return input_def(i).mutated && (changes == nullptr || changes(attributes));
  }
  const InputDef& input_def(size_t i) const { return inputs[variadic ? i % inputs.size() : i]; }
};

}  // namespace sinter
