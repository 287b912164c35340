#include "pack.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <system_error>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/records/record_writer.h>
#include <sinter/nn/data/sample_random.h>
#include <sinter/nn/data/text/lines.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/stop.h"
#include "common/text.h"

namespace sinter_pack {
namespace {

namespace fs = std::filesystem;
namespace data = sinter::nn::data;
using sinter::IoError;
using sinter::examples::counted;
using sinter::examples::say;
using sinter::examples::stop_signal;

constexpr uint64_t kMostFileBytes = uint64_t{200} << 20;

/// An image as it will be packed.
struct Packed {
  std::vector<uint8_t> bytes;
  int64_t height = 0;
  int64_t width = 0;
};

void read_file(const fs::path& path, std::vector<uint8_t>& bytes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    throw IoError(fmt::format("{}: expected a regular file", path.string()));
  sinter::InputFile file(path);
  if (file.size() > kMostFileBytes) {
    throw IoError(fmt::format("{}: expected at most {} bytes but it has {}", path.string(), kMostFileBytes,
                              file.size()));
  }
  bytes.resize(file.size());
  file.read(0, std::as_writable_bytes(std::span(bytes)));
}

/// The largest box of the wanted shape in the middle of an image.
data::Box centre_box(const data::Image& image, const Options& options) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  const auto wanted_height = static_cast<double>(options.height),
             wanted_width = static_cast<double>(options.width);
  data::Box box{.top = 0, .left = 0, .height = height, .width = width};
  if (height * wanted_width > width * wanted_height) {
    box.height = std::min(height, width * wanted_height / wanted_width);
    box.top = (height - box.height) / 2;
  } else {
    box.width = std::min(width, height * wanted_width / wanted_height);
    box.left = (width - box.width) / 2;
  }
  return box;
}

/// Reads a file and encodes it anew if a size is asked for. Every image is decoded, if only at an eighth of
/// its size, so that no damaged one is packed.
void prepare(const fs::path& path, const Options& options, Packed& packed) {
  read_file(path, packed.bytes);
  data::Image image;
  const bool as_is = options.width == 0;
  bool asked = false;
  data::decode_image(
      packed.bytes, path.string(), {},
      [&](int64_t height, int64_t width) {
        asked = true;
        packed.height = height;
        packed.width = width;
        return as_is ? 8 : 1;
      },
      image);
  if (!asked) {  // a format that is not reduced
    packed.height = image.height;
    packed.width = image.width;
  }
  if (as_is) return;
  data::Image resized;
  data::resize(image, centre_box(image, options), options.height, options.width, resized);
  data::encode_jpeg(resized, options.quality, packed.bytes);
  packed.height = options.height;
  packed.width = options.width;
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::ifstream stream(path);
  if (!stream)
    throw IoError(
        fmt::format("{}: expected the classes of the training images; pack those first", path.string()));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return data::split_lines(text);
}

void check_output(const Options& options) {
  std::vector<std::string> names = {options.name + ".rec", options.name + ".idx"};
  if (options.name == "train") names.insert(names.end(), {"property", "classes.txt"});
  for (const std::string& name : names) {
    const fs::path path = fs::path(options.output) / name;
    if (!options.force && fs::exists(path))
      throw IoError(fmt::format("{} is there already; --force replaces it", path.string()));
  }
}

/// Makes a folder and those above it, and removes what it made and still is empty unless it is to stay.
class NewFolders {
 public:
  explicit NewFolders(fs::path folder) {
    for (; !folder.empty() && !fs::exists(folder); folder = folder.parent_path()) made_.push_back(folder);
    if (!made_.empty()) fs::create_directories(made_.front());
  }
  ~NewFolders() {
    std::error_code in_use;
    for (const fs::path& folder : made_) {
      if (!fs::remove(folder, in_use)) return;
    }
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<fs::path> made_;  // the innermost first
};

/// Throws IoError if other images are packed there whose labels count the classes that the new ones replace.
void check_others(const Options& options, const std::vector<std::string>& classes) {
  const fs::path names = fs::path(options.output) / "classes.txt";
  if (!fs::exists(names) || read_lines(names) == classes) return;
  for (const auto& entry : fs::directory_iterator(options.output)) {
    if (entry.path().extension() != ".rec" || entry.path().stem() == options.name) continue;
    throw IoError(
        fmt::format("{} has labels of other classes than those of {}; remove it, and pack it again "
                    "behind the training images",
                    entry.path().string(), options.images));
  }
}

std::vector<int64_t> order_of(const data::ImageFolderFiles& all, const Options& options) {
  const auto count = static_cast<int64_t>(all.files.size());
  if (options.shuffle) return data::shuffled_indices(count, *options.shuffle, 0);
  std::vector<int64_t> order(all.files.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

/// Packs all images into `writer`, in order. Gives their size, or zeros where they differ; nothing if a
/// signal stopped it.
std::optional<Packed> pack_images(const data::ImageFolderFiles& all, const Options& options,
                                  data::RecordWriter& writer) {
  const std::vector<int64_t> order = order_of(all, options);
  const auto count = static_cast<int64_t>(order.size());
  sinter::examples::ProgressBar bar("packing", count);
  std::vector<Packed> packed(static_cast<size_t>(32 * sinter::num_threads()));
  Packed common;
  for (int64_t begin = 0; begin < count; begin += static_cast<int64_t>(packed.size())) {
    if (stop_signal() != 0) return std::nullopt;
    const auto file_at = [&](int64_t i) -> const data::ImageFolderFiles::File& {
      return all.files[static_cast<size_t>(order[static_cast<size_t>(begin + i)])];
    };
    const int64_t now = std::min(static_cast<int64_t>(packed.size()), count - begin);
    sinter::parallel_for(now, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to && stop_signal() == 0; ++i)
        prepare(all.path(options.images, file_at(i)), options, packed[static_cast<size_t>(i)]);
    });
    if (stop_signal() != 0) return std::nullopt;
    for (int64_t i = 0; i < now; ++i) {
      const Packed& image = packed[static_cast<size_t>(i)];
      writer.add(static_cast<int64_t>(file_at(i).label), image.bytes);
      if (begin + i == 0) common = {.bytes = {}, .height = image.height, .width = image.width};
      if (image.height != common.height || image.width != common.width) common = {};
    }
    bar.update({.step = begin + now, .items = begin + now, .training = false});
  }
  return common;
}

}  // namespace

int pack(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const fs::path output = options.output;
  const bool training = options.name == "train";
  check_output(options);
  const data::ImageFolderFiles all = data::list_image_folder(
      options.images, training ? std::vector<std::string>{} : read_lines(output / "classes.txt"));
  if (training) {
    data::RecordWriter::check_names(all.class_names);
    check_others(options, all.class_names);
  }
  if (const std::string others = all.describe_left_out(); !others.empty()) say("{}\n", others);

  if (options.threads > 0) sinter::set_num_threads(options.threads);
  const NewFolders folders(output);  // none are left behind if nothing is packed
  data::RecordWriter writer(output, options.name);
  const std::optional<Packed> common = pack_images(all, options, writer);
  if (!common) {
    say("stopped; nothing was written\n");
    return 128 + stop_signal();
  }
  writer.commit(training ? all.class_names : std::vector<std::string>{}, common->height, common->width);
  const std::string size =
      common->width == 0 ? "sizes that differ" : fmt::format("{}x{}", common->width, common->height);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  say("{}: {} ({}) in {}, {:.1f} MB, packed in {:.1f} s\n", (output / (options.name + ".rec")).string(),
      counted(writer.size(), "image"), size, counted(all.class_names.size(), "class"),
      static_cast<double>(fs::file_size(output / (options.name + ".rec"))) / 1e6, seconds);
  return 0;
}

}  // namespace sinter_pack
