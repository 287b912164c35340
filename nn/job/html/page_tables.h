// The tables of a report: kernels, calls, and what is lost between them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/profile/profile.h>
#include <sinter/nn/job/html/html_report.h>
#include <sinter/passes/calls/call_verifier.h>

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

/// A row for each call that was compared with float64 (SINTER_VERIFY=deep); empty if none was.
std::string checks_section(const std::vector<passes::CallCheck>& checks);

}  // namespace sinter::nn::html
