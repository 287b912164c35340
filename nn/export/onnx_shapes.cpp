// Other shapes, orders and parts of tensors, in ONNX.
#include <algorithm>
#include <array>
#include <limits>

#include <sinter/nn/export/onnx_translations.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::nn {
namespace {

void reshape(OnnxCall& call) {
  const OnnxInts to = call.output_extents();
  const std::string x = call.input(0);
  if (std::ranges::count(to, -1) > 1) return call.give(call.node("Reshape", {x, call.shape_of_output()}));
  const bool has_zero = std::ranges::count(to, 0) > 0;
  // A -1 is what is left, and 0 means 0 then, rather than what the input has.
  if (has_zero) return call.give(call.node("Reshape", {x, call.shape_of_output()}, {{"allowzero", 1}}));
  call.give(call.node("Reshape", {x, call.ints(to)}));
}

void permute(OnnxCall& call) {
  OnnxInts axes = call.attribute<std::vector<int64_t>>("axes");
  for (int64_t& axis : axes) axis += axis < 0 ? static_cast<int64_t>(axes.size()) : 0;
  call.give(call.node("Transpose", {call.input(0)}, {{"perm", axes}}));
}

void pad(OnnxCall& call) {
  const auto& padding = call.attribute<std::vector<std::array<int64_t, 2>>>("padding");
  const ops::PadMode mode = call.attribute<ops::PadMode>("mode");
  OnnxInts pads;
  for (const auto& [before, after] : padding) pads.push_back(before);
  for (const auto& [before, after] : padding) pads.push_back(after);
  std::vector<std::string> inputs{call.input(0), call.ints(pads)};
  if (mode == ops::PadMode::kConstant) {
    inputs.push_back(call.number(call.attribute<double>("value"), call.input_dtype(0)));
  }
  const char* const name = mode == ops::PadMode::kConstant  ? "constant"
                           : mode == ops::PadMode::kReflect ? "reflect"
                                                            : "edge";
  call.give(call.node("Pad", inputs, {{"mode", name}}));
}

void concat(OnnxCall& call) {
  std::vector<std::string> inputs;
  for (size_t i = 0; i < call.input_count(); ++i) inputs.push_back(call.input(i));
  call.give(call.node("Concat", inputs, {{"axis", call.attribute<int64_t>("axis")}}));
}

void slice(OnnxCall& call) {
  const int64_t axis = call.attribute<int64_t>("axis");
  // An axis of the batch is only taken as a whole: other ends would differ from batch to batch.
  if (call.output_extents()[static_cast<size_t>(axis)] < 0) return call.give(call.input(0));
  call.give(call.node("Slice", {call.input(0), call.ints({call.attribute<int64_t>("begin")}),
                                call.ints({call.attribute<int64_t>("end")}), call.ints({axis})}));
}

/// A slice that begins at the end and steps backwards beyond the beginning.
void flip(OnnxCall& call) {
  const OnnxInts axes = call.attribute<std::vector<int64_t>>("axes");
  const auto all = [&](int64_t value) { return call.ints(OnnxInts(axes.size(), value)); };
  call.give(call.node(
      "Slice", {call.input(0), all(-1), all(std::numeric_limits<int64_t>::min()), call.ints(axes), all(-1)}));
}

void broadcast_to(OnnxCall& call) {
  OnnxInts to = call.output_extents();
  const OnnxInts from = call.input_extents(0);
  const size_t leading = to.size() - from.size();
  bool grows = false;  // along the batch
  for (size_t i = 0; i < to.size(); ++i) {
    const bool comes_so = i >= leading && from[i - leading] < 0;
    if (to[i] >= 0) continue;
    grows = grows || !comes_so;
    to[i] = 1;  // keeps what comes
  }
  call.give(call.node("Expand", {call.input(0), grows ? call.shape_of_output() : call.ints(to)}));
}

void full(OnnxCall& call) {
  const std::string value = call.number(call.attribute<double>("value"), call.output_dtype());
  call.give(call.node("Expand", {value, call.shape_of_output()}));
}

}  // namespace

void add_shape_translations(OnnxTable& table) {
  table["broadcast_to"] = broadcast_to;
  table["concat"] = concat;
  table["flip"] = flip;
  table["full"] = full;
  table["pad"] = pad;
  table["permute"] = permute;
  table["reshape"] = reshape;
  table["slice"] = slice;
}

}  // namespace sinter::nn
