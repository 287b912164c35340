#include "passes/passes_test_support.h"

#include <regex>

namespace sinter::passes::testing {

std::unique_ptr<Graph> traced(const nn::ModuleBase& model, const nn::JobFunction& function,
                              const std::vector<Shape>& shapes, DType dtype) {
  auto graph = std::make_unique<Graph>();
  nn::declare_leaves(*graph, model);
  Tracer tracer(*graph);
  std::vector<TensorSpec> specs;
  std::vector<std::string> names;
  for (const Shape& shape : shapes) {
    specs.push_back({shape, dtype, Device::cpu()});
    names.push_back(std::string(1, static_cast<char>('x' + names.size())));
  }
  nn::ModuleSnapshot snapshot(model);
  nn::trace_function(tracer, model, function, specs, names, "", snapshot);
  return graph;
}

std::string outline(const Graph& graph, const std::vector<std::string>& kept) {
  const std::string text = graph.to_string();
  std::string lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    std::string line = text.substr(start, end - start);
    start = end + 1;
    if (line[0] != '%') continue;
    line = std::regex_replace(line, std::regex(": [a-z]+[0-9]*\\([0-9,]*\\)"), "");
    const size_t open = line.find(" {"), close = line.rfind('}');
    if (open != std::string::npos) {
      const std::string attributes = line.substr(open, close + 1 - open);
      std::string rest;
      for (const std::string& name : kept) {
        std::smatch found;
        if (std::regex_search(attributes, found, std::regex("[ {]" + name + "=([^,}]*)"))) {
          if (found[1] != "false" && found[1] != "none") rest += " " + name + "=" + found[1].str();
        }
      }
      line = line.substr(0, open) + rest + line.substr(close + 1);
    }
    lines += line + "\n";
  }
  return lines;
}

PassReport run(void (*pass)(Graph&, PassContext&), Graph& graph, bool training, bool differentiated) {
  PassContext context;
  context.training = training;
  context.differentiated = differentiated;
  pass(graph, context);
  graph.verify();
  return context.report;
}

}  // namespace sinter::passes::testing
