// The tables of a report: kernels, calls, and what is lost between them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/profile/profile.h>
#include <sinter/nn/job/html/html_report.h>

namespace sinter::nn::html {

struct TableStyle {
  std::string caption;
  std::set<size_t> numbers = {};  ///< columns of numbers, to the right
  bool sortable = false;
};

std::string table(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows,
                  const TableStyle& style);

/// A row for each call of the program: its kernel and what that was chosen over.
std::string kernels_section(const Program& program);
/// A row for each row of a profile, per step.
std::string calls_section(const std::vector<OpProfile::Row>& rows, int64_t steps);
/// Time between calls, and room in the arena that the peak does not use.
std::string gaps_section(const Program& program, const std::vector<OpProfile::Row>& rows,
                         const HtmlReportOptions& options);

}  // namespace sinter::nn::html
