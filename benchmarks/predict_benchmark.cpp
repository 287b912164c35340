// What a ResNet-50 predicts of a folder of photographs, in pictures a second beside what the loader alone
// gives of it, and in microseconds a picture. From memory: infer_benchmark.
//
// Photographs are read from the folder (one sub-folder of JPEGs per class) that the environment variable
// SINTER_BENCH_PHOTOS names; without it those rows are left out.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/nn.h>
#include <sinter/nn/predict/preprocessing.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

nn::ModelMetadata metadata() {
  const nn::data::Normalization imagenet = nn::data::imagenet_normalization();
  nn::ModelMetadata metadata;
  metadata.task = "image-classification";
  metadata.model = "resnet50";
  metadata.options = {{"classes", "1000"}, {"in_channels", "3"}};
  for (int i = 0; i < 1000; ++i) metadata.classes.push_back(std::to_string(i));
  metadata.height = metadata.width = 224;
  metadata.channels = 3;
  metadata.resize = "shorter_side";
  metadata.resize_size = 256;
  metadata.mean = imagenet.mean;
  metadata.std = imagenet.std;
  return metadata;
}

/// A file of fresh weights, removed at the end.
class WeightsFile {
 public:
  WeightsFile() : path_(fs::temp_directory_path() / fmt::format("sinter_bench_{}.safetensors", ::getpid())) {
    nn::write_safetensors(path_, nn::make_model(metadata()).state(), nn::to_safetensors_metadata(metadata()));
  }
  ~WeightsFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The share `share` of sorted times.
double percentile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

/// Median, 50th and 99th percentile of a call that waits for its result, in microseconds.
std::map<std::string, double> latency(const std::function<void()>& call, int calls) {
  for (int i = 0; i < 20; ++i) call();
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call();
    times.push_back(seconds_since(start) * 1e6);
  }
  std::sort(times.begin(), times.end());
  return {{"p50_us", percentile(times, 0.5)}, {"p99_us", percentile(times, 0.99)}};
}

std::vector<uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

nn::ClassifierOptions options_with(int workers, bool on_engines) {
  nn::ClassifierOptions options;
  options.device = bench::gpu();
  options.precision = DType::kFloat16;
  options.batch_size = 256;
  options.workers = workers;
  options.decode = on_engines ? nn::data::DecodeOn::kAuto : nn::data::DecodeOn::kCpu;
  return options;
}

void run_from_files(bench::Report& report, const fs::path& weights, const fs::path& photos) {
  const nn::data::ImageFolderFiles files = nn::data::list_image_folder(photos);
  std::vector<nn::Picture> pictures;
  const size_t wanted = report.quick() ? 2048 : 16384;
  for (size_t i = 0; i < wanted; ++i)
    pictures.emplace_back(files.path(photos, files.files[i % files.files.size()]));
  for (const bool on_engines : {true, false}) {
    const int workers = on_engines ? std::min(num_threads(), 8) : num_threads();
    const std::string name =
        fmt::format("photographs {}, {} workers", on_engines ? "on engines" : "on the CPU", workers);
    if (!report.wants("predict", name, "mixed_f16", "NHWC")) continue;
    const nn::ClassifierOptions options = options_with(workers, on_engines);
    const nn::Classifier classifier(weights, options);
    classifier(std::vector<nn::Picture>(pictures.begin(), pictures.begin() + 512));  // programs and caches
    const auto count = static_cast<double>(pictures.size());
    // In turns, as machines have other things to do; files come into the system's cache before.
    const auto decode = [&] {
      const auto start = Clock::now();
      nn::data::DataLoader loader(std::make_shared<nn::PictureSet>(pictures, metadata()),
                                  {.batch_size = options.batch_size,
                                   .workers = workers,
                                   .device = bench::gpu(),
                                   .dtype = DType::kFloat16,
                                   .layout = Layout::kNHWC,
                                   .normalization = nn::normalization_of(metadata()),
                                   .transforms = nn::test_transforms(metadata()),
                                   .decode = options.decode});
      while (loader.next()) {
      }
      synchronize(bench::gpu());
      return count / seconds_since(start);
    };
    decode();
    std::vector<double> alone, all;
    for (int turn = 0; turn < 3; ++turn) {
      alone.push_back(decode());
      const auto start = Clock::now();
      classifier.for_each(pictures, [](int64_t, const nn::Prediction&) { return true; });
      all.push_back(count / seconds_since(start));
    }
    std::sort(alone.begin(), alone.end());
    std::sort(all.begin(), all.end());
    const double decoded = alone[1], img_s = all[1];
    report.add({.suite = "predict",
                .name = name,
                .dtype = "mixed_f16",
                .layout = "NHWC",
                .img_s = img_s,
                .figures = {{"decoding_img_s", decoded}, {"share_of_decoding", img_s / decoded}}});
  }
  const std::string name = "one photograph from its bytes";
  if (!report.wants("predict", name, "mixed_f16", "NHWC")) return;
  const nn::Classifier classifier(weights, options_with(0, false));
  const std::vector<uint8_t> bytes = bytes_of(files.path(photos, files.files[0]));
  auto figures = latency([&] { classifier(nn::Picture(bytes)); }, report.quick() ? 100 : 1000);
  const double img_s = 1e6 / figures["p50_us"];
  report.add({.suite = "predict",
              .name = name,
              .dtype = "mixed_f16",
              .layout = "NHWC",
              .img_s = img_s,
              .figures = figures});
}

void run(bench::Report& report) {
  const char* const photos = std::getenv("SINTER_BENCH_PHOTOS");
  if (photos == nullptr) return;
  const WeightsFile weights;
  run_from_files(report, weights.path(), photos);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
