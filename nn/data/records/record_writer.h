// Writes a data set of records: <name>.rec and <name>.idx, and on request `property` and classes.txt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>

namespace sinter::nn::data {

/// The files appear when all is written, by commit(); before, and if it is never called, there are only
/// hidden ones, which the destructor removes. Failures are IoErrors with the path.
class RecordWriter {
 public:
  /// `folder` must be there. Files that exist are replaced by commit().
  RecordWriter(const std::filesystem::path& folder, const std::string& name);

  /// Appends an image, encoded, under the next key (from 0). Throws InvalidArgument for a label that is no
  /// class in [0, 2^24), which float32 could not hold, or an image beyond kMaxRecordBytes.
  void add(int64_t label, std::span<const uint8_t> image);
  int64_t size() const { return size_; }

  /// Throws InvalidArgument, as commit() does, for a name that cannot be a line of classes.txt: to be known
  /// before the work.
  static void check_names(const std::vector<std::string>& class_names);

  /// Puts the records on the disk. `class_names` not empty: classes.txt and property too, the latter with the
  /// size of the images, or 0, 0 where they differ. Throws InvalidArgument for a name that holds a line's
  /// end.
  void commit(const std::vector<std::string>& class_names, int64_t height, int64_t width);

 private:
  std::filesystem::path folder_;
  AtomicOutputFile records_;
  AtomicOutputFile index_;
  uint64_t offset_ = 0;
  int64_t size_ = 0;
  std::vector<uint8_t> record_;
  std::string lines_;
};

}  // namespace sinter::nn::data
