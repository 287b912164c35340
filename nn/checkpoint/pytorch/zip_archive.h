// The directory of a zip archive as PyTorch writes it: records that are stored as they are. Nothing in it is
// trusted. Source: PKWARE, APPNOTE.TXT 6.3.10; PyTorch, caffe2/serialize/inline_container.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <sinter/nn/checkpoint/pytorch/byte_source.h>

namespace sinter::nn::pytorch {

class ZipArchive {
 public:
  struct Entry {
    std::string_view name;  ///< of the archive's
    Record record;
    uint16_t method = 0;  ///< 0: stored as it is
  };

  /// Reads the directory and every local header. Throws IoError with the byte for what PyTorch does not
  /// write: records that are encrypted, overlap, share a name, differ from their local headers, or do not lie
  /// before the directory; several disks; more than 2^20 records, or a directory of more than 256 MiB.
  explicit ZipArchive(const ByteSource& source);
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  /// Throws Unsupported if a record is compressed: its bytes are not what they should be.
  void check_stored(const ByteSource& source) const;
  /// By name.
  const std::vector<Entry>& entries() const { return entries_; }
  /// In the order of the directory.
  std::string_view first_name() const { return first_name_; }
  /// Null if there is none.
  const Entry* find(std::string_view name) const;

 private:
  std::vector<std::byte> directory_;
  std::vector<Entry> entries_;
  std::string_view first_name_;
};

}  // namespace sinter::nn::pytorch
