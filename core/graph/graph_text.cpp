// Graphs as text: for dumps, tests and reports.
#include <algorithm>

#include <sinter/core/graph/graph.h>

namespace sinter {
namespace {

const char* short_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "f32";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat64:
      return "f64";
    case DType::kInt64:
      return "i64";
    case DType::kInt32:
      return "i32";
    case DType::kUInt8:
      return "u8";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

std::string type_text(const TensorSpec& spec) {
  std::string text = short_name(spec.dtype);
  text += "(";
  for (int i = 0; i < spec.shape.rank(); ++i) text += (i > 0 ? "," : "") + std::to_string(spec.shape[i]);
  return text + ")";
}

/// Names of values: `%images`, `conv1.weight`, `%12`. Results are numbered in program order, so that equal
/// graphs give equal texts.
class Names {
 public:
  explicit Names(const Graph& graph) {
    for (const GraphValue* value : graph.inputs()) names_[value] = "%" + value->name;
    int unnamed = 0;
    for (const GraphValue* value : graph.memories()) {
      names_[value] = value->name.empty() ? fmt::format("tensor#{}", unnamed++) : value->name;
    }
    int results = 0;
    for (const GraphNode* node : graph.nodes()) {
      for (const GraphValue* value : node->outputs) names_[value] = fmt::format("%{}", results++);
    }
  }

  const std::string& operator[](const GraphValue* value) const { return names_.at(value); }
  std::string list(const std::vector<GraphUse>& uses) const {
    // Absent inputs at the end are left out.
    size_t count = uses.size();
    while (count > 0 && uses[count - 1].value == nullptr) --count;
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += i > 0 ? ", " : "";
      text += uses[i].value != nullptr ? names_.at(uses[i].value) : "none";
    }
    return text;
  }

 private:
  std::map<const GraphValue*, std::string> names_;
};

std::string attributes_text(const Attributes& attributes) {
  return to_string(attributes);
}

/// A string of Graphviz's language.
std::string quoted(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string(1, c);
  }
  return "\"" + escaped + "\"";
}

}  // namespace

std::string Graph::to_string() const {
  const Names names(*this);
  std::string text;
  for (const GraphValue* value : inputs_) {
    text += fmt::format("input {}: {}\n", names[value], type_text(value->spec));
  }
  for (const GraphValue* value : memories_) {
    if (!value->is_used()) continue;
    text += fmt::format("{} {}: {}\n", value->kind == GraphValue::Kind::kLeaf ? "leaf" : "constant",
                        names[value], type_text(value->spec));
  }
  for (const auto& node : nodes_) {
    for (size_t i = 0; i < node->outputs.size(); ++i) {
      text += fmt::format("{}{}: {}", i > 0 ? ", " : "", names[node->outputs[i]],
                          type_text(node->outputs[i]->spec));
    }
    text += fmt::format("{}{}({})", node->outputs.empty() ? "" : " = ", node->op->name(),
                        names.list(node->inputs));
    if (const std::string attributes = attributes_text(node->attributes); !attributes.empty()) {
      text += " {" + attributes + "}";
    }
    if (!node->scope.empty()) text += "  # " + node->scope;
    text += "\n";
  }
  return text + "return " + names.list(outputs_) + "\n";
}

std::string Graph::to_dot() const {
  const Names names(*this);
  std::string text = "digraph job {\n  node [shape=box, fontname=\"monospace\"];\n";
  const auto terminal = [&](const GraphValue& value, const char* colour) {
    text += fmt::format("  {} [label={}, style=filled, fillcolor={}];\n", quoted(names[&value]),
                        quoted(names[&value] + "\n" + type_text(value.spec)), colour);
  };
  for (const GraphValue* value : inputs_) terminal(*value, "lightblue");
  for (const GraphValue* value : memories_) {
    if (value->is_used())
      terminal(*value, value->kind == GraphValue::Kind::kLeaf ? "lightyellow" : "lightgrey");
  }
  std::map<const GraphNode*, std::string> boxes;
  for (const auto& node : nodes_) {
    const std::string box = fmt::format("\"node{}\"", boxes.size());
    boxes[node.get()] = box;
    text += fmt::format("  {} [label={}];\n", box,
                        quoted(node->op->name() + (node->scope.empty() ? "" : "\n" + node->scope)));
    for (const GraphUse& use : node->inputs) {
      if (use.value == nullptr) continue;
      const bool computed = use.value->kind == GraphValue::Kind::kResult;
      text += fmt::format("  {} -> {} [label={}];\n",
                          computed ? boxes.at(use.value->producer) : quoted(names[use.value]), box,
                          quoted(computed ? names[use.value] + " " + type_text(use.value->spec) : ""));
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const GraphValue& value = *outputs_[i].value;
    text += fmt::format(
        "  \"output{}\" [shape=ellipse];\n  {} -> \"output{}\";\n", i,
        value.kind == GraphValue::Kind::kResult ? boxes.at(value.producer) : quoted(names[&value]), i);
  }
  return text + "}\n";
}

}  // namespace sinter
