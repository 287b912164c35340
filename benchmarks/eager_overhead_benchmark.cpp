// Host time of eager calls on a GPU: microseconds that the calling thread needs to submit an op on tensors so
// small that nothing else counts. "no-op" is the call without a kernel. The peer is
// peers/torch_eager_overhead.py.
#include "common/eager_cases.h"
#include "common/gpu_bench.h"

using namespace sinter;

namespace {

constexpr int kRepeats = 51;

void run(bench::Report& report, const std::vector<bench::EagerCase>& cases) {
  for (const bench::EagerCase& timed : cases) {
    if (!report.wants("eager_overhead", timed.name, "float32")) continue;
    bench::Row row{.suite = "eager_overhead", .name = timed.name, .dtype = "float32"};
    row.host_us = bench::host_us_per_call(timed.call, timed.calls, kRepeats);
    if (!timed.name.starts_with("no-op")) row.target_speedup = {{"torch_eager", 2.0}};
    report.add(std::move(row));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, [](bench::Report& report) {
    run(report, bench::eager_op_cases(bench::gpu(), false));
    run(report, bench::eager_op_cases(bench::gpu(), true));
    run(report, bench::eager_training_cases(bench::gpu()));
  });
}
