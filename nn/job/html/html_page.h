// The HTML file that tells what a job is: its passes, kernels, calls and memory.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/nn/job/html/html_report.h>
#include <sinter/nn/job/report/graph_report.h>

namespace sinter::nn::html {

/// A graph of the job; the one used last is drawn, of others there is the text of to_string().
struct PageGraph {
  const GraphReport* report = nullptr;
  const Program* program = nullptr;
};

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Versions, the device, what the process is set to, and these options of a job.
Settings common_settings(Device device, std::optional<DType> precision, std::optional<Layout> layout);

/// One file that needs no other: well-formed as XML too, its few scripts only sort tables and unfold.
/// `graphs` is not empty, the one used last comes last. `settings` are those of the job, for people.
std::string page(const std::string& title, std::span<const PageGraph> graphs, const Settings& settings,
                 const HtmlReportOptions& options);

/// Puts it on the disk in one step. Throws IoError.
void write_page(const std::filesystem::path& path, const std::string& text);

}  // namespace sinter::nn::html
