// Runs the cases of a sweep on Sinter, one at a time, as sweep.py asks for them on standard input. The first
// line of standard output is {"gpu", "versions", "cases": [...]}; the answer to each line "<index> <folder>"
// is one line {"us", "copy_us", "share_of_copy", "kernel", "plan", "outputs": [...]}, where the outputs lie
// in files in that folder, or {"error", "lost"}; if the device is lost the program ends.
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>

#include "common/gpu_bench.h"
#include "sweep_cases.h"

using namespace sinter;
using bench::Json;

namespace {

constexpr int kNoGpu = 77;
constexpr const char* kUsage =
    "Usage: sweep [options]; sweep.py runs it.\n"
    "  --seed N --cases N --families A,B,... --smallest-mib X --largest-mib X   what is drawn\n"
    "  --ops      every registered op at a large and an odd shape instead; on a CPU with --seed at random "
    "ones\n"
    "  --dtype D  of all of them\n"
    "  --list     print the cases and end\n"
    "  --cpu      on the CPU\n"
    "  --small    the ops at small shapes, to try the program: its times say nothing\n";

struct Options {
  bench::SweepDraw draw;
  bench::OpDraw op_draw;
  bool ops = false, list = false, cpu = false, small = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  options.draw.families.assign(std::begin(bench::kSweepFamilies), std::end(bench::kSweepFamilies));
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--ops") {
      options.ops = true;
    } else if (name == "--list") {
      options.list = true;
    } else if (name == "--cpu") {
      options.cpu = true;
    } else if (name == "--small") {
      options.small = true;
    } else if (i + 1 == argc) {
      return std::nullopt;
    } else if (name == "--seed") {
      options.draw.seed = std::stoull(argv[++i]);
      options.op_draw.seed = options.draw.seed;
    } else if (name == "--dtype") {
      options.op_draw.dtype = parse_dtype(argv[++i]);
    } else if (name == "--cases") {
      options.draw.cases = std::stoi(argv[++i]);
    } else if (name == "--families") {
      options.draw.families = split(argv[++i]);
    } else if (name == "--smallest-mib") {
      options.draw.smallest_bytes = std::stod(argv[++i]) * (1 << 20);
    } else if (name == "--largest-mib") {
      options.draw.largest_bytes = std::stod(argv[++i]) * (1 << 20);
    } else {
      return std::nullopt;
    }
  }
  return options;
}

/// Microseconds of a call on the CPU: the shortest of three, or of as many as fit into `seconds`.
double time_on_cpu(const std::function<void()>& call, double seconds) {
  double best = 0, total = 0;
  for (int i = 0; i < 3 || total < seconds * 1e6; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    best = i == 0 ? elapsed.count() : std::min(best, elapsed.count());
    total += elapsed.count();
  }
  return best;
}

/// Of a copy of `bytes`, between two of a row of sizes 9 % apart: each is measured once, so that a sweep does
/// not measure a copy for every case.
double copy_us_near(double bytes) {
  constexpr double kSteps = 8;  // from one power of two to the next
  const double step = std::floor(kSteps * std::log2(std::max(bytes, 512.0)));
  const auto size_at = [&](double at) { return std::exp2(at / kSteps); };
  const auto time_at = [&](double at) { return bench::copy_us(static_cast<size_t>(size_at(at))); };
  const double share = std::max(0.0, (bytes - size_at(step)) / (size_at(step + 1) - size_at(step)));
  return time_at(step) + share * (time_at(step + 1) - time_at(step));
}

Json written(const bench::NamedTensors& tensors, const std::string& folder) {
  Json outputs = Json::array();
  for (const auto& [name, tensor] : tensors) {
    const std::string path = fmt::format("{}/{}.bin", folder, name);
    const Tensor host = tensor.to(Device::cpu());
    std::ofstream file(path, std::ios::binary);
    file.write(static_cast<const char*>(host.raw_data()), static_cast<std::streamsize>(host.spec().bytes()));
    file.close();
    if (!file) throw_error<IoError>("[sweep] cannot write {}", path);
    const auto extents = host.shape().extents();
    outputs.push_back({{"name", name},
                       {"file", path},
                       {"dtype", std::string(to_string(host.dtype()))},
                       {"shape", std::vector<int64_t>(extents.begin(), extents.end())}});
  }
  return outputs;
}

/// The CPU's name, where the system tells it.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return "a CPU";
}

Json measured(const bench::Item& item, Device device, double cpu_seconds, const std::string& folder) {
  const bench::SweepCall call = item.make(device);
  const auto run = [&] { call.run(); };
  Json reply;
  reply["kernel"] = bench::kernels_of(run);
  const double us = device.is_cpu() ? time_on_cpu(run, cpu_seconds) : bench::time_cold(run);
  reply["us"] = us;
  reply["plan"] = device.is_cpu() ? "" : bench::captured_kernels(run);
  if (call.minimum_bytes > 0 && !device.is_cpu()) {
    const double copy = copy_us_near(call.minimum_bytes / 2);
    reply["copy_us"] = copy;
    reply["share_of_copy"] = copy / us;
  }
  reply["minimum_bytes"] = call.minimum_bytes;
  reply["flops"] = call.flops;
  if (folder != "-") reply["outputs"] = written(call.run(), folder);
  return reply;
}

void answer(const Json& reply) {
  std::cout << reply.dump() << std::endl;
}

/// Whether the device still works; after an illegal address, say, nothing does in this process.
bool is_usable(Device device) {
  try {
    synchronize(device);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Answers requests until there are no more, or the device is lost.
void serve(const std::vector<bench::Item>& items, Device device, double cpu_seconds) {
  const NoGrad no_grad;
  size_t index = 0;
  std::string folder;
  while (std::cin >> index >> folder) {
    try {
      answer(measured(items.at(index), device, cpu_seconds, folder));
    } catch (const std::exception& error) {
      const bool lost = !is_usable(device);
      answer({{"error", error.what()}, {"lost", lost}});
      if (lost) return;
    }
    // The next case has other sizes, and PyTorch wants memory too.
    if (!device.is_cpu()) backend_of(device).memory_pool(device.index).trim();
  }
}

int run(const Options& options) {
  bench::OpDraw op_draw = options.op_draw;
  if (options.cpu) op_draw.scale = bench::OpDraw::Scale::kCpu;
  if (options.small) op_draw.scale = bench::OpDraw::Scale::kSmall;
  const std::vector<bench::Item> items =
      options.ops ? bench::op_items(op_draw) : bench::sweep_items(options.draw);
  const Device device = options.cpu ? Device::cpu() : bench::gpu();
  if (!options.list && !is_available(device)) {
    fmt::print(stderr, "no usable GPU: nothing measured\n");
    return kNoGpu;
  }
  Json head = {{"gpu", "none"}, {"versions", Json::object()}, {"cases", Json::array()}};
  if (!options.list && !options.cpu) {
    head["gpu"] = bench::gpu_name();
    head["versions"] = bench::library_versions();
  }
  if (options.cpu && options.ops && !options.small) head["gpu"] = cpu_name();
  for (const bench::Item& item : items) head["cases"].push_back(item.description);
  answer(head);
  const bool is_measured = options.ops && !options.small;
  if (!options.list) serve(items, device, is_measured ? 0.05 : 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<Options> options = read_options(argc, argv);
    if (!options) {
      fmt::print(stderr, "{}", kUsage);
      return 2;
    }
    return run(*options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
