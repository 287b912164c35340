// Writes packed faces to train on: the images of train_insightface --synthetic as JPEGs of 112x112, in a
// train.rec as InsightFace's, with train.idx and property. On all cores.
//
// usage: make_faces FOLDER [IMAGES]      100000, ten of each person
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/records/record_writer.h>

#include "train_insightface/data.h"

using namespace sinter;

namespace {

constexpr int64_t kSize = 112, kEach = 10;  // images of each person
constexpr int kQuality = 95;
constexpr int64_t kBlock = 4096;  // of images that are encoded side by side

void run(const std::string& folder, int64_t images) {
  const auto faces = train_insightface::synthetic_faces((images + kEach - 1) / kEach, kSize);
  std::filesystem::create_directories(folder);
  nn::data::RecordWriter records(folder, "train");
  std::vector<std::vector<uint8_t>> files(kBlock);
  size_t bytes = 0;
  for (int64_t first = 0; first < images; first += kBlock) {
    const int64_t count = std::min(kBlock, images - first);
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        nn::data::Sample sample;
        faces->read(first + i, sample, {});
        nn::data::encode_jpeg(sample.image, kQuality, files[static_cast<size_t>(i)]);
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<uint8_t>& file = files[static_cast<size_t>(i)];
      records.add((first + i) / kEach, file);
      bytes += file.size();
    }
  }
  records.commit(faces->class_names(), kSize, kSize);
  fmt::print("{} faces of {} people, {} bytes each\n", images, faces->num_classes(),
             bytes / static_cast<size_t>(images));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t images = argc > 2 ? std::atoll(argv[2]) : 100'000;
  if (argc < 2 || argc > 3 || images < 1) {
    fmt::print(stderr, "usage: make_faces FOLDER [100000]\n");
    return 2;
  }
  try {
    run(argv[1], images);
  } catch (const std::exception& error) {
    fmt::print(stderr, "make_faces: {}\n", error.what());
    return 1;
  }
  return 0;
}
