#include "op_profile.h"

#include <algorithm>
#include <map>
#include <vector>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/backend.h>

#include "gpu_bench.h"

namespace sinter::bench {
namespace {

constexpr size_t kSpinBytes = size_t{1} << 30;
constexpr int kSpins = 200;  // about 0.3 ms each

std::vector<OpProfile::Row> profiled(const std::function<void()>& work) {
  work();
  const Stream stream = current_stream(gpu());
  const Tensor spin = Tensor::empty({static_cast<int64_t>(kSpinBytes)}, DType::kUInt8, gpu());
  synchronize(gpu());
  for (int i = 0; i < kSpins; ++i) {
    SINTER_CUDA_CHECK(
        cudaMemsetAsync(spin.raw_data(), 1, kSpinBytes, static_cast<cudaStream_t>(stream.native)));
  }
  OpProfile profile(OpProfile::Options{.by_shape = true});
  work();
  profile.stop();
  return profile.rows();
}

/// Calls that are alike.
struct Total {
  uint64_t calls = 0;
  double us = 0, bytes = 0, copy_us = 0, flops = 0;
};

using Totals = std::vector<std::pair<std::string, Total>>;

/// By falling time.
Totals summed(const std::vector<OpProfile::Row>& rows, bool by_shape) {
  std::map<std::string, Total> totals;
  for (const OpProfile::Row& row : rows) {
    std::string name = row.kernel == "default" ? row.op : fmt::format("{} ({})", row.op, row.kernel);
    if (by_shape) name += fmt::format(": {:.150}", row.shapes);
    Total& total = totals[name];
    const auto calls = static_cast<double>(row.calls);
    total.calls += row.calls;
    total.us += row.device_us;
    total.bytes += row.bytes;
    total.flops += row.flops;
    total.copy_us += calls * copy_us(static_cast<size_t>(row.bytes / calls / 2));
  }
  Totals sorted(totals.begin(), totals.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  return sorted;
}

std::string table(const Totals& totals, double all_us, size_t most) {
  std::string text =
      fmt::format("{:>9} {:>6} {:>5} {:>9} {:>8} {:>9}\n", "us", "%", "calls", "GB", "of copy", "TFLOP/s");
  for (size_t i = 0; i < std::min(most, totals.size()); ++i) {
    const auto& [name, total] = totals[i];
    const std::string rate = total.flops > 0 ? fmt::format("{:.0f}", total.flops / total.us / 1e6) : "";
    text +=
        fmt::format("{:9.1f} {:6.1f} {:5} {:9.3f} {:7.0f}% {:>9}  {}\n", total.us, 100 * total.us / all_us,
                    total.calls, total.bytes / 1e9, 100 * total.copy_us / total.us, rate, name);
  }
  return text;
}

}  // namespace

std::string profile_ops(const std::function<void()>& work, size_t most) {
  const std::vector<OpProfile::Row> rows = profiled(work);
  const Totals by_op = summed(rows, false), by_shape = summed(rows, true);
  double all_us = 0;
  uint64_t calls = 0;
  for (const auto& [name, total] : by_op) {
    all_us += total.us;
    calls += total.calls;
  }
  return fmt::format("{} op calls, {:.0f} us\n{}\n{}", calls, all_us, table(by_op, all_us, by_op.size()),
                     table(by_shape, all_us, most));
}

}  // namespace sinter::bench
