// Makes calls of the op cases: every registered op, those without a case of their own as elementwise ones.
#include <algorithm>
#include <random>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/call.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "op_cases.h"
#include "sweep_cases.h"

namespace sinter::bench {
namespace {

/// Of images, matrices and products of any size and proportion that a CPU takes some milliseconds for.
OpSize random_size(std::string name, std::mt19937_64& random) {
  const auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto one_of = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + between(0, static_cast<int64_t>(values.size()) - 1));
  };
  const auto elements = [&] { return between(300'000, 3'000'000); };
  OpSize size{.name = std::move(name), .dtype = DType::kFloat32};
  size.channels = one_of({1, 3, 4, 16, 24, 61, 64, 96, 127, 256, 512, 1000, 2048});
  size.height = between(5, 90), size.width = between(5, 90);
  size.images = std::max<int64_t>(1, elements() / (size.channels * size.height * size.width));
  size.columns = one_of({16, 33, 100, 256, 1000, 1001, 4096, 10'007, 65'536, 100'001});
  size.classes = std::min(one_of({10, 16, 100, 257, 1000, 8192}), size.columns);
  size.rows = std::max<int64_t>(2, elements() / size.columns);
  size.columns = (size.columns + size.classes - 1) / size.classes * size.classes;
  size.m = between(1, 600), size.n = between(1, 600), size.k = between(1, 600);
  return size;
}

std::vector<OpSize> sizes(const OpDraw& draw) {
  using enum DType;
  if (draw.seed) {
    std::mt19937_64 random(*draw.seed);
    OpSize first = random_size("first", random);
    return {first, random_size("second", random)};
  }
  switch (draw.scale) {
    case OpDraw::Scale::kSmall:
      return {{.name = "large",
               .dtype = kFloat16,
               .images = 2,
               .channels = 8,
               .height = 16,
               .width = 16,
               .rows = 64,
               .columns = 1024,
               .classes = 128,
               .m = 64,
               .n = 64,
               .k = 64},
              {.name = "odd",
               .dtype = kFloat32,
               .images = 2,
               .channels = 5,
               .height = 9,
               .width = 7,
               .rows = 61,
               .columns = 1031,
               .classes = 101,
               .m = 33,
               .n = 17,
               .k = 29}};
    case OpDraw::Scale::kCpu:
      return {{.name = "large",
               .dtype = kFloat32,
               .images = 16,
               .channels = 64,
               .height = 56,
               .width = 56,
               .rows = 2048,
               .columns = 2048,
               .classes = 1024,
               .m = 512,
               .n = 512,
               .k = 512},
              {.name = "odd",
               .dtype = kFloat32,
               .images = 7,
               .channels = 67,
               .height = 57,
               .width = 53,
               .rows = 1001,
               .columns = 2002,
               .classes = 1001,
               .m = 509,
               .n = 1021,
               .k = 383}};
    default:
      return {{.name = "large",
               .dtype = kFloat16,
               .images = 128,
               .channels = 64,
               .height = 112,
               .width = 112,
               .rows = 8192,
               .columns = 8192,
               .classes = 1024,
               .m = 4096,
               .n = 4096,
               .k = 4096},
              {.name = "odd",
               .dtype = kFloat32,
               .images = 33,
               .channels = 67,
               .height = 57,
               .width = 53,
               .rows = 4001,
               .columns = 4999,
               .classes = 1001,
               .m = 1021,
               .n = 1999,
               .k = 1537}};
  }
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

std::vector<Item> op_items(const OpDraw& draw) {
  OpCaseTable table;
  add_image_cases(table);
  add_other_cases(table);
  std::vector<Item> items;
  for (const std::string& name : OpRegistry::instance().names()) {
    const Op& op = OpRegistry::instance().get(name);
    if (name == "reshape") continue;  // a view of its input, always
    const auto found = table.find(name);
    for (OpSize size : sizes(draw)) {
      size.dtype = draw.dtype.value_or(size.dtype);
      add_items(items, op, found == table.end() ? nullptr : found->second, size);
    }
  }
  return items;
}

}  // namespace sinter::bench
