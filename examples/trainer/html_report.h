// --report-html: the job of a run as an HTML file.
#pragma once

#include <string>

#include <sinter/nn/job/train_job.h>

#include "trainer/option_table.h"

namespace sinter::examples {

void add_html_report_row(OptionTable& table, std::string& path);
/// A mistake in how it goes with --eager; empty if there is none.
std::string check_html_report(const std::string& path, bool job);

/// Writes the job's report and says so; nothing if `path` is empty or there is no job yet. A file that cannot
/// be written is a warning.
void write_html_report(const std::string& path, const nn::TrainJob* job,
                       const nn::HtmlReportOptions& options);

}  // namespace sinter::examples
