// The ceiling that every other figure is compared with: copies of 1 MiB to 4 GiB within the device.
#include "common/gpu_bench.h"

using namespace sinter;

namespace {

void run(bench::Report& report) {
  for (size_t mib = 1; mib <= (report.quick() ? 256U : 4096U); mib *= 2) {
    const std::string name = fmt::format("copy {} MiB", mib);
    if (!report.wants("copy", name)) continue;
    const size_t bytes = mib << 20;
    const double us = bench::copy_us(bytes);
    bench::Row row{.suite = "copy", .name = name, .dtype = "bytes", .layout = "", .us = us};
    row.figures["gb_s"] = 2.0 * static_cast<double>(bytes) / us / 1e3;
    report.add(std::move(row));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
