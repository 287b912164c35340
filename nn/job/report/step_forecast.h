// StepForecast: what a training step will take of its device's memory, told before it is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <sinter/core/base/device.h>

namespace sinter::nn {

struct ForecastOptions {
  /// Choose kernels and race rewrites as prepare() would, which on a GPU times what was never timed: all
  /// bytes are exact then. Without it nothing is timed, and what hangs on that is bounded.
  bool measure = true;
  /// Where the step will run, if not where the model is: a model on a CPU may be planned for a GPU, for which
  /// nothing is measured then.
  std::optional<DeviceType> device = {};
  /// In place of TrainJobOptions::memory_limit, if given.
  std::optional<size_t> memory_limit = {};
};

/// Bytes as PoolStats::live_bytes counts them, and whether they are exact; else no more is taken.
struct ForecastBytes {
  size_t bytes = 0;
  bool exact = true;
};

/// Where each number comes from stands beside it.
struct StepForecast {
  /// Parameters, their 16-bit copies and the model's buffers, and what tracing took for constants: the memory
  /// that the graph's leaves lie in, as far as it is none of the next two.
  ForecastBytes parameters;
  /// Sums of TrainJobOptions::accumulate and what lies in grad(). Else gradients are within the arena.
  ForecastBytes gradients;
  /// Optimizer::tensors(), those of the scaler and of the averages.
  ForecastBytes optimizer;
  /// ProgramStats::arena_bytes, of the two or three programs of TrainJobOptions::accumulate together.
  ForecastBytes arena;
  /// One batch, which the caller holds, and on a GPU the copy that each program reads.
  ForecastBytes inputs;
  /// The loss and outputs(), of two steps in turn where outputs() holds those of the last.
  ForecastBytes outputs;
  /// ProgramStats::workspace_bytes; without `measure` the most that the GPU's libraries are allowed.
  ForecastBytes workspaces;

  size_t calls = 0;             ///< kernels of a step; of a series with `accumulate`
  size_t recomputed_calls = 0;  ///< of them, those that compute again what a memory limit let go
  size_t moved_bytes = 0;       ///< ProgramStats::moved_bytes of these calls

  /// The parts with names for people, in order.
  std::array<std::pair<std::string_view, ForecastBytes>, 7> parts() const {
    return {{{"parameters", parameters},
             {"gradients", gradients},
             {"optimiser", optimizer},
             {"arena", arena},
             {"inputs", inputs},
             {"outputs", outputs},
             {"workspaces", workspaces}}};
  }
  /// All together, which is what lives during a step: PoolStats::peak_live_bytes, if the caller has nothing
  /// else on the device and keeps no results of former steps but outputs().
  ForecastBytes peak() const {
    ForecastBytes sum;
    for (const auto& [name, part] : parts()) {
      sum.bytes += part.bytes;
      sum.exact = sum.exact && part.exact;
    }
    return sum;
  }
};

}  // namespace sinter::nn
