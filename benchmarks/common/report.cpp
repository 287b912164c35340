// Rows on the screen and in JSON, and the command line of the programs.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/runtime/backend.h>

#include "gpu_bench.h"

namespace sinter::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNoGpu = 77;  // what test drivers take as "skipped"

/// The row's own figure, its name in JSON, and whether less is better.
struct Figure {
  const char* key;
  double value;
  bool less_is_better;
};

Figure figure_of(const Row& row) {
  if (row.us > 0) return {"us", row.us, true};
  if (row.img_s > 0) return {"img_s", row.img_s, false};
  return {"host_us", row.host_us, true};
}

double share_of_copy(const Row& row) {
  return row.us > 0 && row.minimum_bytes > 0 ? copy_us(static_cast<size_t>(row.minimum_bytes / 2)) / row.us
                                             : 0.0;
}

/// How many times as fast as `peer` the row is.
double speedup(const Figure& figure, double peer) {
  return figure.less_is_better ? peer / figure.value : figure.value / peer;
}

/// Whether the targets are met as far as the row has what they need; none without a target. A target against
/// a peer that collect.py adds later is judged there.
std::optional<bool> met(const Row& row, double share) {
  std::optional<bool> result;
  if (row.target_share) result = share >= *row.target_share;
  for (const auto& [peer, least] : row.target_speedup) {
    const auto found = row.peers_us.find(peer);
    if (found == row.peers_us.end()) continue;
    result = result.value_or(true) && speedup(figure_of(row), found->second) >= least;
  }
  return result;
}

/// Four significant digits are more than a measurement holds.
double rounded(double value) {
  return std::stod(fmt::format("{:.5g}", value));
}

Json to_json(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = rounded(value);
  return json;
}

Json to_json(const Row& row) {
  const Figure figure = figure_of(row);
  Json json = {{"suite", row.suite}, {"case", row.name}, {"dtype", row.dtype}, {"layout", row.layout}};
  if (!row.mode.empty()) json["mode"] = row.mode;
  json[figure.key] = rounded(figure.value);
  const double share = share_of_copy(row);
  if (share > 0) {
    json["copy_us"] = rounded(share * row.us);
    json["share_of_copy"] = rounded(share);
  }
  if (!row.peers_us.empty()) json[fmt::format("peers_{}", figure.key)] = to_json(row.peers_us);
  for (const auto& [name, value] : row.figures) json[name] = rounded(value);
  Json target = Json::object();
  if (row.target_share) target["share_of_copy"] = *row.target_share;
  if (!row.target_speedup.empty()) target["speedup"] = row.target_speedup;
  if (row.target_latency) target["latency"] = *row.target_latency;
  if (!target.empty()) json["target"] = target;
  if (const auto result = met(row, share)) json["met"] = *result;
  return json;
}

/// The day at which the rows were measured, in UTC.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return text;
}

constexpr const char* kUsage =
    "Options:\n"
    "  --json FILE    write the rows to FILE\n"
    "  --filter TEXT  only rows whose \"suite case dtype layout mode\" contains TEXT; TEXT|TEXT: one of "
    "them\n"
    "  --quick        fewer cases\n"
    "  --seconds N    begin no case after so many\n";

std::optional<Options> read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if ((argument == "--json" || argument == "--filter") && i + 1 < argc) {
      (argument == "--json" ? options.json : options.filter) = argv[++i];
    } else if (argument == "--seconds" && i + 1 < argc && std::atof(argv[i + 1]) > 0) {
      options.seconds = std::atof(argv[++i]);
    } else {
      fmt::print(stderr, "unknown option or missing value: {}\n{}", argument, kUsage);
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace

std::string gpu_name() {
  cudaDeviceProp properties{};
  SINTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu().index));
  return properties.name;
}

std::map<std::string, std::string> library_versions() {
  int driver = 0, runtime = 0;
  SINTER_CUDA_CHECK(cudaDriverGetVersion(&driver));
  SINTER_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  const auto dotted = [](int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); };
  const size_t cudnn = cudnnGetVersion(), cublaslt = cublasLtGetVersion();
  return {{"driver_cuda", dotted(driver)},
          {"cuda", dotted(runtime)},
          {"cudnn", fmt::format("{}.{}.{}", cudnn / 10000, cudnn % 10000 / 100, cudnn % 100)},
          {"cublaslt", fmt::format("{}.{}.{}", cublaslt / 10000, cublaslt % 10000 / 100, cublaslt % 100)}};
}

Report::Report(Options options) : options_(std::move(options)) {}

Report::~Report() {
  if (left_out_ > 0) fmt::print("{} rows were not begun within {} s\n", left_out_, options_.seconds);
}

bool Report::wants(std::string_view suite, std::string_view name, std::string_view dtype,
                   std::string_view layout, std::string_view mode) {
  const std::string row = fmt::format("{} {} {} {} {}", suite, name, dtype, layout, mode);
  std::istringstream texts(options_.filter);
  bool is_named = options_.filter.empty();
  for (std::string text; std::getline(texts, text, '|');) is_named |= row.find(text) != std::string::npos;
  if (!is_named) return false;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  if (options_.seconds == 0 || since.count() < options_.seconds) return true;
  ++left_out_;
  return false;
}

void Report::add(Row row) {
  SINTER_CHECK((row.us > 0) + (row.img_s > 0) + (row.host_us > 0) == 1,
               "[bench] row '{} {}' has not exactly one of us, img_s and host_us", row.suite, row.name);
  const Figure figure = figure_of(row);
  std::string line =
      fmt::format("{:14} {:36} {:9} {:9} {:10.2f} {:7}", row.suite, row.name, row.dtype,
                  row.layout + (row.mode.empty() ? "" : " " + row.mode), figure.value, figure.key);
  const double share = share_of_copy(row);
  if (share > 0) line += fmt::format(" {:5.1f} % of copy", share * 100);
  for (const auto& [peer, value] : row.peers_us)
    line += fmt::format("  {} {:.2f} ({:.2f}x)", peer, value, speedup(figure, value));
  for (const auto& [name, value] : row.figures) line += fmt::format("  {} {:.4g}", name, value);
  if (const auto result = met(row, share)) line += *result ? "  met" : "  MISSED";
  fmt::print("{}\n", line);
  std::fflush(stdout);
  rows_.push_back(std::move(row));
  if (!options_.json.empty()) write_json(options_.json);
}

void Report::write_json(const std::string& path) const {
  Json rows = Json::array();
  for (const Row& row : rows_) rows.push_back(to_json(row));
  const Json json = {
      {"gpu", gpu_name()}, {"date", today()}, {"versions", library_versions()}, {"rows", rows}};
  std::ofstream file(path);
  file << json.dump(1) << '\n';
  file.close();
  if (!file) throw_error<IoError>("[bench] cannot write {}", path);
}

int run_program(int argc, char** argv, const std::function<void(Report&)>& body) {
  const std::optional<Options> options = read_options(argc, argv);
  if (!options) return 2;
  try {
    if (!is_available(gpu())) {
      fmt::print(stderr, "no usable GPU: nothing measured\n");
      return kNoGpu;
    }
    Report report(*options);
    body(report);
    if (!options->json.empty()) report.write_json(options->json);  // also if there are no rows
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace sinter::bench
