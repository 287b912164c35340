#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/job/html/graph_drawing.h>
#include <sinter/nn/job/html/html_page.h>
#include <sinter/nn/job/html/html_text.h>
#include <sinter/nn/job/html/memory_drawing.h>
#include <sinter/nn/job/html/page_style.h>
#include <sinter/nn/job/html/page_tables.h>
#include <sinter/passes/pipeline.h>
#include <sinter/version.h>

namespace sinter::nn::html {
namespace {

using passes::GraphStage;
using passes::PassReport;

std::string fact(std::string_view name, std::string_view value) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
}

std::string facts(const PageGraph& graph) {
  const ProgramStats& stats = graph.program->stats();
  std::string inputs;
  for (const TensorSpec& spec : graph.report->inputs)
    inputs += (inputs.empty() ? "" : ", ") + type_text(spec);
  std::string calls = fmt::format("{}", stats.calls);
  if (stats.launches > 0) calls += fmt::format(" in {}", counted(stats.launches, "launch").substr(0, 32));
  if (stats.launches > 1) calls += "es";
  std::string text = "<dl class=\"facts\">" + fact("inputs", inputs) + fact("calls of a step", calls);
  if (stats.preparation_calls > 0)
    text += fact("calls when variables have changed", std::to_string(stats.preparation_calls));
  return text + fact("between the calls", size_text(stats.arena_bytes)) +
         fact("of which live at once", size_text(stats.least_arena_bytes)) +
         fact("scratch", size_text(stats.workspace_bytes)) + "</dl>\n";
}

std::string list(const char* kind, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string text = fmt::format("<h3>{}</h3><ul class=\"{}\">", title, kind);
  for (const std::string& line : lines) text += "<li>" + escaped(line) + "</li>";
  return text + "</ul>\n";
}

const passes::Pass* pass_named(const std::string& name) {
  for (const auto all : {passes::forward_passes(), passes::step_passes()}) {
    for (const passes::Pass& pass : all) {
      if (pass.name == name) return &pass;
    }
  }
  return nullptr;
}

bool differs(const GraphStage& before, const GraphStage& after) {
  return before.nodes != after.nodes;
}

/// A stage and what led to it.
std::string stage_section(const GraphStage& before, const GraphStage& after, const PassReport* report) {
  const passes::Pass* const pass = pass_named(after.name);
  const bool changed = differs(before, after);
  std::string head =
      fmt::format("<b>{}</b>", escaped(report != nullptr ? after.name : "differentiation and update"));
  if (changed) {
    head += fmt::format(": {} → {} calls", before.nodes.size(), after.nodes.size());
  } else {
    head += ": the graph stayed as it was";
  }
  if (report != nullptr) {
    if (!report->done.empty()) head += fmt::format(", {} done", report->done.size());
    if (!report->missed.empty()) head += fmt::format(", {} missed", report->missed.size());
    head += fmt::format(", {:.1f} ms", report->milliseconds);
    if (report->verified) head += ", verified";
  }
  std::string text = fmt::format("<details class=\"pass\"><summary>{}</summary>\n", head);
  if (pass != nullptr) {
    std::string words = pass->summary;
    words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
    text += fmt::format("<p>{}{}.</p>\n", escaped(words), pass->keeps_bits ? "; all bits are kept" : "");
  } else {
    text +=
        "<p>The gradients of the loss, and the optimiser's update, are added behind the forward calls.</p>\n";
  }
  if (report != nullptr) {
    text += list("done", "Done", report->done) + list("missed", "Not done, and why", report->missed);
  }
  if (changed) text += draw_change(before, after, after.name);
  return text + "</details>\n";
}

std::string passes_section(const GraphReport& report) {
  const std::vector<GraphStage>& stages = report.history.stages();
  std::string text =
      "<section id=\"passes\"><h2>Passes</h2>\n<p>The graph before and after each pass, from top to bottom "
      "in the order "
      "in which calls run. #n is a call's number in that graph; “← #3” says that it reads what #3 gives. Of "
      "places that changed alike the first is drawn, the others are folded.</p>\n<p class=\"legend\">"
      "<span><i class=\"removed\"></i> − taken out</span><span><i class=\"added\"></i> + put in</span>"
      "<span><i class=\"changed\"></i> ~ changed</span><span><i class=\"moved\"></i> ↕ moved</span>"
      "<span><i></i> as it was</span></p>\n<div class=\"tools\"></div>\n";
  if (stages.empty()) return text + "<p>No graph was kept.</p></section>\n";
  text +=
      fmt::format("<p>Traced: {} of the model and the loss.</p>\n", counted(stages[0].nodes.size(), "call"));
  size_t next = 0;
  for (size_t i = 1; i < stages.size(); ++i) {
    const bool is_pass = next < report.passes.size() && report.passes[next].name == stages[i].name;
    text += stage_section(stages[i - 1], stages[i], is_pass ? &report.passes[next++] : nullptr);
  }
  return text + "</section>\n";
}

std::string settings_section(const PageGraph& graph, const Settings& settings) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : settings) rows.push_back({name, value});
  std::vector<std::vector<std::string>> phases;
  for (const auto& [phase, milliseconds] : graph.report->phases)
    phases.push_back({phase, fmt::format("{:.1f}", milliseconds)});
  return "<section id=\"settings\"><h2>Versions and settings</h2>\n" +
         table({"", ""}, rows, {.caption = "What the job was made with"}) +
         table({"phase", "ms"}, phases,
               {.caption = "Making the graph, because of " + graph.report->reason,
                .numbers = {1},
                .sortable = true}) +
         "</section>\n";
}

std::string other_graphs(std::span<const PageGraph> graphs) {
  if (graphs.size() < 2) return {};
  std::string text = "<section id=\"others\"><h2>Other graphs of the job</h2>\n";
  for (const PageGraph& graph : graphs.first(graphs.size() - 1)) {
    std::string inputs;
    for (const TensorSpec& spec : graph.report->inputs)
      inputs += (inputs.empty() ? "" : ", ") + type_text(spec);
    text += fmt::format("<details><summary>{}, made because of {}</summary><pre>{}</pre></details>\n",
                        escaped(inputs), escaped(graph.report->reason),
                        escaped(to_string(*graph.report, *graph.program)));
  }
  return text + "</section>\n";
}

/// "forecast" of "Forecast of the run"
std::string id_of(size_t i) {
  return fmt::format("table{}", i + 1);
}

std::string given_tables(const std::vector<ReportTable>& tables) {
  std::string text;
  for (size_t i = 0; i < tables.size(); ++i) {
    const ReportTable& given = tables[i];
    text += fmt::format("<section id=\"{}\"><h2>{}</h2>\n", id_of(i), escaped(given.title));
    if (!given.text.empty()) text += fmt::format("<p>{}</p>\n", escaped(given.text));
    if (!given.columns.empty())
      text += table(given.columns, given.rows, {.caption = given.title, .sortable = true});
    text += "</section>\n";
  }
  return text;
}

std::string navigation(const HtmlReportOptions& options, bool has_others, bool has_checks) {
  std::vector<std::pair<std::string, std::string>> links = {{"passes", "Passes"}, {"kernels", "Kernels"}};
  if (options.profile != nullptr) links.emplace_back("calls", "Calls");
  links.emplace_back("memory", "Memory");
  links.emplace_back("gaps", "Gaps");
  if (has_checks) links.emplace_back("checks", "Calls in float64");
  for (size_t i = 0; i < options.tables.size(); ++i) links.emplace_back(id_of(i), options.tables[i].title);
  if (has_others) links.emplace_back("others", "Other graphs");
  links.emplace_back("settings", "Versions and settings");
  std::string text = "<nav aria-label=\"sections\"><ul>";
  for (const auto& [id, title] : links)
    text += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, escaped(title));
  return text + "</ul></nav>\n";
}

}  // namespace

std::string page(const std::string& title, std::span<const PageGraph> graphs, const Settings& settings,
                 const HtmlReportOptions& options) {
  const PageGraph& graph = graphs.back();
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width, "
      "initial-scale=1\"/><title>{}</title><style>{}</style></head>\n<body>\n<header><h1>{}"
      "</h1>\n",
      escaped(title), kStyle, escaped(title));
  text += facts(graph) + navigation(options, graphs.size() > 1, !graph.report->checks.empty()) +
          "</header>\n<main>\n";
  text += passes_section(*graph.report) + kernels_section(*graph.program);
  const std::vector<OpProfile::Row> rows =
      options.profile != nullptr ? options.profile->rows() : std::vector<OpProfile::Row>();
  if (options.profile != nullptr) text += calls_section(rows, options.profiled_steps);
  text += "<section id=\"memory\"><h2>Memory between the calls</h2>\n" + draw_memory(*graph.program) +
          "</section>\n";
  text += gaps_section(*graph.program, rows, options) + checks_section(graph.report->checks) +
          given_tables(options.tables) + other_graphs(graphs) + settings_section(graph, settings);
  return text + fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", kScript);
}

Settings common_settings(Device device, std::optional<DType> precision, std::optional<Layout> layout) {
  const auto yes = [](bool value) { return value ? std::string("on") : std::string("off"); };
  Settings settings = {
      {"Sinter", SINTER_VERSION},
      {"device", backend_of(device).describe(device.index)},
      {"libraries", backend_of(device).signature(device.index)},
      {"precision", std::string(precision ? sinter::to_string(*precision) : "that of the model")},
      {"layout", std::string(layout ? sinter::to_string(*layout) : "that of the model")},
      {"TF32", yes(settings::allow_tf32())},
      {"deterministic", yes(settings::deterministic())},
      {"autotune", yes(settings::autotune())},
      {"threads", std::to_string(num_threads())}};
  for (const char* name : {"SINTER_PASSES", "SINTER_VERIFY"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) settings.emplace_back(name, value);
  }
  return settings;
}

void write_page(const std::filesystem::path& path, const std::string& text) {
  AtomicOutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace sinter::nn::html
