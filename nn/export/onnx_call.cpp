#include <sinter/nn/export/onnx_call.h>
#include <sinter/nn/export/onnx_graph.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/passes/value_map.h>

namespace sinter::nn {
namespace {

constexpr const char* kHint = "; export one of fixed size, with dynamic_batch = false";

}  // namespace

std::string OnnxCall::input(size_t i) const {
  return has_input(i) ? graph_.name_of(*node_.input(i), node_.scope) : std::string();
}

Tensor OnnxCall::constant(size_t i) const {
  const Tensor value = has_input(i) ? graph_.constant(*node_.input(i)) : Tensor();
  return value.defined() ? ops::cast(value.to(Device::cpu()), written_dtype(value.dtype())) : value;
}

OnnxInts OnnxCall::input_extents(size_t i) const {
  return graph_.extents(*node_.input(i));
}
OnnxInts OnnxCall::output_extents(size_t i) const {
  return graph_.extents(*node_.outputs[i]);
}

int64_t OnnxCall::input_extent(size_t i, int axis) const {
  const OnnxInts extents = input_extents(i);
  const int64_t extent = extents[static_cast<size_t>(normalize_axis(axis, input_rank(i), "export_onnx"))];
  if (extent < 0) refuse(fmt::format("axis {} of its input {} goes with the batch{}", axis, i, kHint));
  return extent;
}

int64_t OnnxCall::output_extent(int axis, size_t i) const {
  const OnnxInts extents = output_extents(i);
  const int64_t extent = extents[static_cast<size_t>(normalize_axis(axis, output_rank(i), "export_onnx"))];
  if (extent < 0) refuse(fmt::format("axis {} of its output goes with the batch{}", axis, kHint));
  return extent;
}

std::string OnnxCall::node(const char* type, std::vector<std::string> inputs,
                           std::vector<OnnxAttribute> attributes) {
  return nodes(type, std::move(inputs), 1, std::move(attributes)).front();
}

std::vector<std::string> OnnxCall::nodes(const char* type, std::vector<std::string> inputs, size_t outputs,
                                         std::vector<OnnxAttribute> attributes) {
  return graph_.add_node(node_.scope, type, std::move(inputs), outputs, std::move(attributes));
}

std::string OnnxCall::number(double value, DType dtype) {
  return graph_.add_number(value, written_dtype(dtype));
}

std::string OnnxCall::ints(const OnnxInts& values) {
  return graph_.add_ints(values);
}

std::string OnnxCall::initializer(const Tensor& value) {
  return graph_.add_constant(value, node_.scope);
}

std::string OnnxCall::channels(size_t i, int rank) {
  OnnxInts extents(static_cast<size_t>(rank - 1), 1);
  extents[0] = input_extent(i, 0);
  if (rank <= 2) return input(i);
  const Tensor value = graph_.constant(*node_.input(i));
  if (!value.defined()) return node("Reshape", {input(i), ints(extents)});
  const Tensor reshaped = ops::reshape(value, extents);
  const std::string name = graph_.constant_name(*node_.input(i));
  return name.empty() ? initializer(reshaped) : graph_.add_initializer(reshaped, name);
}

std::string OnnxCall::shape_of_output(size_t i) {
  return graph_.shape_of(*node_.outputs[i], node_.scope);
}

void OnnxCall::give(const std::string& value, size_t i) {
  graph_.set_name(*node_.outputs[i], value);
}

void OnnxCall::refuse(const std::string& reason) const {
  throw_error<Unsupported>("[export_onnx] {} cannot be written as ONNX: {}", passes::name_of(node_), reason);
}

}  // namespace sinter::nn
