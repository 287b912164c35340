// What goes into a job's report as an HTML file, beside what the job knows itself: TrainJob::write_report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinter {
class OpProfile;
}

namespace sinter::nn {

/// A section of the report that somebody else fills in: a forecast, how a run went.
struct ReportTable {
  std::string title;
  std::string text = {};                            ///< a paragraph above the table
  std::vector<std::string> columns = {};            ///< none: there is no table
  std::vector<std::vector<std::string>> rows = {};  ///< as many cells each; numbers stand without units
};

struct HtmlReportOptions {
  /// Of the page: "resnet50 on ImageNet". Empty: "A training job", "An inference job".
  std::string title = {};
  /// Steps of the job that were timed call by call, best with Options::by_scope. Not owned; null: the report
  /// has no times. It waits for the device and may time copies (OpProfile::rows()).
  const OpProfile* profile = nullptr;
  int64_t profiled_steps = 1;
  /// What a step took that was not profiled, microseconds; 0: not known. The report compares it with the sum
  /// of the calls.
  double step_us = 0.0;
  std::vector<ReportTable> tables = {};
};

}  // namespace sinter::nn
