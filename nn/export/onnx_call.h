// OnnxCall: a call of an op that is being written as nodes of an ONNX graph.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <sinter/core/graph/graph.h>

namespace sinter::nn {

class OnnxGraph;

/// The attributes of an ONNX node: `{{"axis", 1}, {"mode", "linear"}, {"pads", OnnxInts{0, 0}}}`.
using OnnxInts = std::vector<int64_t>;
using OnnxAttribute = std::pair<std::string, std::variant<int64_t, double, std::string, OnnxInts>>;

/// What a translation sees of a call, and what it writes: nodes whose inputs and outputs are values, known by
/// their names. Floating-point values are float32, images (N, C, H, W). A translation gives each output that
/// is read a value, by give().
class OnnxCall {
 public:
  OnnxCall(OnnxGraph& graph, const GraphNode& node) : graph_(graph), node_(node) {}

  const std::string& op() const { return node_.op->name(); }
  /// One of the op's attributes by the name of its field; InternalError if there is none of this type.
  template <class T>
  const T& attribute(std::string_view name) const {
    const T* const found = node_.attributes.find<T>(name);
    SINTER_ASSERT(found != nullptr, "[export_onnx] {} has no attribute '{}' of this type", op(), name);
    return *found;
  }

  size_t input_count() const { return node_.inputs.size(); }
  bool has_input(size_t i) const { return node_.input(i) != nullptr; }
  /// The value's name; empty, which ONNX takes for absent, if the input is.
  std::string input(size_t i) const;
  /// The value of an input that no input of the model decides, such as a parameter, on the CPU in float32 (or
  /// its dtype, if that is no floating-point one); undefined for all others.
  Tensor constant(size_t i) const;
  /// As they are in the model: 16-bit ones may be among them.
  DType input_dtype(size_t i) const { return node_.input(i)->spec.dtype; }
  DType output_dtype(size_t i = 0) const { return node_.outputs[i]->spec.dtype; }
  int input_rank(size_t i) const { return node_.input(i)->spec.shape.rank(); }
  int output_rank(size_t i = 0) const { return node_.outputs[i]->spec.shape.rank(); }
  /// -1 for an extent that goes with the size of the batch.
  OnnxInts input_extents(size_t i) const;
  OnnxInts output_extents(size_t i = 0) const;
  /// One of them; a negative axis counts from the back. Refuses the call if it goes with the batch.
  int64_t input_extent(size_t i, int axis) const;
  int64_t output_extent(int axis, size_t i = 0) const;
  /// Whether anything reads the output.
  bool is_read(size_t i) const { return i < node_.outputs.size() && node_.outputs[i]->is_used(); }

  /// Writes a node and gives the name of its output, or of its outputs.
  std::string node(const char* type, std::vector<std::string> inputs,
                   std::vector<OnnxAttribute> attributes = {});
  std::vector<std::string> nodes(const char* type, std::vector<std::string> inputs, size_t outputs,
                                 std::vector<OnnxAttribute> attributes = {});
  /// A constant of one element, (), rounded to the dtype, which is float32 for all floating-point ones.
  std::string number(double value, DType dtype = DType::kFloat32);
  /// A constant int64 vector.
  std::string ints(const OnnxInts& values);
  /// Any constant.
  std::string initializer(const Tensor& value);
  /// Input i, a vector of channels, as (C, 1, 1, ...) that broadcasts with the channels, axis 1, of a tensor
  /// of rank `rank`. A parameter becomes a constant of this shape, under its name.
  std::string channels(size_t i, int rank);
  /// An int64 vector with the extents of an output, whatever the size of the batch.
  std::string shape_of_output(size_t i = 0);

  /// Says which value output i of the call is.
  void give(const std::string& value, size_t i = 0);
  /// Throws Unsupported with the op and its scope.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  OnnxGraph& graph_;
  const GraphNode& node_;
};

}  // namespace sinter::nn
