#include <algorithm>

#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/export/onnx_graph.h>
#include <sinter/nn/export/onnx_translations.h>
#include <sinter/passes/value_map.h>

namespace sinter::nn {
namespace {

// Constants that are made of smaller ones, such as full(), are computed in the file beyond so many elements.
constexpr int64_t kMostMade = 4096;

/// What names of a scope begin with; those outside of modules have none.
std::string prefix_of(const std::string& scope) {
  return scope.empty() || scope == "(outside)" ? std::string() : scope + "/";
}

}  // namespace

OnnxGraph::OnnxGraph(const OnnxTrace& trace, const OnnxOptions& options) : trace_(trace), options_(options) {}

OnnxModel OnnxGraph::build() {
  const NoGrad no_grad;
  find_constants();
  check_translations();
  add_inputs();
  for (const GraphNode* const node : written_) {
    OnnxCall call(*this, *node);
    find_onnx_translation(node->op->name())(call);
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      if (node->outputs[i]->is_used() && !names_.contains(node->outputs[i])) {
        call.refuse(fmt::format("its output '{}' has no counterpart", node->definition().outputs[i].name));
      }
    }
  }
  add_outputs();
  return std::move(model_);
}

// ---- constants

bool OnnxGraph::can_be_evaluated(const GraphNode& node) const {
  if (node.traits().role == Role::kRandomKey || node.changes_any() || node.is_collective()) return false;
  int64_t given = 0, made = 0;
  for (const GraphUse& use : node.inputs) {
    if (use.value == nullptr) continue;
    if (!constants_.contains(use.value)) return false;
    given += use.value->spec.shape.numel();
  }
  for (const GraphValue* const output : node.outputs) {
    if (!is_fixed(*output)) return false;
    made += output->spec.shape.numel();
  }
  return made <= std::max(given, kMostMade);
}

void OnnxGraph::find_constants() {
  const Graph& graph = *trace_.graph;
  for (const GraphValue* const memory : graph.memories()) {
    if (memory->version == 0) constants_[memory] = {memory->tensor, memory->name};
    if (!memory->name.empty()) reserved_.insert(memory->name);
  }
  for (const GraphNode* const node : graph.nodes()) {
    if (can_be_evaluated(*node)) {
      evaluate(*node);
    } else {
      written_.push_back(node);
    }
  }
}

void OnnxGraph::evaluate(const GraphNode& node) {
  std::vector<Tensor> inputs;
  for (const GraphUse& use : node.inputs) {
    inputs.push_back(use.value == nullptr ? Tensor() : constants_.at(use.value).value);
  }
  const std::vector<Tensor> outputs = call(*node.op, inputs, node.attributes);
  // A parameter in another order, shape or dtype keeps its name.
  const Role role = node.traits().role;
  const bool is_same = role == Role::kPermutation || role == Role::kCast || node.is_view();
  for (size_t i = 0; i < outputs.size(); ++i) {
    constants_[node.outputs[i]] = {outputs[i], is_same ? constants_.at(node.input(0)).name : std::string()};
  }
}

void OnnxGraph::check_translations() const {
  std::string unknown;
  std::set<std::string> places;
  for (const GraphNode* const node : written_) {
    if (find_onnx_translation(node->op->name()) && !node->changes_any()) continue;
    const std::string place = passes::name_of(*node);
    if (places.insert(place).second) unknown += (unknown.empty() ? "" : ", ") + place;
  }
  if (unknown.empty()) return;
  throw_error<Unsupported>(
      "[export_onnx] expected ops that have a counterpart in ONNX but got {}; "
      "register_onnx_translation() takes one for an op of your own",
      unknown);
}

Tensor OnnxGraph::constant(const GraphValue& value) const {
  const auto found = constants_.find(&value);
  return found == constants_.end() ? Tensor() : found->second.value;
}

std::string OnnxGraph::constant_name(const GraphValue& value) const {
  const auto found = constants_.find(&value);
  return found == constants_.end() ? std::string() : found->second.name;
}

const std::string& OnnxGraph::name_of(const GraphValue& value, const std::string& scope) {
  const auto found = names_.find(&value);
  if (found != names_.end()) return found->second;
  const Constant& constant = constants_.at(&value);
  const std::string name = constant.name.empty() ? add_constant(constant.value, scope)
                                                 : add_initializer(constant.value, constant.name);
  return names_[&value] = name;
}

std::string OnnxGraph::add_constant(const Tensor& value, const std::string& scope) {
  return add_initializer(value, prefix_of(scope) + "constant");
}

std::string OnnxGraph::add_initializer(const Tensor& value, const std::string& name) {
  const auto key =
      std::tuple(value.storage().get(), value.offset_bytes(),
                 std::vector<int64_t>(value.shape().begin(), value.shape().end()), value.dtype());
  const auto found = initializers_.find(key);
  if (found != initializers_.end()) return found->second;
  std::string free = name;
  for (int i = 1; !used_.insert(free).second; ++i) free = fmt::format("{}_{}", name, i);
  model_.initializers.push_back({free, value});
  return initializers_[key] = free;
}

std::string OnnxGraph::add_number(double value, DType dtype) {
  std::string& name = numbers_[{fmt::format("{}", value), dtype}];
  if (name.empty()) name = add_initializer(Tensor::full({}, value, dtype), unique("number"));
  return name;
}

std::string OnnxGraph::add_ints(const OnnxInts& values) {
  std::string& name = ints_[values];
  if (name.empty()) {
    name =
        add_initializer(Tensor::from_values(values, {static_cast<int64_t>(values.size())}), unique("ints"));
  }
  return name;
}

// ---- nodes and names

std::string OnnxGraph::unique(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; used_.contains(name) || reserved_.contains(name); ++i)
    name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::vector<std::string> OnnxGraph::add_node(const std::string& scope, const char* type,
                                             std::vector<std::string> inputs, size_t outputs,
                                             std::vector<OnnxAttribute> attributes) {
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  const std::string name = unique(prefix_of(scope) + type);
  used_.insert(name);
  std::vector<std::string> results;
  for (size_t i = 0; i < outputs; ++i) {
    results.push_back(i == 0 ? name : unique(fmt::format("{}:{}", name, i)));
    used_.insert(results.back());
  }
  model_.nodes.push_back({type, name, std::move(inputs), results, std::move(attributes)});
  return results;
}

OnnxInts OnnxGraph::extents(const GraphValue& value) const {
  const Shape& shape = value.spec.shape;
  OnnxInts extents(shape.begin(), shape.end());
  const auto found = trace_.per_batch.find(&value);
  for (size_t axis = 0; found != trace_.per_batch.end() && axis < extents.size(); ++axis) {
    if (found->second[axis] != 0) extents[axis] = -1;
  }
  return extents;
}

std::string OnnxGraph::shape_of(const GraphValue& value, const std::string& scope) {
  const auto found = trace_.per_batch.find(&value);
  const Shape& shape = value.spec.shape;
  if (found == trace_.per_batch.end()) return add_ints(OnnxInts(shape.begin(), shape.end()));
  if (batch_.empty()) {
    batch_ = add_node("batch", "Shape", {batch_input_}, 1, {{"start", 0}, {"end", 1}}).front();
  }
  std::vector<std::string> parts;
  for (size_t axis = 0; axis < found->second.size(); ++axis) {
    const int64_t times = found->second[axis];
    if (times == 0) {
      parts.push_back(add_ints({shape[static_cast<int>(axis)]}));
    } else {
      parts.push_back(times == 1 ? batch_
                                 : add_node(scope, "Mul", {batch_, add_ints({times})}, 1, {}).front());
    }
  }
  return parts.size() == 1 ? parts[0] : add_node(scope, "Concat", parts, 1, {{"axis", 0}}).front();
}

// ---- inputs and outputs

std::vector<std::string> OnnxGraph::names_for(const std::vector<std::string>& given, const std::string& kind,
                                              size_t count) const {
  std::vector<std::string> names = given;
  if (names.empty()) {
    for (size_t i = 0; i < count; ++i) names.push_back(count == 1 ? kind : fmt::format("{}{}", kind, i));
  }
  SINTER_CHECK(names.size() == count, "[export_onnx] expected {} {} names but got {}", count, kind,
               names.size());
  for (const std::string& name : names) {
    SINTER_CHECK(!name.empty() && !reserved_.contains(name) && std::ranges::count(names, name) == 1,
                 "[export_onnx] expected names of {}s that differ from each other and from parameters' but "
                 "got '{}'; options have {}_names",
                 kind, name, kind);
  }
  return names;
}

OnnxValue OnnxGraph::described(const GraphValue& value, std::string name) const {
  OnnxValue result{std::move(name), value.spec.dtype, {}};
  const auto found = trace_.per_batch.find(&value);
  for (int axis = 0; axis < value.spec.shape.rank(); ++axis) {
    const int64_t times = found == trace_.per_batch.end() ? 0 : found->second[static_cast<size_t>(axis)];
    if (times == 0) {
      result.extents.emplace_back(value.spec.shape[axis]);
    } else {
      result.extents.emplace_back(times == 1 ? std::string("batch") : fmt::format("batch_times_{}", times));
    }
  }
  return result;
}

void OnnxGraph::add_inputs() {
  const std::vector<GraphValue*>& inputs = trace_.graph->inputs();
  const std::vector<std::string> names = names_for(options_.input_names, "input", inputs.size());
  const std::vector<std::string> output_names =
      names_for(options_.output_names, "output", trace_.graph->outputs().size());
  used_.insert(names.begin(), names.end());
  for (const std::string& name : output_names) {
    SINTER_CHECK(used_.insert(name).second,
                 "[export_onnx] expected inputs and outputs of different names but got '{}' twice", name);
  }
  if (trace_.batch_input >= 0) batch_input_ = names[static_cast<size_t>(trace_.batch_input)];
  for (size_t i = 0; i < inputs.size(); ++i) {
    names_[inputs[i]] = names[i];
    model_.inputs.push_back(described(*inputs[i], names[i]));
  }
  if (options_.preprocessing == OnnxPreprocessing::kNone) return;
  SINTER_CHECK(inputs.size() == 1 && inputs[0]->spec.shape.rank() == 4 && is_float(inputs[0]->spec.dtype),
               "[export_onnx] expected one input, of images, for preprocessing but got {} of {}",
               inputs.size(), inputs[0]->spec);
  add_preprocessing(*inputs[0], names[0]);
}

void OnnxGraph::add_preprocessing(const GraphValue& input, const std::string& name) {
  const auto channels = static_cast<size_t>(input.spec.shape[1]);
  SINTER_CHECK(
      options_.metadata && options_.metadata->mean.size() == channels &&
          options_.metadata->std.size() == channels,
      "[export_onnx] expected metadata with mean and std of {} channels for preprocessing but got {}",
      channels, options_.metadata ? "others" : "none");
  std::vector<float> scale, shift;
  for (size_t c = 0; c < channels; ++c) {
    const double mean = options_.metadata->mean[c], deviation = options_.metadata->std[c];
    SINTER_CHECK(deviation != 0, "[export_onnx] expected a std other than 0 for preprocessing");
    scale.push_back(static_cast<float>(1.0 / (255.0 * deviation)));
    shift.push_back(static_cast<float>(-mean / deviation));
  }
  const Shape shape{static_cast<int64_t>(channels), 1, 1};
  const std::string scope = "preprocessing";
  std::string x = name;
  if (options_.preprocessing == OnnxPreprocessing::kUInt8) {
    OnnxValue& pixels = model_.inputs[0];
    std::rotate(pixels.extents.begin() + 1, pixels.extents.begin() + 2, pixels.extents.end());
    pixels.dtype = DType::kUInt8;
    x = add_node(scope, "Transpose", {x}, 1, {{"perm", OnnxInts{0, 3, 1, 2}}}).front();
    x = add_node(scope, "Cast", {x}, 1, {{"to", onnx_type(DType::kFloat32)}}).front();
  }
  x = add_node(scope, "Mul", {x, add_initializer(Tensor::from_values(scale, shape), scope + "/scale")}, 1, {})
          .front();
  x = add_node(scope, "Add", {x, add_initializer(Tensor::from_values(shift, shape), scope + "/shift")}, 1, {})
          .front();
  names_[&input] = x;
}

void OnnxGraph::add_outputs() {
  const std::vector<GraphUse>& outputs = trace_.graph->outputs();
  const std::vector<std::string> names = names_for(options_.output_names, "output", outputs.size());
  std::map<std::string, std::string> renamed;  // results of nodes, to the output that they are
  std::vector<std::pair<std::string, std::string>> copies;
  std::set<std::string> results;
  for (const OnnxNode& node : model_.nodes) results.insert(node.outputs.begin(), node.outputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string value = name_of(*outputs[i].value, "output");
    model_.outputs.push_back(described(*outputs[i].value, names[i]));
    // A result that is an output already, an input or a constant is copied.
    if (!results.contains(value) || !renamed.emplace(value, names[i]).second)
      copies.emplace_back(value, names[i]);
  }
  for (const auto& [value, name] : copies) {
    add_node("output", "Identity", {value}, 1, {});
    model_.nodes.back().outputs = {name};
  }
  const auto rename = [&](std::vector<std::string>& values) {
    for (std::string& value : values) {
      if (const auto found = renamed.find(value); found != renamed.end()) value = found->second;
    }
  };
  for (OnnxNode& node : model_.nodes) {
    rename(node.inputs);
    rename(node.outputs);
  }
}

}  // namespace sinter::nn
