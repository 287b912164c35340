// Inference beside its peers (peers/torch_infer.py): networks, batches and precisions of cases.json; images a
// second, and of small batches the latency from a tensor on the device, and from pictures (bytes) on the
// host, to the result there.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sinter/core/runtime/settings.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/ops.h>

#include "common/gpu_bench.h"
#include "common/networks.h"

using namespace sinter;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargestWithLatency = 8;
constexpr double kLatencySeconds = 0.5;  // of one series of calls
constexpr size_t kLeastCalls = 100;      // which a 99th percentile needs

/// Adds the 50th and 99th percentile of a call that waits for its result, in microseconds.
void add_latency(std::map<std::string, double>& figures, const std::string& what,
                 const std::function<void()>& call) {
  for (int i = 0; i < 20; ++i) call();
  std::vector<double> times;
  const auto begin = Clock::now();
  for (auto now = begin;
       times.size() < kLeastCalls || std::chrono::duration<double>(now - begin).count() < kLatencySeconds;) {
    call();
    const auto end = Clock::now();
    times.push_back(std::chrono::duration<double, std::micro>(end - now).count());
    now = end;
  }
  std::sort(times.begin(), times.end());
  figures[what + "p50_us"] = times[times.size() / 2];
  figures[what + "p99_us"] = times[times.size() * 99 / 100];
}

/// Bytes (N, H, W, 3) of pictures on the host.
Tensor make_pictures(const bench::NetworkCase& problem) {
  const Shape shape{problem.batch, problem.size, problem.size, 3};
  Generator generator(3);
  std::vector<uint8_t> bytes(static_cast<size_t>(shape.numel()));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator.below(256));
  return Tensor::from_values(bytes, shape);
}

void measure(bench::Report& report, const bench::NetworkCase& problem, const nn::AnyModule& model,
             const std::string& dtype) {
  settings::set_allow_tf32(dtype == "tf32");
  nn::InferJobOptions options;
  if (dtype == "mixed_f16") options.precision = DType::kFloat16;
  if (dtype == "mixed_bf16") options.precision = DType::kBFloat16;
  nn::InferJob job(model, options);
  const Tensor images = bench::normal_tensor({problem.batch, problem.size, problem.size, 3},
                                             options.precision.value_or(DType::kFloat32));
  const bool is_small = problem.batch <= kLargestWithLatency;
  const double us = bench::time_stream([&] { job(images); }, is_small ? 50 : 10);
  bench::Row row{.suite = "infer", .name = problem.name, .dtype = dtype, .layout = "NHWC"};
  row.img_s = static_cast<double>(problem.batch) / us * 1e6;
  if (is_small) {
    nn::InferJob of_pictures(
        model,
        [&model](const Tensor& bytes) {
          return model(ops::cast(bytes, DType::kFloat32) * (1 / 127.5) - 1.0);
        },
        options);
    const Tensor pictures = make_pictures(problem);
    add_latency(row.figures, "", [&] { job(images).to(Device::cpu()); });
    add_latency(row.figures, "host_", [&] { of_pictures(pictures.to(bench::gpu())).to(Device::cpu()); });
  }
  if (problem.batch == 256) row.target_speedup = {{"best", 1.15}};
  if (problem.batch == 1) row.target_latency = 0.8;
  report.add(row);
}

void run(bench::Report& report) {
  const bench::InferCases all = bench::infer_cases();
  std::map<std::string, nn::AnyModule> models;
  for (const std::string& dtype : all.dtypes) {
    for (const bench::NetworkCase& problem : all.cases) {
      if (report.quick() && (dtype != all.dtypes[0] || (problem.batch != 1 && problem.batch != 256)))
        continue;
      if (!report.wants("infer", problem.name, dtype, "NHWC")) continue;
      auto found = models.find(problem.network);
      if (found == models.end()) {
        const nn::AnyModule model = bench::make_network(problem);
        model.eval();
        model.to(Layout::kNHWC);
        model.to(bench::gpu());
        found = models.emplace(problem.network, model).first;
      }
      measure(report, problem, found->second, dtype);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
