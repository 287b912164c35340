// Measures GPU work the way every program here reports it: out of a cold L2 cache, beside the time of a plain
// copy of the same bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/tensor/tensor.h>

namespace sinter::bench {

/// The GPU that is measured.
inline Device gpu() {
  return Device::cuda(0);
}

// ---- measuring: everything runs on the calling thread's current stream of gpu()

/// Median microseconds of `call`, captured once as a CUDA graph and replayed `repeats` times, with 256 MB
/// written before each replay so that its inputs are out of L2. `call` runs three times before the capture:
/// then the pool holds its blocks, workspaces have their size and plans are chosen. It must queue the same
/// work every time and wait for nothing. Throws DeviceError if the call cannot be captured.
double time_cold(const std::function<void()>& call, int repeats = 30);

/// The CUDA kernels that `call` queues, as kernels_in() (graph_kernels.h) names them. `call` must be fit to
/// be captured, and have run before.
std::string captured_kernels(const std::function<void()>& call);

/// Microseconds of a cudaMemcpyAsync that reads `bytes` and writes as many on the device: the faster of a
/// captured one, measured like time_cold, and one on the stream. Each size is measured once; sizes are
/// rounded up to 512 bytes.
double copy_us(size_t bytes);

/// Microseconds from one call to the next on the stream, without a graph: gaps in which the GPU waits for the
/// host count. Median of `repeats` runs of `calls` calls, after one run that warms up.
double time_stream(const std::function<void()>& call, int calls = 10, int repeats = 5);

/// Microseconds that the host spends in one call, not counting the GPU's work: median of `repeats` runs of
/// `calls` calls with the stream empty at the start. Keep `calls` times the kernels of a call below about
/// 1000, the length of the driver's queue.
double host_us_per_call(const std::function<void()>& call, int calls = 200, int repeats = 15);

/// A tensor on gpu() with values of the standard normal distribution (a block of about a million, repeated).
Tensor normal_tensor(const Shape& shape, DType dtype = DType::kFloat32, uint64_t seed = 1);

// ---- reporting

/// "NVIDIA H200".
std::string gpu_name();
/// Of the driver and CUDA's libraries, as result files hold them.
std::map<std::string, std::string> library_versions();

/// One result. It has one of `us` (time on the GPU), `img_s` (throughput) and `host_us` (time on the host);
/// peers are in the same unit.
struct Row {
  std::string suite = {};   ///< "prelu"
  std::string name = {};    ///< "forward (96,64,112,112)"
  std::string dtype = {};   ///< "float32", "float16", "bfloat16", "tf32", "mixed_f16"
  std::string layout = {};  ///< "NCHW", "NHWC" or empty
  std::string mode = {};    ///< "eager", "job": ways to do the same, which have the same peers; or empty
  double us = 0;
  /// Read and written by the op at least, both together; 0 where a copy says nothing about the op.
  double minimum_bytes = 0;
  std::optional<double> target_share = {};      ///< of the copy's speed: copy_us(minimum_bytes / 2) / us
  std::map<std::string, double> peers_us = {};  ///< "cublas", "cudnn"; PyTorch's are joined by collect.py
  /// At least so many times as fast as the peer of that name, or as the "best" of all.
  std::map<std::string, double> target_speedup = {};
  /// Of the least `p50_us` of all peers, the share to stay below; collect.py judges it.
  std::optional<double> target_latency = {};
  double img_s = 0;
  double host_us = 0;
  std::map<std::string, double> figures = {};  ///< whatever else belongs to the row: "peak_gib", "accuracy"
};

/// What the command line of every program asks for.
struct Options {
  std::string json = {};    ///< --json FILE: where to write the rows
  std::string filter = {};  ///< --filter TEXT: only rows whose "suite name dtype layout mode" contains TEXT,
                            ///< or one of several with | between them
  bool quick = false;       ///< --quick: fewer cases, for a first look
  double seconds = 0;       ///< --seconds N: begin no case after so many, 0: no limit
};

/// Prints rows as they come and collects them.
class Report {
 public:
  explicit Report(Options options);
  /// Says how many rows --seconds has left out.
  ~Report();

  bool quick() const { return options_.quick; }
  /// False if --filter or --seconds leaves this row out: skip measuring it.
  bool wants(std::string_view suite, std::string_view name, std::string_view dtype = "",
             std::string_view layout = "", std::string_view mode = "");
  /// Keeps the row and prints a line: its figure, the share of copy, peers, whether the target is met. The
  /// JSON file, if one is asked for, is written anew, so that a program that is stopped leaves what it
  /// measured.
  void add(Row row);
  /// Writes {"gpu", "date", "versions", "rows": [...]}; see benchmarks/README.md. Throws IoError.
  void write_json(const std::string& path) const;

 private:
  friend int run_program(int, char**, const std::function<void(Report&)>&);

  Options options_;
  std::vector<Row> rows_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int left_out_ = 0;
};

/// The main function of a benchmark program: reads the options, runs `body`, writes the JSON file if one is
/// asked for. Returns the exit code: 0, 1 after an exception (printed), 2 for wrong options, 77 without a
/// usable GPU.
int run_program(int argc, char** argv, const std::function<void(Report&)>& body);

}  // namespace sinter::bench
