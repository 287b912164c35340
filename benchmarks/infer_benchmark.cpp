// Inference beside its peers (peers/torch_infer.py): networks, batches and precisions; pictures a second, and
// of small batches the latency from a tensor on the device, and from a picture on the host, to the result
// there.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sinter/core/runtime/settings.h>
#include <sinter/nn/nn.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

using Clock = std::chrono::steady_clock;

struct Network {
  const char* name;
  int64_t size;  // of its images
  nn::AnyModule (*make)();
};

const Network kNetworks[] = {
    {"resnet50", 224, [] { return nn::AnyModule(nn::resnet50()); }},
    {"resnet18", 224, [] { return nn::AnyModule(nn::resnet18()); }},
    {"iresnet50", 112, [] { return nn::AnyModule(nn::iresnet50()); }},
    {"resnext50", 224, [] { return nn::AnyModule(nn::resnet50({.groups = 32, .width_per_group = 4})); }},
};

/// Adds the 50th and 99th percentile of a call that waits for its result, in microseconds.
void add_latency(std::map<std::string, double>& figures, const std::string& what,
                 const std::function<void()>& call, int calls) {
  for (int i = 0; i < 20; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  figures[what + "p50_us"] = times[times.size() / 2];
  figures[what + "p99_us"] = times[times.size() * 99 / 100];
}

void measure(bench::Report& report, const Network& network, const nn::AnyModule& model, int64_t batch,
             const std::string& dtype) {
  const std::string name = fmt::format("{} batch {}", network.name, batch);
  if (!report.wants("infer", name, dtype, "NHWC")) return;
  settings::set_allow_tf32(dtype == "tf32");
  nn::InferJobOptions options;
  if (dtype == "mixed_f16") options.precision = DType::kFloat16;
  if (dtype == "mixed_bf16") options.precision = DType::kBFloat16;
  nn::InferJob job(model, options);
  const Tensor images = bench::normal_tensor({batch, network.size, network.size, 3},
                                             options.precision.value_or(DType::kFloat32));
  const double us = bench::time_stream([&] { job(images); }, batch <= 8 ? 50 : 10);
  bench::Row row{.suite = "infer", .name = name, .dtype = dtype, .layout = "NHWC"};
  row.img_s = static_cast<double>(batch) / us * 1e6;
  if (batch <= 8) {
    const int calls = report.quick() ? 200 : 1000;
    const Tensor host = images.to(Device::cpu());
    add_latency(
        row.figures, "", [&] { job(images).to(Device::cpu()); }, calls);
    add_latency(
        row.figures, "host_", [&] { job(host.to(bench::gpu())).to(Device::cpu()); }, calls);
  }
  if (batch == 256) row.target_speedup = {{"torch_compile", 1.15}};
  report.add(row);
}

void run(bench::Report& report) {
  const nn::DefaultLayout channels_last(Layout::kNHWC);
  const std::vector<int64_t> batches =
      report.quick() ? std::vector<int64_t>{1, 256} : std::vector<int64_t>{1, 8, 64, 256};
  const std::vector<std::string> dtypes =
      report.quick() ? std::vector<std::string>{"mixed_f16"}
                     : std::vector<std::string>{"mixed_f16", "mixed_bf16", "tf32", "float32"};
  for (const Network& network : kNetworks) {
    const nn::AnyModule model = network.make();
    model.eval();
    model.to(bench::gpu());
    for (const std::string& dtype : dtypes) {
      for (const int64_t batch : batches) measure(report, network, model, batch, dtype);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
