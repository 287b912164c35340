#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/shards/shard_dataset.h>
#include <sinter/nn/data/shards/shard_index.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

struct Shard {
  fs::path path;
  uint64_t size = 0;
};

class ShardDataset final : public Dataset {
 public:
  ShardDataset(const std::vector<fs::path>& paths, const ShardDatasetOptions& options)
      : decode_(options.decode), class_names_(options.class_names) {
    SINTER_CHECK(decode_.channels == 1 || decode_.channels == 3,
                 "[shards] expected 1 or 3 channels but got {}", decode_.channels);
    SINTER_CHECK(!paths.empty(), "[shards] expected shards but got none");
    for (const fs::path& path : paths) shards_.push_back({path, 0});
    read_indices();
    if (samples_.empty())
      throw_error<IoError>("[shards] {}: expected samples but there are none", paths.front().string());
    if (class_names_.empty()) class_names_ = find_class_names(paths.front().parent_path() / "classes.txt");
    check_labels();
  }

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::vector<int64_t> labels() const override {
    std::vector<int64_t> labels;
    labels.reserve(samples_.size());
    for (const Entry& entry : samples_) labels.push_back(entry.sample.label);
    return labels;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    for (const std::string& name : class_names_) print.add(name);
    for (const Shard& shard : shards_) {
      print.add(shard.path.filename().string());
      print.add(shard.size);
    }
    for (const auto& [sample, shard] : samples_) {
      for (const uint64_t number :
           {uint64_t{shard}, sample.header, uint64_t{sample.size}, uint64_t{sample.label}})
        print.add(number);
    }
    return print.value();
  }

  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    const auto& [stored, shard] = samples_[checked_index(index)];
    thread_local std::vector<uint8_t> bytes;  // one buffer a reader
    const std::string name = read_member(stored, shards_[shard], bytes);
    decode_image(std::span(bytes).subspan(kTarBlock), name, decode_, reduction, sample.image);
    sample.label = stored.label;
  }

  bool read_encoded(int64_t index, EncodedSample& sample) const override {
    const auto& [stored, shard] = samples_[checked_index(index)];
    read_member(stored, shards_[shard], sample.bytes);
    sample.bytes.erase(sample.bytes.begin(), sample.bytes.begin() + kTarBlock);
    sample.decode = decode_;
    sample.label = stored.label;
    return true;
  }

 private:
  struct Entry {
    ShardSample sample;
    uint32_t shard = 0;
  };

  // The header and the contents of a member; returns its name, for messages.
  static std::string read_member(const ShardSample& stored, const Shard& shard, std::vector<uint8_t>& bytes) {
    bytes.resize(kTarBlock + stored.size);
    InputFile file(shard.path);
    if (file.size() != shard.size) {
      throw_error<IoError>("[shards] {}: expected {} bytes, as when it was opened, but it has {} now",
                           shard.path.string(), shard.size, file.size());
    }
    file.read(stored.header, std::as_writable_bytes(std::span(bytes)));
    const auto member = tar_header_name(std::span<const uint8_t, kTarBlock>(bytes.data(), kTarBlock));
    if (!member) {
      throw_error<IoError>("[shards] {}: expected a member at byte {}, as when it was opened",
                           shard.path.string(), stored.header);
    }
    return fmt::format("{}, member \"{}\" at byte {}", shard.path.string(), *member, stored.header);
  }

  void read_indices() {
    std::vector<std::vector<ShardSample>> indices(shards_.size());
    std::vector<std::map<std::string, uint64_t>> passed_over(shards_.size());
    parallel_for(static_cast<int64_t>(shards_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Shard& shard = shards_[static_cast<size_t>(i)];
        InputFile file(shard.path);
        shard.size = file.size();
        const TarReadAt read_at = [&](uint64_t offset, std::span<uint8_t> bytes) {
          file.read(offset, std::as_writable_bytes(bytes));
        };
        indices[static_cast<size_t>(i)] =
            index_shard(shard.size, read_at, shard.path.string(), &passed_over[static_cast<size_t>(i)]);
      }
    });
    for (size_t i = 0; i < indices.size(); ++i) {
      for (const ShardSample& sample : indices[i]) samples_.push_back({sample, static_cast<uint32_t>(i)});
      indices[i] = {};
    }
    std::map<std::string, uint64_t> all;
    for (const auto& of_shard : passed_over) {
      for (const auto& [ending, count] : of_shard)
        all[ending.empty() ? "without an ending" : '.' + ending] += count;
    }
    if (!all.empty())
      log::warning("[shards] {}: members that are neither images nor labels are passed over: {}",
                   shards_.front().path.parent_path().string(), describe_counts(all));
  }

  std::vector<std::string> find_class_names(const fs::path& path) const {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return read_lines(path);
    // A few bytes must not ask for millions of names.
    constexpr uint32_t kFewClasses = 1 << 16;
    const auto largest =
        std::max_element(samples_.begin(), samples_.end(),
                         [](const Entry& a, const Entry& b) { return a.sample.label < b.sample.label; });
    if (largest->sample.label >= std::max<uint64_t>(samples_.size(), kFewClasses)) {
      throw_error<IoError>(
          "[shards] {}: member at byte {}: a label of {} for {} samples in all; {} can name so many classes",
          shards_[largest->shard].path.string(), largest->sample.header, largest->sample.label,
          samples_.size(), path.string());
    }
    std::vector<std::string> numbers;
    for (uint32_t i = 0; i <= largest->sample.label; ++i) numbers.push_back(std::to_string(i));
    return numbers;
  }

  static std::vector<std::string> read_lines(const fs::path& path) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 28;
    InputFile file(path);
    if (file.size() > kMostBytes)
      throw_error<IoError>("[shards] {}: expected at most {} bytes", path.string(), kMostBytes);
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    std::vector<std::string> lines = split_lines(text);
    if (lines.empty()) throw_error<IoError>("[shards] {}: expected the names of the classes", path.string());
    return lines;
  }

  void check_labels() const {
    for (const auto& [sample, shard] : samples_) {
      if (sample.label < class_names_.size()) continue;
      throw_error<IoError>("[shards] {}: member at byte {}: expected a class from 0 to {} but got {}",
                           shards_[shard].path.string(), sample.header, class_names_.size() - 1,
                           sample.label);
    }
  }

  std::vector<Shard> shards_;
  std::vector<Entry> samples_;
  DecodeOptions decode_;
  std::vector<std::string> class_names_;
};

}  // namespace

std::shared_ptr<const Dataset> open_shards(const std::vector<fs::path>& shards,
                                           const ShardDatasetOptions& options) {
  return std::make_shared<ShardDataset>(shards, options);
}

std::shared_ptr<const Dataset> open_shards(const std::string& pattern, const ShardDatasetOptions& options) {
  return open_shards(expand_shards(pattern), options);
}

}  // namespace sinter::nn::data
