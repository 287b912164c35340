// What the loader delivers, in images a second, on the CPU and on the GPU: small pictures from memory,
// shifted and mirrored, and photographs from files, decoded by the workers or by the GPU's engines, and
// resampled; and the ops under it beside a copy.
//
// Photographs are read from the folder (one sub-folder of JPEGs per class) that the environment variable
// SINTER_BENCH_PHOTOS names; without it those rows are left out.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/image/image_decoder.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/resize_images/resize_images.h>

#include "common/gpu_bench.h"

using namespace sinter;
using namespace sinter::nn::data;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Tensor random_bytes(int64_t count) {
  const Tensor bytes = Tensor::empty({count}, DType::kUInt8);
  for (int64_t i = 0; i < count; ++i) {
    bytes.data<uint8_t>()[i] = static_cast<uint8_t>(philox(3, static_cast<uint64_t>(i)).words[0]);
  }
  return bytes;
}

// ---- The loader

/// 50,000 pictures of the size of CIFAR-10's.
std::shared_ptr<const Dataset> small_pictures() {
  constexpr int64_t kCount = 50'000;
  const Tensor noise = random_bytes(1 << 20);
  MemoryDataset::Content content;
  content.height = content.width = 32;
  content.channels = 3;
  content.class_names = {"noise"};
  content.pixels.resize(size_t{kCount} * 32 * 32 * 3);
  for (size_t i = 0; i < content.pixels.size(); ++i) content.pixels[i] = noise.data<uint8_t>()[i % (1 << 20)];
  content.labels.resize(kCount);
  return std::make_shared<MemoryDataset>(std::move(content));
}

/// Images a second that come out when nothing else is done, and what a call of next() costs the host when its
/// batch is ready.
struct Delivery {
  double img_s = 0;
  double next_us = 0;
};

std::optional<Batch> next_of_any_epoch(DataLoader& loader) {
  std::optional<Batch> batch = loader.next();
  return batch ? std::move(batch) : loader.next();
}

Delivery measure(const std::shared_ptr<const Dataset>& dataset, const DataLoaderOptions& options,
                 double seconds) {
  DataLoader loader(dataset, options);
  for (int i = 0; i < 8; ++i) next_of_any_epoch(loader);  // buffers and caches
  synchronize(options.device);
  Delivery delivery;
  int64_t images = 0;
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) images += next_of_any_epoch(loader)->size();
  synchronize(options.device);
  delivery.img_s = static_cast<double>(images) / seconds_since(start);
  std::vector<double> calls;
  for (int i = 0; i < 15; ++i) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(2.0 * static_cast<double>(options.batch_size) / delivery.img_s));
    const auto call = Clock::now();
    next_of_any_epoch(loader);
    calls.push_back(seconds_since(call) * 1e6);
  }
  std::nth_element(calls.begin(), calls.begin() + 7, calls.end());
  delivery.next_us = calls[7];
  return delivery;
}

bool has_engines(Device device) {
  try {
    return hardware_image_decoder(device) != nullptr;
  } catch (const Unsupported&) {
    return false;
  }
}

void deliver(bench::Report& report, const std::string& name, const std::shared_ptr<const Dataset>& dataset,
             DataLoaderOptions options, const std::vector<int>& workers) {
  for (const Device device : {bench::gpu(), Device::cpu()}) {
    if (options.decode == DecodeOn::kGpu && !has_engines(device)) continue;
    for (const int count : workers) {
      const std::string row = fmt::format("{} to {}, {} workers", name, to_string(device.type), count);
      const std::string layout(to_string(options.layout)), dtype(to_string(options.dtype));
      if (!report.wants("loader", row, dtype, layout)) continue;
      options.device = device;
      options.workers = count;
      options.prefetch = std::max(3, count / 4);
      const Delivery delivery = measure(dataset, options, report.quick() ? 0.5 : 2.0);
      report.add({.suite = "loader",
                  .name = row,
                  .dtype = dtype,
                  .layout = layout,
                  .img_s = delivery.img_s,
                  .figures = {{"next_us", delivery.next_us}}});
    }
  }
}

void run_loader(bench::Report& report) {
  const int threads = num_threads();
  std::vector<int> few = {1, 2, 4}, many = {threads / 2, threads};
  many.erase(std::remove(many.begin(), many.end(), 0), many.end());
  const DataLoaderOptions small{
      .batch_size = 512,
      .shuffle = true,
      .drop_last = true,
      .dtype = DType::kFloat16,
      .layout = Layout::kNHWC,
      .normalization = cifar10_normalization(),
      .transforms = {random_crop(32, {.padding = 4, .mode = ops::PadMode::kReflect}),
                     random_horizontal_flip()}};
  deliver(report, "32x32 from memory, batch 512", small_pictures(), small, few);
  const char* photos = std::getenv("SINTER_BENCH_PHOTOS");
  if (photos == nullptr) return;
  const auto files = open_image_folder(photos);
  DataLoaderOptions large = small;
  large.batch_size = std::min<int64_t>(128, files->size());
  large.normalization = imagenet_normalization();
  large.transforms = {random_resized_crop(224), random_horizontal_flip()};
  deliver(report, "photographs from files to 224x224", files, large, many);
  DataLoaderOptions engines = large;
  engines.batch_size = std::min<int64_t>(256, files->size());
  engines.decode = DecodeOn::kGpu;
  deliver(report, "photographs from files on engines to 224x224", files, engines, {1, 2, 4, 8});
  deliver(report, "photographs from memory to 224x224", preload(*files), large, many);
}

// ---- The ops

void add_op(bench::Report& report, const std::string& name, const ops::ImageOutput& output, double bytes_read,
            const std::function<Tensor()>& call) {
  const std::string dtype(to_string(output.dtype)), layout(to_string(output.layout));
  if (!report.wants("image_ops", name, dtype, layout)) return;
  const Tensor result = call();
  report.add({.suite = "image_ops",
              .name = name,
              .dtype = dtype,
              .layout = layout,
              .us = bench::time_cold([&] { call(); }),
              .minimum_bytes = bytes_read + static_cast<double>(result.spec().bytes())});
}

std::vector<ops::ImageOutput> outputs(int64_t size) {
  std::vector<ops::ImageOutput> all;
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const Layout layout : {Layout::kNHWC, Layout::kNCHW}) {
      all.push_back({.height = size,
                     .width = size,
                     .dtype = dtype,
                     .layout = layout,
                     .mean = imagenet_normalization().mean,
                     .std = imagenet_normalization().std});
    }
  }
  return all;
}

void run_crop(bench::Report& report, int64_t batch, int64_t size) {
  const Tensor images = Tensor::over(random_bytes(batch * size * size * 3).storage(), 0,
                                     {{batch, size, size, 3}, DType::kUInt8, Device::cpu()})
                            .to(bench::gpu());
  Generator generator(1);
  std::vector<int32_t> values;
  for (int64_t n = 0; n < batch; ++n) {
    values.push_back(static_cast<int32_t>(generator.below(9)) - 4);
    values.push_back(static_cast<int32_t>(generator.below(9)) - 4);
    values.push_back(static_cast<int32_t>(generator.below(2)));
  }
  const Tensor windows = Tensor::from_values(values, {batch, 3}, bench::gpu());
  for (const ops::ImageOutput& output : outputs(size)) {
    add_op(report, fmt::format("crop ({},3,{},{})", batch, size, size), output,
           static_cast<double>(images.spec().bytes()),
           [&] { return ops::crop_images(images, windows, output, {.border = ops::PadMode::kReflect}); });
  }
}

/// Boxes of about half the area of images of about 400 x 500, as random_resized_crop draws them.
void run_resize(bench::Report& report, int64_t batch) {
  Generator generator(2);
  std::vector<int64_t> extents;
  std::vector<double> boxes;
  int64_t bytes = 0;
  double shown = 0;
  for (int64_t n = 0; n < batch; ++n) {
    const auto height = static_cast<int64_t>(350 + generator.below(100));
    const auto width = static_cast<int64_t>(450 + generator.below(100));
    extents.insert(extents.end(), {bytes, height, width});
    bytes += height * width * 3;
    const double h = static_cast<double>(height) * (0.3 + 0.7 * static_cast<double>(generator.uniform()));
    const double w = static_cast<double>(width) * (0.3 + 0.7 * static_cast<double>(generator.uniform()));
    boxes.insert(boxes.end(), {static_cast<double>(generator.uniform()) * (static_cast<double>(height) - h),
                               static_cast<double>(generator.uniform()) * (static_cast<double>(width) - w), h,
                               w, static_cast<double>(generator.below(2))});
    shown += h * w * 3;
  }
  const Tensor pixels = random_bytes(bytes).to(bench::gpu());
  const Tensor extents_there = Tensor::from_values(extents, {batch, 3}, bench::gpu());
  const Tensor boxes_there = Tensor::from_values(boxes, {batch, 5}, bench::gpu());
  for (const ops::ImageOutput& output : outputs(224)) {
    add_op(report, fmt::format("resize {} boxes to 224x224", batch), output, shown,
           [&] { return ops::resize_images(pixels, extents_there, boxes_there, output); });
  }
}

void run(bench::Report& report) {
  run_crop(report, 512, 32);
  run_crop(report, 256, 224);
  run_resize(report, 256);
  run_loader(report);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
