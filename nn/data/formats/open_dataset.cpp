#include <algorithm>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/cifar.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/idx.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/formats/open_dataset.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/shards/shard_dataset.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}
bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The first of `stems` that is there, plain or with .gz.
std::optional<fs::path> find_idx(const fs::path& folder, std::initializer_list<const char*> stems) {
  for (const char* stem : stems) {
    for (const char* ending : {"", ".gz"}) {
      fs::path path = folder / (std::string(stem) + ending);
      if (is_file(path)) return path;
    }
  }
  return std::nullopt;
}

fs::path need_idx(const fs::path& folder, std::initializer_list<const char*> stems) {
  const std::optional<fs::path> path = find_idx(folder, stems);
  if (!path)
    throw_error<IoError>("[dataset] {}: expected a file {}[.gz] beside the others", folder.string(),
                         *stems.begin());
  return *path;
}

DatasetPair open_idx_pair(const fs::path& folder, uint64_t max_values) {
  const auto train = open_idx(need_idx(folder, {"train-images-idx3-ubyte"}),
                              need_idx(folder, {"train-labels-idx1-ubyte"}), 0, max_values);
  const auto test = open_idx(need_idx(folder, {"test-images-idx3-ubyte", "t10k-images-idx3-ubyte"}),
                             need_idx(folder, {"test-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"}),
                             train->num_classes(), max_values);
  return {train, test, "idx"};
}

// One name a line; empty if there is no such file, or if it does not name all classes.
std::vector<std::string> read_names(const fs::path& path, size_t count) {
  if (!is_file(path)) return {};
  const std::vector<uint8_t> text = read_file(path, 1 << 20);
  std::vector<std::string> names = split_lines({reinterpret_cast<const char*>(text.data()), text.size()});
  std::erase(names, "");
  if (names.size() != count) {
    throw_error<IoError>("[dataset] {}: expected {} class names but got {}", path.string(), count,
                         names.size());
  }
  return names;
}

DatasetPair open_cifar10_pair(const fs::path& folder) {
  const std::vector<std::string> names = read_names(folder / "batches.meta.txt", 10);
  std::vector<fs::path> train;
  for (int i = 1; i <= 5; ++i) train.push_back(folder / fmt::format("data_batch_{}.bin", i));
  return {open_cifar(train, CifarKind::kCifar10, names),
          open_cifar({folder / "test_batch.bin"}, CifarKind::kCifar10, names), "cifar10"};
}

DatasetPair open_cifar100_pair(const fs::path& folder) {
  const std::vector<std::string> names = read_names(folder / "fine_label_names.txt", 100);
  return {open_cifar({folder / "train.bin"}, CifarKind::kCifar100, names),
          open_cifar({folder / "test.bin"}, CifarKind::kCifar100, names), "cifar100"};
}

DatasetPair open_record_pair(const fs::path& folder, const DecodeOptions& decode) {
  RecordDatasetOptions options{.decode = decode, .class_names = {}};
  const auto train = open_records(folder / "train.rec", options);
  options.class_names = train->class_names();
  std::shared_ptr<const Dataset> test;
  if (is_file(folder / "val.rec") || is_file(folder / "val.idx"))
    test = open_records(folder / "val.rec", options);
  return {train, test, "records"};
}

DatasetPair open_folder_pair(const fs::path& folder, const DecodeOptions& decode) {
  ImageFolderOptions options;
  options.decode = decode;
  const auto train = open_image_folder(folder / "train", options);
  options.class_names = train->class_names();
  DatasetPair data{.train = train, .test = {}, .kind = "image folder"};
  if (is_folder(folder / "val")) data.validation = open_image_folder(folder / "val", options);
  data.test = is_folder(folder / "test") ? open_image_folder(folder / "test", options)
                                         : std::exchange(data.validation, nullptr);
  return data;
}

// The archives of a folder whose names begin so, sorted.
std::vector<fs::path> find_shards(const fs::path& folder, const char* start) {
  std::vector<fs::path> shards;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(start) && name.ends_with(".tar") && name.front() != '.' && is_file(entry->path()))
      shards.push_back(entry->path());
  }
  if (error) throw_error<IoError>("[dataset] {}: cannot list: {}", folder.string(), error.message());
  std::sort(shards.begin(), shards.end());
  return shards;
}

std::vector<fs::path> find_test_shards(const fs::path& folder) {
  std::vector<fs::path> shards = find_shards(folder, "test");
  return shards.empty() ? find_shards(folder, "val") : shards;
}

DatasetPair open_shard_pair(const fs::path& folder, const DecodeOptions& decode) {
  ShardDatasetOptions options;
  options.decode = decode;
  const auto train = open_shards(find_shards(folder, "train"), options);
  options.class_names = train->class_names();
  DatasetPair data{.train = train, .test = open_shards(find_test_shards(folder), options), .kind = "shards"};
  const std::vector<fs::path> validation = find_shards(folder, "val");
  if (!find_shards(folder, "test").empty() && !validation.empty())
    data.validation = open_shards(validation, options);
  return data;
}

// Data of which a share becomes the test set.
DatasetPair open_divided(const fs::path& folder, const DecodeOptions& decode, const HoldOut& share) {
  if (is_folder(folder / "test") || is_folder(folder / "val") || !find_test_shards(folder).empty()) {
    throw_error<IoError>("[dataset] {}: has images to test on; expected none beside a share of the others",
                         folder.string());
  }
  std::vector<fs::path> shards = find_shards(folder, "train");
  if (shards.empty()) shards = find_shards(folder, "");
  std::shared_ptr<const Dataset> all;
  if (shards.empty()) {
    ImageFolderOptions options;
    options.decode = decode;
    all = open_image_folder(is_folder(folder / "train") ? folder / "train" : folder, options);
  } else {
    ShardDatasetOptions options;
    options.decode = decode;
    all = open_shards(shards, options);
  }
  const auto [train, test] = stratified_split(all, share.fraction, share.seed);
  return {train, test, shards.empty() ? "image folder" : "shards"};
}

}  // namespace

DatasetPair open_dataset(const fs::path& folder, const OpenDatasetOptions& options) {
  const DecodeOptions& decode = options.decode;
  if (!is_folder(folder)) throw_error<IoError>("[dataset] {}: expected a folder", folder.string());
  if (options.hold_out.fraction > 0) return open_divided(folder, decode, options.hold_out);
  if (find_idx(folder, {"train-images-idx3-ubyte"})) return open_idx_pair(folder, options.max_idx_values);
  if (is_file(folder / "data_batch_1.bin")) return open_cifar10_pair(folder);
  if (is_file(folder / "train.bin")) return open_cifar100_pair(folder);
  if (is_file(folder / "train.rec")) return open_record_pair(folder, decode);
  if (is_folder(folder / "train") && (is_folder(folder / "test") || is_folder(folder / "val"))) {
    return open_folder_pair(folder, decode);
  }
  if (!find_shards(folder, "train").empty() && !find_test_shards(folder).empty())
    return open_shard_pair(folder, decode);
  throw_error<IoError>(
      "[dataset] {}: expected IDX files (train-images-idx3-ubyte[.gz], ...), CIFAR files (data_batch_1.bin, "
      "... or train.bin, test.bin), records (train.rec, train.idx, property), shards (train*.tar and "
      "test*.tar or val*.tar), or folders train/<class>/ and test/<class>/ or val/<class>/",
      folder.string());
}

}  // namespace sinter::nn::data
