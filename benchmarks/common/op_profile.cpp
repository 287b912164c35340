#include "op_profile.h"

#include <algorithm>
#include <map>
#include <vector>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/runtime/backend.h>

#include "gpu_bench.h"

namespace sinter::bench {
namespace {

using Event = cuda::UniqueHandle<cudaEvent_t, cudaEventDestroy>;

constexpr size_t kSpinBytes = size_t{1} << 30;
constexpr int kSpins = 200;  // about 0.25 ms each

/// One kernel run.
struct Run {
  std::string op;           // with its kernel
  std::string shapes = {};  // of inputs and outputs
  double bytes = 0;         // of inputs and outputs
  Event start = {}, stop = {};
};

/// Runs that are alike.
struct Total {
  int64_t runs = 0;
  double us = 0, bytes = 0, copy_us = 0;
};

class Recorder final : public CallObserver {
 public:
  Recorder() : previous_(set_call_observer(this)) {}
  ~Recorder() override { set_call_observer(previous_); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream& stream) override {
    Run run{.op = kernel.name == "default" ? op.name() : fmt::format("{} ({})", op.name(), kernel.name)};
    for (size_t i = 0; i < query.input_count(); ++i) {
      if (query.has_input(i)) add(run, query.input(i), i == 0 ? "" : ", ");
    }
    for (size_t i = 0; i < query.output_count(); ++i) add(run, query.output(i), i == 0 ? " -> " : ", ");
    run.start = recorded(stream);
    runs_.push_back(std::move(run));
  }

  void after(const Stream& stream) override { runs_.back().stop = recorded(stream); }

  std::vector<Run>& runs() { return runs_; }

 private:
  static void add(Run& run, const TensorSpec& spec, const char* separator) {
    run.bytes += static_cast<double>(spec.bytes());
    if (run.shapes.size() < 110)
      run.shapes += fmt::format("{}{} {}", separator, to_string(spec.dtype), spec.shape);
  }

  static Event recorded(const Stream& stream) {
    cudaEvent_t event = nullptr;
    SINTER_CUDA_CHECK(cudaEventCreate(&event));
    Event owner(event);
    SINTER_CUDA_CHECK(cudaEventRecord(event, static_cast<cudaStream_t>(stream.native)));
    return owner;
  }

  CallObserver* previous_;
  std::vector<Run> runs_;
};

std::vector<Run> observe(const std::function<void()>& work) {
  const cuda::DeviceGuard guard(gpu().index);
  work();
  const Stream stream = current_stream(gpu());
  const Tensor spin = Tensor::empty({static_cast<int64_t>(kSpinBytes)}, DType::kUInt8, gpu());
  synchronize(gpu());
  for (int i = 0; i < kSpins; ++i) {
    SINTER_CUDA_CHECK(
        cudaMemsetAsync(spin.raw_data(), 1, kSpinBytes, static_cast<cudaStream_t>(stream.native)));
  }
  Recorder recorder;
  work();
  synchronize(gpu());
  return std::move(recorder.runs());
}

using Totals = std::vector<std::pair<std::string, Total>>;

/// By falling time.
Totals summed(const std::vector<Run>& runs, const std::function<std::string(const Run&)>& key) {
  std::map<std::string, Total> totals;
  for (const Run& run : runs) {
    float milliseconds = 0;
    SINTER_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, run.start.get(), run.stop.get()));
    Total& total = totals[key(run)];
    ++total.runs;
    total.us += double{milliseconds} * 1000.0;
    total.bytes += run.bytes;
    total.copy_us += copy_us(static_cast<size_t>(run.bytes / 2));
  }
  Totals sorted(totals.begin(), totals.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  return sorted;
}

std::string table(const Totals& totals, double all_us, size_t most) {
  std::string text =
      fmt::format("{:>9} {:>6} {:>5} {:>9} {:>8}  {}\n", "us", "%", "runs", "GB", "of copy", "");
  for (size_t i = 0; i < std::min(most, totals.size()); ++i) {
    const auto& [name, total] = totals[i];
    text += fmt::format("{:9.1f} {:6.1f} {:5} {:9.3f} {:7.0f}%  {}\n", total.us, 100 * total.us / all_us,
                        total.runs, total.bytes / 1e9, 100 * total.copy_us / total.us, name);
  }
  return text;
}

}  // namespace

std::string profile_ops(const std::function<void()>& work, size_t most) {
  const std::vector<Run> runs = observe(work);
  const Totals by_op = summed(runs, [](const Run& run) { return run.op; });
  const Totals by_shape = summed(runs, [](const Run& run) { return run.op + ": " + run.shapes; });
  double all_us = 0;
  for (const auto& [name, total] : by_op) all_us += total.us;
  return fmt::format("{} kernel runs of ops, {:.0f} us\n{}\n{}", runs.size(), all_us,
                     table(by_op, all_us, by_op.size()), table(by_shape, all_us, most));
}

}  // namespace sinter::bench
