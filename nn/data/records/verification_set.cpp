#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/records/mapped_file.h>
#include <sinter/nn/data/records/verification_parts.h>
#include <sinter/nn/data/records/verification_set.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

// Images of which two at a time are a pair.
class PairImages : public Dataset {
 public:
  PairImages(const DecodeOptions& decode, const std::vector<uint8_t>& same) : decode_(decode), same_(same) {
    SINTER_CHECK(decode_.channels == 1 || decode_.channels == 3,
                 "[verification] expected 1 or 3 channels but got {}", decode_.channels);
  }

  int64_t size() const override { return 2 * static_cast<int64_t>(same_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }

 protected:
  void decode(std::span<const uint8_t> bytes, const std::string& name, size_t index, Sample& sample,
              const DecodeHintFunction& reduction) const {
    sample.label = same_[index / 2];
    decode_image(bytes, name, decode_, reduction, sample.image);
  }

 private:
  DecodeOptions decode_;
  std::vector<uint8_t> same_;
  std::vector<std::string> class_names_{"different", "same"};
};

class PickledImages final : public PairImages {
 public:
  PickledImages(std::unique_ptr<MappedFile> file, VerificationBins bins, const DecodeOptions& decode)
      : PairImages(decode, bins.same), file_(std::move(file)), bins_(std::move(bins)) {}

  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    const size_t i = checked_index(index);
    file_->check_whole();
    decode(bins_.images[i], fmt::format("{}: image {}", file_->path().string(), i), i, sample, reduction);
  }

 private:
  std::unique_ptr<MappedFile> file_;
  VerificationBins bins_;
};

class ListedImages final : public PairImages {
 public:
  ListedImages(fs::path folder, VerificationList list, const DecodeOptions& decode)
      : PairImages(decode, list.same), folder_(std::move(folder)), list_(std::move(list)) {}

  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    const size_t i = checked_index(index);
    const MappedFile file(folder_ / list_.paths[i]);
    decode(file.bytes(), file.path().string(), i, sample, reduction);
  }

 private:
  fs::path folder_;
  VerificationList list_;
};

}  // namespace

VerificationSet open_verification_set(const fs::path& path, const DecodeOptions& decode) {
  constexpr uint8_t kPickleStart = 0x80;  // the opcode PROTO; no text starts with it
  std::error_code ignored;
  auto file = std::make_unique<MappedFile>(fs::is_directory(path, ignored) ? path / "pairs.txt" : path);
  const std::string name = file->path().string();
  VerificationSet set;
  if (!file->bytes().empty() && file->bytes().front() == kPickleStart) {
    VerificationBins bins = parse_verification_bins(file->bytes(), name);
    set.same = bins.same;
    set.images = std::make_shared<PickledImages>(std::move(file), std::move(bins), decode);
  } else {
    VerificationList list = parse_verification_list(file->bytes(), name);
    set.same = list.same;
    set.images = std::make_shared<ListedImages>(file->path().parent_path(), std::move(list), decode);
  }
  return set;
}

}  // namespace sinter::nn::data
