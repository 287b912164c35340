// One graph of a TrainJob, ready to run, with all that it was made for. Of the job's own files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/job/report/graph_report.h>
#include <sinter/nn/job/settings_snapshot.h>
#include <sinter/nn/job/train_job.h>

namespace sinter::nn {

struct TrainJob::Compiled {
  Compiled(const ModuleBase& watched, const std::vector<Parameter>& parameters)
      : model(watched, parameters) {}

  ModuleSnapshot model;
  SettingsSnapshot settings;
  Part part;
  std::vector<bool> sums;       // which parameters have a sum of gradients behind it
  std::string sums_over_ranks;  // what a step sums: names, dtypes and shapes, in the order of the sums
  TracedConstants constants;
  LateReads late_reads;
  uint64_t optimizer_revision = 0, ema_revision = 0;
  std::vector<Tensor> scaler_tensors;
  GraphReport report;
  JobRandom random;
  std::vector<HostEffect> host_effects;
  std::unique_ptr<Program> program;
  bool wants_data = false;  // its passes are to be checked, which prepare() has no data for
};

}  // namespace sinter::nn
