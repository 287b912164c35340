// Time of a sample on the CPU, from photographs and from what masks add to them: classification and
// segmentation on the same pictures. A loader without workers, so that it is all of the work.
//
// `SINTER_BENCH_PHOTOS` names a folder of pictures, and `SINTER_BENCH_MASKS` one of PNG masks of the same
// names; without them both are drawn here.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/load_image.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/make_dataset.h>

using namespace sinter;
using namespace sinter::nn::data;
namespace fs = std::filesystem;

namespace {

void write_file(const fs::path& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// 48 pictures of 500 x 375 pixels with a dozen ellipses, whose classes the masks hold.
void draw(const fs::path& photos, const fs::path& masks) {
  std::mt19937 random(1);
  fs::create_directories(photos);
  fs::create_directories(masks);
  for (int i = 0; i < 48; ++i) {
    Image photo, mask;
    const auto draw_below = [&random](double bound) {
      return std::uniform_real_distribution(0.0, bound)(random);
    };
    photo.reshape(375, 500, 3);
    mask.reshape(375, 500, 1);
    for (int object = 1; object <= 12; ++object) {
      const double y = draw_below(375), x = draw_below(500), height = 20 + draw_below(90),
                   width = 20 + draw_below(90);
      const auto label = static_cast<uint8_t>(random() % 20 + 1);
      for (int64_t row = 0; row < 375; ++row) {
        for (int64_t column = 0; column < 500; ++column) {
          const double dy = (static_cast<double>(row) - y) / height,
                       dx = (static_cast<double>(column) - x) / width;
          if (dy * dy + dx * dx < 1) mask.row(row)[column] = label;
        }
      }
    }
    for (size_t p = 0; p < mask.pixels.size(); ++p) {
      for (size_t c = 0; c < 3; ++c)
        photo.pixels[3 * p + c] =
            static_cast<uint8_t>((mask.pixels[p] * (41 + 30 * c)) % 200 + random() % 50);
    }
    const std::string name = std::to_string(100 + i);
    std::vector<uint8_t> bytes;
    encode_jpeg(photo, 80, bytes);
    write_file(photos / (name + ".jpg"), bytes);
    encode_png(mask, bytes);
    write_file(masks / (name + ".png"), bytes);
  }
}

struct Files {
  Files() {
    const char *const photos_there = std::getenv("SINTER_BENCH_PHOTOS"), *const masks_there = std::getenv(
                                                                             "SINTER_BENCH_MASKS");
    const bool are_there = photos_there != nullptr && masks_there != nullptr;
    const fs::path folder = fs::temp_directory_path() / "sinter_loader_benchmark";
    photos = are_there ? fs::path(photos_there) : folder / "photos";
    masks = are_there ? fs::path(masks_there) : folder / "masks";
    if (!are_there) draw(photos, masks);
    names = list_files(photos);
  }
  Sample read(int64_t i, bool with_mask, const DecodeHintFunction& hint) const {
    const fs::path name = names[static_cast<size_t>(i)];
    Sample sample{.image = read_image(photos / name, {}, hint), .label = i};
    if (with_mask) sample.mask = read_mask(masks / fs::path(name).replace_extension(".png"));
    return sample;
  }
  fs::path photos, masks;
  std::vector<std::string> names;
};

void deliver(benchmark::State& state, const DatasetPtr& data) {
  const int64_t batch = std::min<int64_t>(32, data->size());
  DataLoader loader(data, {.batch_size = batch,
                           .shuffle = true,
                           .drop_last = true,
                           .seed = 1,
                           .normalization = imagenet_normalization(),
                           .transforms = {random_resized_crop(224), random_horizontal_flip()}});
  const auto next = [&loader] {
    std::optional<Batch> got = loader.next();
    return got ? std::move(got) : loader.next();
  };
  for (int i = 0; i < 4; ++i) next();
  for (auto _ : state) benchmark::DoNotOptimize(next());
  state.SetItemsProcessed(state.iterations() * batch);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  set_num_threads(1);
  const Files files;
  for (const bool in_memory : {false, true}) {
    for (const bool with_mask : {false, true}) {
      const DatasetPtr read = make_dataset(static_cast<int64_t>(files.names.size()),
                                           [&files, with_mask](int64_t i, const DecodeHintFunction& hint) {
                                             return files.read(i, with_mask, hint);
                                           });
      const DatasetPtr data = in_memory ? DatasetPtr(preload(*read)) : read;
      const std::string name = std::string(with_mask ? "segmentation" : "classification") +
                               (in_memory ? " from memory" : " from files");
      benchmark::RegisterBenchmark(name.c_str(), [data](benchmark::State& state) { deliver(state, data); });
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
