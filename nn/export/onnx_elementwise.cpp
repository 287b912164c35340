// Ops that work element by element, in ONNX.
#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/nn/export/onnx_file.h>
#include <sinter/nn/export/onnx_translations.h>

namespace sinter::nn {
namespace {

/// An op that is one node of the same inputs.
OnnxTranslation same(const char* type) {
  return [type](OnnxCall& call) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < call.input_count(); ++i) inputs.push_back(call.input(i));
    call.give(call.node(type, inputs));
  };
}

void copy(OnnxCall& call) {
  call.give(call.input(0));
}

void cast(OnnxCall& call) {
  const int64_t from = onnx_type(call.input_dtype(0)), to = onnx_type(call.output_dtype());
  call.give(from == to ? call.input(0) : call.node("Cast", {call.input(0)}, {{"to", to}}));
}

/// Comparisons: ONNX orders numbers only, so bools are compared as numbers.
OnnxTranslation comparison(const char* type) {
  return [type](OnnxCall& call) {
    std::string a = call.input(0), b = call.input(1);
    if (call.input_dtype(0) == DType::kBool) {
      const OnnxAttribute to{"to", onnx_type(DType::kInt32)};
      a = call.node("Cast", {a}, {to});
      b = call.node("Cast", {b}, {to});
    }
    call.give(call.node(type, {a, b}));
  };
}

void not_equal(OnnxCall& call) {
  call.give(call.node("Not", {call.node("Equal", {call.input(0), call.input(1)})}));
}

/// Of truth: ONNX knows that of bools alone.
OnnxTranslation logical(const char* type) {
  return [type](OnnxCall& call) {
    const auto truth = [&](size_t i) {
      if (call.input_dtype(i) == DType::kBool) return call.input(i);
      return call.node("Cast", {call.input(i)}, {{"to", onnx_type(DType::kBool)}});
    };
    call.give(call.node(type, {truth(0), truth(1)}));
  };
}

void mul_no_nan(OnnxCall& call) {
  const std::string a = call.input(0), b = call.input(1), zero = call.number(0.0);
  const std::string is_zero = call.node("Or", {call.node("Equal", {a, zero}), call.node("Equal", {b, zero})});
  call.give(call.node("Where", {is_zero, zero, call.node("Mul", {a, b})}));
}

void square(OnnxCall& call) {
  call.give(call.node("Mul", {call.input(0), call.input(0)}));
}

void reciprocal(OnnxCall& call) {
  call.give(call.node("Div", {call.number(1.0), call.input(0)}));
}

void rsqrt(OnnxCall& call) {
  call.give(call.node("Div", {call.number(1.0), call.node("Sqrt", {call.input(0)})}));
}

void pow(OnnxCall& call) {
  call.give(call.node("Pow", {call.input(0), call.number(call.attribute<double>("exponent"))}));
}

/// The element of an integer dtype that a number stands for in arithmetic that wraps around.
double wrapped(double number, DType dtype) {
  if (dtype != DType::kUInt8 && dtype != DType::kInt32) return number;
  const double count = dtype == DType::kUInt8 ? 0x1p8 : 0x1p32;
  const double highest = dtype == DType::kUInt8 ? 0xff : std::numeric_limits<int32_t>::max();
  const double rest = number - std::floor(number / count) * count;
  return rest > highest ? rest - count : rest;
}

void affine(OnnxCall& call) {
  const double scale = call.attribute<double>("scale"), shift = call.attribute<double>("shift");
  const DType dtype = call.input_dtype(0);
  std::string x = call.input(0);
  if (scale != 1.0) x = call.node("Mul", {x, call.number(wrapped(scale, dtype), dtype)});
  if (shift != 0.0) x = call.node("Add", {x, call.number(wrapped(shift, dtype), dtype)});
  call.give(x);
}

/// ONNX negates numbers with a sign only.
void neg(OnnxCall& call) {
  const std::string x = call.input(0);
  const bool has_sign = call.input_dtype(0) != DType::kUInt8;
  call.give(has_sign ? call.node("Neg", {x}) : call.node("Sub", {call.number(0.0, DType::kUInt8), x}));
}

/// ONNX Runtime selects among numbers only, so bools go as numbers.
void where(OnnxCall& call) {
  if (call.output_dtype() != DType::kBool)
    return call.give(call.node("Where", {call.input(0), call.input(1), call.input(2)}));
  const OnnxAttribute to_number{"to", onnx_type(DType::kInt32)}, to_bool{"to", onnx_type(DType::kBool)};
  const std::string a = call.node("Cast", {call.input(1)}, {to_number});
  const std::string b = call.node("Cast", {call.input(2)}, {to_number});
  call.give(call.node("Cast", {call.node("Where", {call.input(0), a, b})}, {to_bool}));
}

/// The bound, or nothing where it bounds nothing.
std::string clip_bound(OnnxCall& call, double bound, bool is_low) {
  const DType dtype = call.input_dtype(0);
  if (is_float(dtype)) return std::isfinite(bound) ? call.number(bound) : std::string();
  double lowest = 0.0, highest = 255.0;
  if (dtype == DType::kInt32) {
    lowest = std::numeric_limits<int32_t>::min();
    highest = std::numeric_limits<int32_t>::max();
  } else if (dtype == DType::kInt64) {
    lowest = -0x1p63;
    highest = 0x1p63;  // no int64, but then there is no bound
  }
  const double whole = is_low ? std::ceil(bound) : std::floor(bound);
  if (is_low ? whole <= lowest : whole >= highest) return {};
  return call.number(std::clamp(whole, lowest, highest), dtype);
}

void clip(OnnxCall& call) {
  const std::string low = clip_bound(call, call.attribute<double>("low"), true);
  const std::string high = clip_bound(call, call.attribute<double>("high"), false);
  call.give(call.node("Clip", {call.input(0), low, high}));
}

void silu(OnnxCall& call) {
  call.give(call.node("Mul", {call.input(0), call.node("Sigmoid", {call.input(0)})}));
}

/// In the form that runtimes know again: 0.5 x (1 + erf(x / sqrt 2)).
void gelu(OnnxCall& call) {
  const std::string x = call.input(0);
  const std::string erf = call.node("Erf", {call.node("Div", {x, call.number(std::sqrt(2.0))})});
  const std::string twice = call.node("Mul", {x, call.node("Add", {erf, call.number(1.0)})});
  call.give(call.node("Mul", {twice, call.number(0.5)}));
}

void hardsigmoid(OnnxCall& call) {
  call.give(call.node("HardSigmoid", {call.input(0)}, {{"alpha", 1.0 / 6.0}, {"beta", 0.5}}));
}

void leaky_relu(OnnxCall& call) {
  call.give(call.node("LeakyRelu", {call.input(0)}, {{"alpha", call.attribute<double>("negative_slope")}}));
}

void relu6(OnnxCall& call) {
  call.give(call.node("Clip", {call.input(0), call.number(0.0), call.number(6.0)}));
}

void elu(OnnxCall& call) {
  call.give(call.node("Elu", {call.input(0)}, {{"alpha", call.attribute<double>("alpha")}}));
}

void mish(OnnxCall& call) {
  const std::string x = call.input(0);
  call.give(call.node("Mul", {x, call.node("Tanh", {call.node("Softplus", {x})})}));
}

void softplus(OnnxCall& call) {
  const double beta = call.attribute<double>("beta");
  std::string x = call.input(0);
  if (beta != 1.0) x = call.node("Mul", {x, call.number(beta)});
  x = call.node("Softplus", {x});
  if (beta != 1.0) x = call.node("Mul", {x, call.number(1.0 / beta)});
  call.give(x);
}

}  // namespace

void add_elementwise_translations(OnnxTable& table) {
  const std::pair<const char*, const char*> same_nodes[] = {
      {"abs", "Abs"},     {"add", "Add"},         {"cos", "Cos"},     {"div", "Div"},
      {"equal", "Equal"}, {"erf", "Erf"},         {"exp", "Exp"},     {"hardswish", "HardSwish"},
      {"log", "Log"},     {"maximum", "Max"},     {"minimum", "Min"}, {"mul", "Mul"},
      {"relu", "Relu"},   {"sigmoid", "Sigmoid"}, {"sign", "Sign"},   {"sin", "Sin"},
      {"sqrt", "Sqrt"},   {"sub", "Sub"},         {"tanh", "Tanh"}};
  for (const auto& [op, type] : same_nodes) table[op] = same(type);
  table["affine"] = affine;
  table["cast"] = cast;
  table["clip"] = clip;
  table["copy"] = copy;
  table["elu"] = elu;
  table["gelu"] = gelu;
  table["greater"] = comparison("Greater");
  table["greater_equal"] = comparison("GreaterOrEqual");
  table["hardsigmoid"] = hardsigmoid;
  table["leaky_relu"] = leaky_relu;
  table["less"] = comparison("Less");
  table["less_equal"] = comparison("LessOrEqual");
  table["logical_and"] = logical("And");
  table["logical_or"] = logical("Or");
  table["logical_xor"] = logical("Xor");
  table["mish"] = mish;
  table["mul_no_nan"] = mul_no_nan;
  table["neg"] = neg;
  table["not_equal"] = not_equal;
  table["pow"] = pow;
  table["reciprocal"] = reciprocal;
  table["relu6"] = relu6;
  table["rsqrt"] = rsqrt;
  table["silu"] = silu;
  table["softplus"] = softplus;
  table["square"] = square;
  table["where"] = where;
}

}  // namespace sinter::nn
