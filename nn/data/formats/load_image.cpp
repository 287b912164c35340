#include <algorithm>
#include <system_error>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/load_image.h>
#include <sinter/nn/data/image/files/image_file.h>

namespace sinter::nn::data {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

/// A data set of one file.
class OneImage final : public Dataset {
 public:
  OneImage(std::filesystem::path path, const DecodeOptions& decode)
      : path_(std::move(path)), decode_(decode) {}

  int64_t size() const override { return 1; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    checked_index(index);
    decode_image(read_file(path_, kMaxFileBytes), path_.string(), decode_, reduction, sample.image);
    sample.label = 0;
  }
  const std::vector<std::string>& class_names() const override { return class_names_; }

 private:
  std::filesystem::path path_;
  DecodeOptions decode_;
  std::vector<std::string> class_names_{"picture"};
};

}  // namespace

Image read_image(const std::filesystem::path& path, const DecodeOptions& options,
                 const DecodeHintFunction& hint) {
  thread_local std::vector<uint8_t> bytes;  // of one file after the other
  read_file(path, kMaxFileBytes, bytes);
  Image image;
  decode_image(bytes, path.string(), options, hint, image);
  return image;
}

Image read_mask(const std::filesystem::path& path) {
  return read_image(path, {.channels = 1, .stored_values = true});
}

std::vector<std::string> list_files(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    std::error_code ignored;  // of a link that leads nowhere
    if (name.front() != '.' && entry->is_regular_file(ignored)) names.push_back(std::move(name));
  }
  if (error) throw_error<IoError>("[list_files] {}: cannot be read: {}", folder.string(), error.message());
  std::ranges::sort(names);
  return names;
}

Tensor load_image(const std::filesystem::path& path, const LoadImageOptions& options) {
  DataLoader loader(std::make_shared<OneImage>(path, options.decode), {.batch_size = 1,
                                                                       .device = options.device,
                                                                       .dtype = options.dtype,
                                                                       .layout = options.layout,
                                                                       .normalization = options.normalization,
                                                                       .transforms = options.transforms});
  return loader.next()->images;
}

}  // namespace sinter::nn::data
