#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <sinter/core/op/registry.h>
#include <sinter/nn/job/html/graph_diff.h>
#include <sinter/nn/job/html/html_text.h>
#include <sinter/nn/job/html/page_tables.h>

namespace sinter::nn::html {
namespace {

using Rows = std::vector<std::vector<std::string>>;

/// "a (12.3 µs), b (15 µs)"
std::string timed_text(const KernelRivals& rivals) {
  std::string text;
  for (const auto& [name, microseconds] : rivals.timed)
    text += fmt::format("{}{} ({} µs)", text.empty() ? "" : ", ", name, rounded(microseconds));
  return text;
}

std::string rivals_text(const KernelRivals& rivals, const std::string& kernel) {
  std::string text = timed_text(rivals);
  if (!rivals.measured.empty() && rivals.measured != kernel) {
    text = fmt::format("{} ({} µs) was measured fastest{}{}", rivals.measured, rounded(rivals.microseconds),
                       text.empty() ? "" : ", ", text);
  }
  if (!rivals.untimed.empty())
    text += fmt::format("{}not timed: {}", text.empty() ? "" : "; ", fmt::join(rivals.untimed, ", "));
  return text;
}

double sum_of(const std::vector<OpProfile::Row>& rows, double OpProfile::Row::*what) {
  double sum = 0;
  for (const OpProfile::Row& row : rows) sum += row.*what;
  return sum;
}

}  // namespace

std::string table(const std::vector<std::string>& columns, const Rows& rows, const TableStyle& style) {
  std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\"><table{1}><caption>{0}</caption>",
      escaped(style.caption), style.sortable ? " class=\"sortable\"" : "");
  const auto cells = [&](const std::vector<std::string>& row, const char* tag) {
    text += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, style.numbers.contains(i) ? " class=\"num\"" : "",
                          escaped(row[i]));
    }
    text += "</tr>\n";
  };
  const bool has_head =
      std::ranges::any_of(columns, [](const std::string& column) { return !column.empty(); });
  if (has_head) {
    text += "<thead>";
    cells(columns, "th");
    text += "</thead>";
  }
  text += "<tbody>\n";
  for (const auto& row : rows) cells(row, "td");
  return text + "</tbody></table></div>\n";
}

std::string kernels_section(const Program& program) {
  const std::vector<ProgramCall> calls = program.calls();
  const std::vector<KernelRivals> rivals = program.rivals();
  std::map<const GraphNode*, size_t> places;
  for (const GraphNode* node : program.graph().nodes()) places.emplace(node, places.size());
  Rows rows;
  size_t measured = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const ProgramCall& call = calls[i];
    const bool won = rivals[i].measured == call.kernel;
    if (!rivals[i].measured.empty()) ++measured;
    rows.push_back({std::to_string(places.at(call.node)), call.node->op->name(), call.node->scope,
                    call.node->outputs.empty() ? "" : type_text(call.node->outputs[0]->spec),
                    call.kernel + (call.detail.empty() ? "" : ": " + call.detail),
                    won ? rounded(rivals[i].microseconds) : "", rivals_text(rivals[i], call.kernel)});
  }
  return "<section id=\"kernels\"><h2>Kernels</h2>\n" +
         fmt::format(
             "<p>What runs each call, by its number in the last graph, and what could have. Of {}, {} got "
             "the kernel that was the fastest "
             "when all "
             "that promised something were timed; the time is what it took then, by itself. The others have "
             "but one "
             "kernel, or an estimate decided. How cuDNN's plans raced for a convolution is not in here: the "
             "plan's "
             "name stands behind the kernel.</p>\n",
             counted(calls.size(), "call"), measured) +
         table({"call", "op", "in", "gives", "kernel", "µs", "chosen over"}, rows,
               {.caption = "Kernels", .numbers = {0, 5}, .sortable = true}) +
         "</section>\n";
}

std::string calls_section(const std::vector<OpProfile::Row>& rows, int64_t steps) {
  const double count = static_cast<double>(std::max<int64_t>(steps, 1));
  const double total = sum_of(rows, &OpProfile::Row::device_us);
  const auto calls_of = [count](const OpProfile::Row& row) {
    return rounded(static_cast<double>(row.calls) / count);
  };
  Rows cells;
  for (const OpProfile::Row& row : rows) {
    cells.push_back({row.op + (row.shapes.empty() ? "" : " " + row.shapes), row.scope, row.kernel,
                     calls_of(row), fmt::format("{:.2f}", row.device_us / count),
                     total > 0 ? fmt::format("{:.1f}", 100 * row.device_us / total) : "",
                     fmt::format("{:.3f}", row.bytes / count / 1e6),
                     row.copy_us > 0 ? fmt::format("{:.0f}", 100 * row.copy_share()) : "",
                     row.flops > 0 ? rounded(row.teraflops()) : ""});
  }
  return "<section id=\"calls\"><h2>Calls</h2>\n" +
         fmt::format(
             "<p>Times of {}, of one step: {} µs for all calls, {} MB read and written. “% of a copy” is how "
             "near "
             "a call comes to a copy of as many bytes.</p>\n",
             counted(static_cast<size_t>(steps), "profiled step"), rounded(total / count),
             rounded(sum_of(rows, &OpProfile::Row::bytes) / count / 1e6)) +
         table({"op", "in", "kernel", "calls", "µs", "% of the step", "MB", "% of a copy", "TFLOP/s"}, cells,
               {.caption = "Calls of a step, the longest first",
                .numbers = {3, 4, 5, 6, 7, 8},
                .sortable = true}) +
         "</section>\n";
}

std::string gaps_section(const Program& program, const std::vector<OpProfile::Row>& rows,
                         const HtmlReportOptions& options) {
  const ProgramStats& stats = program.stats();
  std::string text = "<section id=\"gaps\"><h2>Gaps</h2>\n";
  if (!rows.empty()) {
    const double calls = sum_of(rows, &OpProfile::Row::device_us) /
                         static_cast<double>(std::max<int64_t>(options.profiled_steps, 1));
    text += fmt::format("<p>Time: the calls of a step take {} µs one by one", rounded(calls));
    if (options.step_us > 0) {
      text += fmt::format(", and a step {} µs as a whole: {} µs {}", rounded(options.step_us),
                          rounded(std::abs(options.step_us - calls)),
                          options.step_us > calls
                              ? "pass between the calls"
                              : "less, since calls that are launched together do not wait for each other");
    }
    text += ".</p>\n";
  } else {
    text += "<p>Time: no step was profiled.</p>\n";
  }
  const size_t lost = stats.arena_bytes - std::min(stats.arena_bytes, stats.least_arena_bytes);
  text += fmt::format(
      "<p>Room: the arena has {}, of which {} are in use at the peak; {} ({:.2f} %) lie between "
      "buffers.</p>\n",
      size_text(stats.arena_bytes), size_text(stats.least_arena_bytes), size_text(lost),
      stats.arena_bytes > 0 ? 100.0 * static_cast<double>(lost) / static_cast<double>(stats.arena_bytes)
                            : 0.0);
  return text + "</section>\n";
}

std::string checks_section(const std::vector<passes::CallCheck>& checks) {
  if (checks.empty()) return {};
  Rows rows;
  const passes::CallCheck* first = nullptr;
  for (const passes::CallCheck& check : checks) {
    if (first == nullptr && check.is_wrong()) first = &check;
    rows.push_back({std::to_string(check.call), check.op, check.scope, check.kernel,
                    check.why_not.empty() ? rounded(check.roundings) : "",
                    check.why_not.empty() ? fmt::format("{:.4f}", check.share) : "",
                    !check.why_not.empty() ? "not checked: " + check.why_not
                    : check.is_wrong()     ? fmt::format("wrong: {:.9g} at {}, expected {:.9g}", check.got,
                                                         check.place, check.expected)
                                           : ""});
  }
  const std::string verdict = first == nullptr
                                  ? "No call is beyond what rounding allows."
                                  : "The first that is wrong: " + passes::to_string(*first) + ".";
  return "<section id=\"checks\"><h2>Calls in float64</h2>\n" +
         fmt::format(
             "<p>Each call of the first step, made again in float64 on the values that it had. {}</p>\n",
             escaped(verdict)) +
         table({"call of the run", "op", "in", "kernel", "roundings", "share of what is allowed", ""}, rows,
               {.caption = "The largest error of each call, in roundings of its dtype",
                .numbers = {0, 4, 5},
                .sortable = true}) +
         "</section>\n";
}

}  // namespace sinter::nn::html
