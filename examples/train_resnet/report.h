// The report that --report writes at the end of a run, for scripts and for comparing runs.
#pragma once

#include <optional>
#include <string>

#include "options.h"

namespace train_resnet {

/// What a process trained, over all of its epochs.
struct TrainTotals {
  int64_t steps = 0;  // of the whole run, those before a resume included
  int64_t images = 0;
  double seconds = 0.0;       // of training, with waiting for data and without testing
  double wait_seconds = 0.0;  // of them, waiting for data
  size_t peak_bytes = 0;      // of device memory in use while training
  double last_loss = 0.0;     // mean of the last epoch
  int64_t skipped_steps = 0;  // because a gradient was not finite
};

/// Writes a JSON object: the options that matter, "steps", "train_seconds", "wait_seconds", "img_s",
/// "peak_gib", "loss" and "skipped_steps" of the training, and "accuracy" (a share), which is null if the run
/// was stopped. Throws IoError.
void write_report(const std::string& path, const Options& options, const std::string& device,
                  const TrainTotals& totals, std::optional<double> accuracy);

}  // namespace train_resnet
