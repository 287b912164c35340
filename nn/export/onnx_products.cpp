// Products of matrices, reductions and what picks elements by their values or by index, in ONNX.
#include <numeric>

#include <sinter/nn/export/onnx_file.h>
#include <sinter/nn/export/onnx_translations.h>

namespace sinter::nn {
namespace {

/// With its last two axes swapped.
std::string transposed(OnnxCall& call, size_t i) {
  OnnxInts axes(static_cast<size_t>(call.input_rank(i)));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return call.node("Transpose", {call.input(i)}, {{"perm", axes}});
}

void matmul(OnnxCall& call) {
  const bool turn_a = call.attribute<bool>("transpose_a"), turn_b = call.attribute<bool>("transpose_b");
  if (call.input_rank(0) == 2 && call.input_rank(1) == 2) {
    call.give(
        call.node("Gemm", {call.input(0), call.input(1)},
                  {{"transA", static_cast<int64_t>(turn_a)}, {"transB", static_cast<int64_t>(turn_b)}}));
  } else {
    call.give(call.node("MatMul", {turn_a ? transposed(call, 0) : call.input(0),
                                   turn_b ? transposed(call, 1) : call.input(1)}));
  }
}

void linear(OnnxCall& call) {
  if (call.input_rank(0) == 2) {
    std::vector<std::string> inputs{call.input(0), call.input(1)};
    if (call.has_input(2)) inputs.push_back(call.input(2));
    call.give(call.node("Gemm", inputs, {{"transB", 1}}));
    return;
  }
  std::string y = call.node("MatMul", {call.input(0), transposed(call, 1)});
  if (call.has_input(2)) y = call.node("Add", {y, call.input(2)});
  call.give(y);
}

void matvec(OnnxCall& call) {
  const std::string a = call.attribute<bool>("transpose_a") ? transposed(call, 0) : call.input(0);
  const std::string column = call.node("Unsqueeze", {call.input(1), call.ints({-1})});
  call.give(call.node("Squeeze", {call.node("MatMul", {a, column}), call.ints({-1})}));
}

void outer(OnnxCall& call) {
  const std::string column = call.node("Unsqueeze", {call.input(0), call.ints({-1})});
  call.give(call.node("Mul", {column, call.node("Unsqueeze", {call.input(1), call.ints({-2})})}));
}

/// The axes that a reduction names, or all of them.
OnnxInts reduced_axes(const OnnxCall& call) {
  OnnxInts axes = call.attribute<std::vector<int64_t>>("axes");
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(call.input_rank(0)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

std::string cast_to(OnnxCall& call, const std::string& x, DType dtype) {
  return call.node("Cast", {x}, {{"to", onnx_type(dtype)}});
}

/// Input 0 as numbers: ONNX does not order bools.
std::string ordered(OnnxCall& call) {
  const bool is_bool = call.input_dtype(0) == DType::kBool;
  return is_bool ? cast_to(call, call.input(0), DType::kInt32) : call.input(0);
}

void sum(OnnxCall& call) {
  const bool widens = onnx_type(call.input_dtype(0)) != onnx_type(call.output_dtype());
  const std::string x = widens ? cast_to(call, call.input(0), call.output_dtype()) : call.input(0);
  const OnnxInts axes = reduced_axes(call);
  if (axes.empty()) return call.give(x);  // of rank 0
  call.give(call.node("ReduceSum", {x, call.ints(axes)},
                      {{"keepdims", static_cast<int64_t>(call.attribute<bool>("keep_dims"))}}));
}

/// Those whose axes are an attribute in opset 17.
OnnxTranslation reduction(const char* type) {
  return [type](OnnxCall& call) {
    const OnnxInts axes = reduced_axes(call);
    if (axes.empty()) return call.give(call.input(0));
    const std::string x =
        call.node(type, {ordered(call)},
                  {{"axes", axes}, {"keepdims", static_cast<int64_t>(call.attribute<bool>("keep_dims"))}});
    call.give(call.input_dtype(0) == DType::kBool ? cast_to(call, x, DType::kBool) : x);
  };
}

void cumsum(OnnxCall& call) {
  const bool widens = onnx_type(call.input_dtype(0)) != onnx_type(call.output_dtype());
  const std::string x = widens ? cast_to(call, call.input(0), call.output_dtype()) : call.input(0);
  call.give(call.node("CumSum", {x, call.ints({call.attribute<int64_t>("axis")})},
                      {{"reverse", static_cast<int64_t>(call.attribute<bool>("reverse"))}}));
}

void sum_to(OnnxCall& call) {
  const OnnxInts from = call.input_extents(0), to = call.output_extents();
  OnnxInts axes;
  const size_t leading = from.size() - to.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < leading || from[i] != to[i - leading]) axes.push_back(static_cast<int64_t>(i));
  }
  const std::string y = call.node("ReduceSum", {call.input(0), call.ints(axes)}, {{"keepdims", 1}});
  call.give(leading == 0 ? y : call.node("Reshape", {y, call.shape_of_output()}));
}

/// Softmax and its logarithm.
OnnxTranslation along_axis(const char* type) {
  return [type](OnnxCall& call) {
    call.give(call.node(type, {call.input(0)}, {{"axis", call.attribute<int64_t>("axis")}}));
  };
}

void l2_normalize(OnnxCall& call) {
  if (call.is_read(1)) call.refuse("the norms are read");
  const std::string norm = call.node("ReduceL2", {call.input(0)},
                                     {{"axes", OnnxInts{call.attribute<int64_t>("axis")}}, {"keepdims", 1}});
  const std::string divisor = call.node("Max", {norm, call.number(call.attribute<double>("epsilon"))});
  call.give(call.node("Div", {call.input(0), divisor}));
}

void argmax(OnnxCall& call) {
  call.give(call.node("ArgMax", {ordered(call)},
                      {{"axis", call.attribute<int64_t>("axis")},
                       {"keepdims", static_cast<int64_t>(call.attribute<bool>("keep_dims"))}}));
}

void topk(OnnxCall& call) {
  const std::vector<std::string> outputs =
      call.nodes("TopK", {ordered(call), call.ints({call.attribute<int64_t>("k")})}, 2,
                 {{"axis", call.attribute<int64_t>("axis")}});
  const bool is_bool = call.input_dtype(0) == DType::kBool && call.is_read(0);
  call.give(is_bool ? cast_to(call, outputs[0], DType::kBool) : outputs[0], 0);
  call.give(outputs[1], 1);
}

void embedding(OnnxCall& call) {
  call.give(call.node("Gather", {call.input(0), call.input(1)}, {{"axis", 0}}));
}

void gather(OnnxCall& call) {
  call.give(call.node("GatherElements", {call.input(0), call.input(1)},
                      {{"axis", call.attribute<int64_t>("axis")}}));
}

void one_hot(OnnxCall& call) {
  const DType dtype = call.output_dtype();
  const bool is_whole = !is_float(dtype);
  const Tensor values =
      is_whole ? Tensor::from_values<int64_t>({0, 1}, {2}) : Tensor::from_values<float>({0, 1}, {2});
  const std::string classes =
      call.number(static_cast<double>(call.attribute<int64_t>("classes")), DType::kInt64);
  // ONNX Runtime takes no single label.
  const bool is_single = call.input_rank(0) == 0;
  const std::string labels =
      is_single ? call.node("Unsqueeze", {call.input(0), call.ints({0})}) : call.input(0);
  std::string y = call.node("OneHot", {labels, classes, call.initializer(values)}, {{"axis", -1}});
  if (is_single) y = call.node("Squeeze", {y, call.ints({0})});
  call.give(is_whole && dtype != DType::kInt64 ? cast_to(call, y, dtype) : y);
}

}  // namespace

void add_product_translations(OnnxTable& table) {
  table["argmax"] = argmax;
  table["cumsum"] = cumsum;
  table["embedding"] = embedding;
  table["gather"] = gather;
  table["l2_normalize"] = l2_normalize;
  table["linear"] = linear;
  table["log_softmax"] = along_axis("LogSoftmax");
  table["matmul"] = matmul;
  table["matvec"] = matvec;
  table["max"] = reduction("ReduceMax");
  table["mean"] = reduction("ReduceMean");
  table["min"] = reduction("ReduceMin");
  table["one_hot"] = one_hot;
  table["outer"] = outer;
  table["softmax"] = along_axis("Softmax");
  table["sum"] = sum;
  table["sum_to"] = sum_to;
  table["topk"] = topk;
}

}  // namespace sinter::nn
