// Time of eager calls on the CPU, on tensors so small that the call is most of it.
#include <benchmark/benchmark.h>

#include "common/eager_cases.h"

int main(int argc, char** argv) {
  using namespace sinter;
  std::vector<bench::EagerCase> cases = bench::eager_op_cases(Device::cpu(), false);
  for (auto& more :
       {bench::eager_op_cases(Device::cpu(), true), bench::eager_training_cases(Device::cpu())}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const bench::EagerCase& timed : cases) {
    benchmark::RegisterBenchmark(timed.name.c_str(), [call = timed.call](benchmark::State& state) {
      for (auto _ : state) call();
    });
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
