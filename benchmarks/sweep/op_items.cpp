// Makes calls of the op cases: every registered op, those without a case of their own as elementwise ones.
#include <algorithm>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "op_cases.h"
#include "sweep_cases.h"

namespace sinter::bench {
namespace {

std::vector<OpSize> sizes(bool small) {
  using enum DType;
  OpSize large{.name = "large", .dtype = kFloat16}, odd{.name = "odd", .dtype = kFloat32};
  if (small) {
    large.images = odd.images = 2, large.channels = 8, odd.channels = 5, large.height = large.width = 16;
    odd.height = 9, odd.width = 7, large.rows = 64, odd.rows = 61, large.columns = 1024, odd.columns = 1031;
    large.classes = 128, odd.classes = 101, large.m = large.n = large.k = 64, odd.m = 33, odd.n = 17,
    odd.k = 29;
    return {large, odd};
  }
  large.images = 128, large.channels = 64, large.height = large.width = 112;
  large.rows = large.columns = 8192, large.classes = 1024, large.m = large.n = large.k = 4096;
  odd.images = 33, odd.channels = 67, odd.height = 57, odd.width = 53;
  odd.rows = 4001, odd.columns = 4999, odd.classes = 1001, odd.m = 1021, odd.n = 1999, odd.k = 1537;
  return {large, odd};
}

/// What has no case of its own: all inputs are alike. Attributes are those of a random sample.
std::vector<OpCase> elementwise_cases(const Op& op, const OpSize& size) {
  SINTER_CHECK(!op.definition.variadic, "[sweep] op '{}' needs a case in op_cases_*.cpp", op.name());
  const ops::OpSamples* samples = ops::SampleRegistry::builtin().find(op.name());
  OpCase one;
  if (samples != nullptr) {
    ops::SampleMaker maker(5, samples->dtypes.front());
    one.attributes = samples->make(maker).attributes;
  }
  for (const InputDef& input : op.definition.inputs) {
    SINTER_CHECK(!input.optional, "[sweep] op '{}' needs a case in op_cases_*.cpp", op.name());
    one.inputs.push_back(OpInput{{size.rows, size.columns}, size.dtype});
  }
  return {one};
}

Tensor made(const OpInput& input, uint64_t which, HashedTensors& tensors) {
  if (input.count == 0 && input.values.empty()) return tensors.numbers(input.shape, input.dtype, which);
  return tensors.listed(input.shape, input.dtype, which, input.count, input.values);
}

double bytes_of(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors)
    bytes += tensor.defined() ? static_cast<double>(tensor.spec().bytes()) : 0.0;
  return bytes;
}

SweepCall op_call(const Op& op, const OpCase& one, Device device) {
  HashedTensors tensors(device);
  std::vector<Tensor> inputs;
  double bytes = 0;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    inputs.push_back(one.inputs[i] ? made(*one.inputs[i], i + 1, tensors) : Tensor());
    if (op.definition.input_def(i).mutated) bytes += bytes_of({inputs.back()});  // written too
  }
  const std::vector<Tensor> outputs = call(op, inputs, one.attributes);
  SweepCall made{.run =
                     [&op, inputs, attributes = one.attributes] {
                       call(op, inputs, attributes);
                       return NamedTensors{};
                     },
                 .minimum_bytes = bytes + bytes_of(inputs) + bytes_of(outputs)};
  if (op.definition.flops != nullptr) {
    std::vector<const TensorSpec*> given;
    for (const Tensor& input : inputs) given.push_back(input.defined() ? &input.spec() : nullptr);
    std::vector<TensorSpec> specs;
    for (const Tensor& output : outputs) specs.push_back(output.spec());
    made.flops = op.definition.flops(InferContext(op.definition, given, one.attributes), specs);
  }
  return made;
}

Json described(const std::string& op, const OpCase& one, const OpSize& size, bool has_layout) {
  Json inputs = Json::array();
  for (const std::optional<OpInput>& input : one.inputs) {
    if (!input) {
      inputs.push_back(nullptr);
      continue;
    }
    const auto extents = input->shape.extents();
    inputs.push_back({{"shape", std::vector<int64_t>(extents.begin(), extents.end())},
                      {"dtype", std::string(to_string(input->dtype))},
                      {"count", input->count},
                      {"values", input->values}});
  }
  return {{"suite", "ops"},
          {"case", fmt::format("{}{} {}", op, one.variant.empty() ? "" : " " + one.variant, size.name)},
          {"dtype", std::string(to_string(size.dtype))},
          {"layout", has_layout ? std::string(to_string(size.layout)) : ""},
          {"op", op},
          {"variant", one.variant},
          {"size", size.name},
          {"inputs", inputs},
          {"attributes", to_string(one.attributes)}};
}

/// As elementwise ops have nothing else to say.
bool has_layout(const Attributes& attributes) {
  return attributes.find<Layout>("layout") != nullptr ||
         to_string(attributes).find("layout=") != std::string::npos;
}

void add_items(std::vector<Item>& items, const Op& op, MakeOpCases make, const OpSize& size) {
  const std::vector<OpCase> cases = make != nullptr ? make(size) : elementwise_cases(op, size);
  for (size_t i = 0; i < cases.size(); ++i) {
    const bool layouts = has_layout(cases[i].attributes);
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      if (layout == Layout::kNHWC && !layouts) continue;
      OpSize laid = size;
      laid.layout = layout;
      const auto at = [&op, make, laid, i](Device device) {
        OpSize placed = laid;
        placed.device = device;
        return (make != nullptr ? make(placed) : elementwise_cases(op, placed))[i];
      };
      items.push_back({described(op.name(), at(Device::cpu()), laid, layouts),
                       [&op, at](Device device) { return op_call(op, at(device), device); }});
    }
  }
}

}  // namespace

Shape OpSize::image(int64_t n_images, int64_t c, int64_t h, int64_t w) const {
  return layout == Layout::kNCHW ? Shape{n_images, c, h, w} : Shape{n_images, h, w, c};
}

std::vector<Item> op_items(bool small) {
  OpCaseTable table;
  add_image_cases(table);
  add_other_cases(table);
  std::vector<Item> items;
  for (const std::string& name : OpRegistry::instance().names()) {
    const Op& op = OpRegistry::instance().get(name);
    if (name == "reshape") continue;  // a view of its input, always
    const auto found = table.find(name);
    for (const OpSize& size : sizes(small))
      add_items(items, op, found == table.end() ? nullptr : found->second, size);
  }
  return items;
}

}  // namespace sinter::bench
