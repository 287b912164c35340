#include "trainer/html_report.h"

#include <sinter/core/base/error.h>

#include "common/console.h"
#include "run/command_line.h"

namespace sinter::examples {

void add_html_report_row(OptionTable& table, std::string& path) {
  table
      .add("--report-html", path, file(),
           "Write what the job is to one HTML file: the graph before and after each pass, kernels, memory, "
           "and times of calls if steps are profiled")
      .writes();
}

std::string check_html_report(const std::string& path, bool job) {
  return path.empty() || job ? std::string() : "--report-html is of jobs: leave --eager out";
}

void write_html_report(const std::string& path, const nn::TrainJob* job,
                       const nn::HtmlReportOptions& options) {
  if (path.empty() || job == nullptr || job->compilations() == 0) return;
  try {
    job->write_report(path, options);
    say("the job's report written to {}\n", path);
  } catch (const Error& error) {
    complain("warning: --report-html {}", error.what());
  }
}

}  // namespace sinter::examples
