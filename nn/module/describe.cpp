// Modules in words.
#include <cstdlib>
#include <ostream>

#include <cxxabi.h>

#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {
namespace {

/// The shapes of what a module owns: "scale (1,), offset (1,)".
std::string shapes_of(const ModuleInfo& info) {
  std::string text;
  for (const auto* variables : {&info.parameters, &info.buffers}) {
    for (const Variable& variable : *variables) {
      text += (text.empty() ? "" : ", ") + fmt::format("{} {}", variable.name(), variable.canonical_shape());
    }
  }
  return text;
}

}  // namespace

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : type.name();
  // The last "::" outside of template arguments and parentheses.
  int depth = 0;
  for (size_t i = name.size(); i-- > 1;) {
    if (name[i] == '>' || name[i] == ')') ++depth;
    if (name[i] == '<' || name[i] == '(') --depth;
    if (depth == 0 && name[i] == ':' && name[i - 1] == ':') return name.substr(i + 1);
  }
  return name;
}

std::vector<ModuleInfo> ModuleBase::modules() const {
  std::vector<ModuleInfo> found;
  const std::function<void(const Node&, const std::string&, int)> add =
      [&](const Node& node, const std::string& path, int depth) {
        ModuleInfo info;
        info.path = path;
        info.type = node.type;
        info.options = node.options;
        info.depth = depth;
        info.id = &node;
        if (depth == 0 && info.type.empty()) info.type = type_name(typeid(*this));
        for (const Node::Entry& entry : node.entries) {
          (entry.is_parameter ? info.parameters : info.buffers).push_back(entry.variable);
        }
        found.push_back(std::move(info));
        for (const auto& [name, child] : node.children) {
          add(*child, path.empty() ? name : path + "." + name, depth + 1);
        }
      };
  add(*node_, "", 0);
  return found;
}

std::string to_string(const ModuleBase& module) {
  const std::vector<ModuleInfo> modules = module.modules();
  std::string text;
  for (size_t i = 0; i < modules.size(); ++i) {
    const ModuleInfo& info = modules[i];
    const std::string indent(2 * static_cast<size_t>(info.depth), ' ');
    const std::string name = info.path.substr(info.path.rfind('.') + 1);
    text += indent + (info.depth > 0 ? "(" + name + "): " : "") + info.type + "(";
    text += info.options.empty() ? shapes_of(info) : info.options;
    const int next_depth = i + 1 < modules.size() ? modules[i + 1].depth : 0;
    if (next_depth > info.depth) {
      text += "\n";
      continue;
    }
    text += ")";
    for (int depth = info.depth; depth > next_depth; --depth) {
      text += "\n" + std::string(2 * static_cast<size_t>(depth - 1), ' ') + ")";
    }
    if (i + 1 < modules.size()) text += "\n";
  }
  return text;
}

std::ostream& operator<<(std::ostream& stream, const ModuleBase& module) {
  return stream << to_string(module);
}

}  // namespace sinter::nn
