#include <map>

#include <sinter/core/base/log.h>
#include <sinter/nn/job/report/graph_report.h>

namespace sinter::nn {
namespace {

/// "12.3 MB", "45.6 kB"
std::string size_text(size_t bytes) {
  const auto number = static_cast<double>(bytes);
  return number < 1e6 ? fmt::format("{:.1f} kB", number / 1e3) : fmt::format("{:.1f} MB", number / 1e6);
}

std::string list(const std::vector<std::string>& lines, const char* prefix) {
  std::string text;
  for (const std::string& line : lines) text += fmt::format("      {}{}\n", prefix, line);
  return text;
}

std::string checks_text(const std::vector<passes::CallCheck>& checks) {
  if (checks.empty()) return {};
  size_t unchecked = 0, wrong = 0;
  std::string lines;
  for (const passes::CallCheck& check : checks) {
    if (!check.why_not.empty()) ++unchecked;
    if (!check.is_wrong()) continue;
    ++wrong;
    lines += "    " + passes::to_string(check) + "\n";
  }
  return fmt::format("  calls in float64: {} wrong of {}, {} not checked\n{}", wrong, checks.size(),
                     unchecked, lines);
}

}  // namespace

std::vector<Tensor> run_program(Program& program, std::span<const Tensor> inputs, GraphReport& report) {
  if (!report.checks_calls) return program.run(inputs);
  passes::CallVerifier verifier(program.device());
  struct Watched {
    Program& program;
    ~Watched() { program.watch(nullptr); }
  } const watched{program};
  program.watch(&verifier);
  std::vector<Tensor> results = program.run(inputs);
  report.checks_calls = false;
  report.checks = verifier.checks();
  if (const passes::CallCheck* const wrong = verifier.first_wrong())
    log::warning("[verify] {}", passes::to_string(*wrong));
  return results;
}

std::string to_string(const GraphReport& report, const Program& program) {
  const ProgramStats& stats = program.stats();
  std::string inputs;
  for (const TensorSpec& spec : report.inputs) {
    inputs += fmt::format("{}{} {}", inputs.empty() ? "" : ", ", spec.dtype, spec.shape);
  }
  std::string text = fmt::format("graph for {}, made because of {}\n", inputs, report.reason);
  text += fmt::format(
      "  {} calls{}{}; {} for what lies between them, of which {} live at once; {} of scratch\n", stats.calls,
      stats.preparation_calls > 0
          ? fmt::format(" and {} more when variables have changed", stats.preparation_calls)
          : "",
      stats.launches == 0   ? ""
      : stats.launches == 1 ? ", one launch a step"
                            : fmt::format(", {} launches a step", stats.launches),
      size_text(stats.arena_bytes), size_text(stats.least_arena_bytes), size_text(stats.workspace_bytes));
  text += "  made in";
  for (const auto& [phase, milliseconds] : report.phases)
    text += fmt::format(" {} {:.1f} ms;", phase, milliseconds);
  text.back() = '\n';
  text += "  passes\n";
  for (const passes::PassReport& pass : report.passes) {
    text += fmt::format("    {:<28} {:7.2f} ms  {:5} -> {} calls{}\n", pass.name, pass.milliseconds,
                        pass.nodes_before, pass.nodes_after, pass.verified ? ", verified" : "");
    text += list(pass.done, "") + list(pass.missed, "not: ");
  }
  text += "  kernels\n";
  std::map<std::string, int> kernels;
  for (const ProgramCall& call : program.calls()) {
    ++kernels[fmt::format("{:<28} {} {}", call.node->op->name(), call.kernel, call.detail)];
  }
  for (const auto& [kernel, count] : kernels) text += fmt::format("    {:4} x {}\n", count, kernel);
  return text + checks_text(report.checks);
}

}  // namespace sinter::nn
