// Where the time of steps goes: --profile and --trace.
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/console.h"
#include "common/text.h"
#include "trainer/html_report.h"
#include "trainer/trainer_base.h"

namespace sinter::examples {

namespace {

// Steps before those that are timed call by call: by then memory is there and plans are chosen.
constexpr int64_t kFirstProfiled = 10;
// The last of them are timed as a whole.
constexpr int64_t kTimedBefore = 5;

constexpr size_t kMostTraced = 1'000'000;  // calls, about 200 MB of JSON
constexpr size_t kLongestByScope = 10;

}  // namespace

void TrainerBase::profile_steps() {
  if (common_.profile == 0) return;
  if (total_.steps == kFirstProfiled - kTimedBefore) {
    take_compute_time();
    profile_.seconds_before = total_.compute_seconds;
  } else if (total_.steps == kFirstProfiled) {
    take_compute_time();
    profile_.step_us = 1e6 * (total_.compute_seconds - profile_.seconds_before) / kTimedBefore;
    profile_.calls = std::make_unique<OpProfile>(
        OpProfile::Options{.by_scope = true, .timeline = common_.trace.empty() ? 0 : kMostTraced});
  } else if (total_.steps == kFirstProfiled + common_.profile) {
    finish_profile();
  }
}

void TrainerBase::finish_profile() {
  if (profile_.calls == nullptr) return;
  const std::unique_ptr<OpProfile> calls = std::exchange(profile_.calls, nullptr);
  calls->stop();
  const int64_t steps = total_.steps - kFirstProfiled;
  double calls_us = 0;
  for (const OpProfile::Row& row : calls->rows({.by_scope = false})) calls_us += row.device_us;
  if (job_ != nullptr) say("{}", job_->report());
  say("{}, op by op\n{}", counted(steps, "step"), calls->table({.by_scope = false}));
  say("a step {}: {:.0f} us; its calls one by one: {:.0f} us\n\n",
      job_ != nullptr && job_->program().stats().launches > 0 ? "as one launch" : "as a whole",
      profile_.step_us, calls_us / static_cast<double>(steps));
  if (job_ != nullptr) {
    say("the {} longest by part of the model\n{}\n", kLongestByScope,
        calls->table({.max_rows = kLongestByScope}));
  }
  report_job({.profile = calls.get(), .profiled_steps = steps, .step_us = profile_.step_us});
  if (common_.trace.empty()) return;
  try {
    calls->write_trace(common_.trace);
    say("trace written to {}\n\n", common_.trace);
  } catch (const IoError& error) {
    complain("warning: --trace {}; training goes on", error.what());
  }
}

void TrainerBase::report_job(const nn::HtmlReportOptions& times) {
  nn::HtmlReportOptions options = times;
  options.title = plan_.title;
  write_html_report(common_.report_html, job_.get(), options);
  profile_.reported = true;
}

void TrainerBase::finish_reports() {
  if (!profile_.reported) report_job({});
  if (common_.profile == 0 || total_.steps > kFirstProfiled) return;
  complain(
      "warning: --profile begins at the eleventh step, which this run did not reach: nothing was timed{}",
      common_.trace.empty() ? "" : ", and --trace is not written");
}

}  // namespace sinter::examples
