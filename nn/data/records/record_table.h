// Which records of a file are images, as its index says; and the small text files beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/data/records/record_io.h>

namespace sinter::nn::data {

struct RecordEntry {
  uint64_t key = 0;
  uint64_t offset = 0;
};

/// The lines "key <tab> offset" of an .idx file, sorted by key. Throws IoError with file and line for
/// anything else, for a key or an offset that comes twice, and for a file without lines.
std::vector<RecordEntry> parse_record_index(std::span<const uint8_t> text, const std::string& name);

/// The first line of a property file, "classes,height,width"; what follows it (the number of images) is not
/// needed.
struct RecordProperty {
  int64_t classes = 0;
  int64_t height = 0;  ///< of all images; 0 where they differ
  int64_t width = 0;
};

/// Throws IoError unless the line is there and the numbers are in range, with at least one class.
RecordProperty parse_record_property(std::span<const uint8_t> text, const std::string& name);

/// The first key that is no image, where `bound` is that key, 1 or more, rounded to float32: past 2^24 one of
/// several, which the records tell apart.
uint64_t find_first_identity(float bound, const std::function<bool(uint64_t key)>& has_image);

/// The images of a record file, in the order of their keys.
class RecordTable {
 public:
  /// Looks at the index and a handful of records. Throws IoError if they do not fit together: offsets outside
  /// the file, records of the file's start or end that are not in the index, or, in a file that lists images
  /// first and identities behind them (record 0 says so), images that are missing.
  RecordTable(std::span<const uint8_t> file, std::string file_name, std::span<const uint8_t> index,
              const std::string& index_name);

  size_t size() const { return images_.size(); }
  /// How many identities the file lists behind its images; 0 if it does not list them.
  size_t identities() const { return identities_; }
  RecordPlace place(size_t image) const { return {file_name_, images_[image].key, images_[image].offset}; }
  /// Image `image` < size(), in `file` or in `joined`; its bytes are there, but not looked at. Throws IoError
  /// if its record is damaged or holds no image.
  ImageRecord read(size_t image, std::span<const uint8_t> file, std::vector<uint8_t>& joined) const;

 private:
  void check_extent(std::span<const uint8_t> file, const std::string& index_name) const;
  void drop_identities(std::span<const uint8_t> file, const std::string& index_name);
  bool has_image(size_t entry, std::span<const uint8_t> file) const;

  std::string file_name_;
  std::vector<RecordEntry> images_;
  size_t identities_ = 0;
};

}  // namespace sinter::nn::data
