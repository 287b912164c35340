// The records of MXNet's RecordIO files, one by one, in memory: framing, and the image with its labels
// inside. A record is a magic number (0xced7230a), a word with a flag (upper 3 bits) and a length (29 bits),
// so many bytes, and zeros up to a multiple of 4; all little-endian. Where the magic number occurs in the
// payload, at a multiple of 4, the record is split there into parts and the number left out, so that it is
// found at starts of parts only. Source: dmlc-core, include/dmlc/recordio.h; MXNet, python/mxnet/recordio.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::data {

inline constexpr uint32_t kRecordMagic = 0xced7230a;
/// What the 29 bits of a part's length can say.
inline constexpr uint64_t kMaxPartBytes = (uint64_t{1} << 29) - 1;
/// The most bytes of one record that are read or written.
inline constexpr uint64_t kMaxRecordBytes = uint64_t{256} << 20;

/// A record's file, key in the index and first byte, for messages.
struct RecordPlace {
  std::string_view file;
  uint64_t key = 0;
  uint64_t offset = 0;

  /// "<file>: record <key> at byte <offset>"
  std::string text() const;
};

struct Record {
  std::span<const uint8_t> payload;  ///< in the file, or in the buffer if the record had several parts
  uint64_t end = 0;                  ///< the byte in the file behind the record and its padding
};

/// The record at `place.offset` of a file; one of several parts is put together in `joined`. Throws IoError
/// with the place if the bytes there are no record, or end before it does.
Record read_record(std::span<const uint8_t> file, const RecordPlace& place, std::vector<uint8_t>& joined);

/// What a record of an image data set holds.
struct ImageRecord {
  float label = 0;                  ///< the class: the first of the labels if there are several
  std::span<const uint8_t> labels;  ///< further float32 labels, little-endian; empty: `label` is the only one
  uint64_t id = 0;
  std::span<const uint8_t> image;  ///< an encoded image; empty in records that hold labels alone

  /// Label i of `labels`.
  float extra_label(size_t i) const;
  size_t extra_labels() const { return labels.size() / sizeof(float); }
};

/// Takes a payload apart: u32 number of labels (0: the one in the header), f32 label, u64 id, u64 second id,
/// the labels, the image. Throws IoError with the place if the payload is too short for what it says.
ImageRecord parse_image_record(std::span<const uint8_t> payload, const RecordPlace& place);

/// Appends a record with one label, framed and padded, to `bytes`. Throws InvalidArgument if it is larger
/// than kMaxRecordBytes.
void append_image_record(float label, uint64_t id, std::span<const uint8_t> image,
                         std::vector<uint8_t>& bytes);

}  // namespace sinter::nn::data
