#include <bit>
#include <cstring>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/record_io.h>

namespace sinter::nn::data {
namespace {

static_assert(std::endian::native == std::endian::little, "records are read and written as they lie");

constexpr size_t kFrameBytes = 8;    // magic and length
constexpr size_t kHeaderBytes = 24;  // labels, label, two ids
constexpr uint32_t kLengthBits = 29;

enum PartFlag : uint32_t { kWhole = 0, kFirst = 1, kMiddle = 2, kLast = 3 };

template <class T>
T load(std::span<const uint8_t> bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void store(T value, std::vector<uint8_t>& bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

struct Part {
  uint32_t flag;
  std::span<const uint8_t> bytes;
  uint64_t end;  // in the file, behind the padding
};

// The part at byte `at`, whose frame, bytes and padding all lie in the file.
Part read_part(std::span<const uint8_t> file, uint64_t at, const RecordPlace& place) {
  if (at > file.size() || file.size() - at < kFrameBytes) {
    throw_error<IoError>("[records] {}: expected a part of {} bytes or more at byte {} but the file has {}",
                         place.text(), kFrameBytes, at, file.size());
  }
  const std::span<const uint8_t> rest = file.subspan(at);
  if (const auto magic = load<uint32_t>(rest, 0); magic != kRecordMagic) {
    throw_error<IoError>("[records] {}: expected the magic number 0x{:08x} at byte {} but got 0x{:08x}",
                         place.text(), kRecordMagic, at, magic);
  }
  const auto word = load<uint32_t>(rest, 4);
  const uint64_t length = word & kMaxPartBytes;
  const uint64_t padded = (length + 3) / 4 * 4;
  if (padded > rest.size() - kFrameBytes) {
    throw_error<IoError>("[records] {}: the part at byte {} promises {} bytes, padded to {}, but {} are left",
                         place.text(), at, length, padded, rest.size() - kFrameBytes);
  }
  return {word >> kLengthBits, rest.subspan(kFrameBytes, length), at + kFrameBytes + padded};
}

void append(std::span<const uint8_t> piece, const RecordPlace& place, std::vector<uint8_t>& joined) {
  if (piece.size() > kMaxRecordBytes - joined.size()) {
    throw_error<IoError>("[records] {}: expected at most {} bytes in a record but its parts have more",
                         place.text(), kMaxRecordBytes);
  }
  joined.insert(joined.end(), piece.begin(), piece.end());
}

void append_part(PartFlag flag, std::span<const uint8_t> part, std::vector<uint8_t>& bytes) {
  store(kRecordMagic, bytes);
  store(static_cast<uint32_t>(flag << kLengthBits | part.size()), bytes);
  bytes.insert(bytes.end(), part.begin(), part.end());
  bytes.resize((bytes.size() + 3) / 4 * 4);
}

}  // namespace

std::string RecordPlace::text() const {
  return fmt::format("{}: record {} at byte {}", file, key, offset);
}

Record read_record(std::span<const uint8_t> file, const RecordPlace& place, std::vector<uint8_t>& joined) {
  Part part = read_part(file, place.offset, place);
  if (part.flag == kWhole) {
    if (part.bytes.size() > kMaxRecordBytes) {
      throw_error<IoError>("[records] {}: expected at most {} bytes in a record but it promises {}",
                           place.text(), kMaxRecordBytes, part.bytes.size());
    }
    return {part.bytes, part.end};
  }
  if (part.flag != kFirst) {
    throw_error<IoError>("[records] {}: expected a whole record (0) or a first part (1) but got flag {}",
                         place.text(), part.flag);
  }
  constexpr uint8_t kMagicBytes[] = {0x0a, 0x23, 0xd7, 0xce};
  joined.clear();
  append(part.bytes, place, joined);
  while (part.flag != kLast) {
    const uint64_t at = part.end;
    part = read_part(file, at, place);
    if (part.flag != kMiddle && part.flag != kLast) {
      throw_error<IoError>("[records] {}: expected a middle (2) or last (3) part at byte {} but got flag {}",
                           place.text(), at, part.flag);
    }
    append(kMagicBytes, place, joined);
    append(part.bytes, place, joined);
  }
  return {joined, part.end};
}

float ImageRecord::extra_label(size_t i) const {
  SINTER_CHECK(i < extra_labels(), "[records] expected a label below {} but got {}", extra_labels(), i);
  return load<float>(labels, i * sizeof(float));
}

ImageRecord parse_image_record(std::span<const uint8_t> payload, const RecordPlace& place) {
  if (payload.size() < kHeaderBytes) {
    throw_error<IoError>("[records] {}: expected a header of {} bytes but the record has {}", place.text(),
                         kHeaderBytes, payload.size());
  }
  const uint64_t count = load<uint32_t>(payload, 0);
  const std::span<const uint8_t> rest = payload.subspan(kHeaderBytes);
  if (count * sizeof(float) > rest.size()) {
    throw_error<IoError>("[records] {}: the header promises {} labels but {} bytes are left", place.text(),
                         count, rest.size());
  }
  ImageRecord record;
  record.labels = rest.first(count * sizeof(float));
  record.label = count > 0 ? load<float>(rest, 0) : load<float>(payload, 4);
  record.id = load<uint64_t>(payload, 8);
  record.image = rest.subspan(record.labels.size());
  return record;
}

void append_image_record(float label, uint64_t id, std::span<const uint8_t> image,
                         std::vector<uint8_t>& bytes) {
  SINTER_CHECK(image.size() <= kMaxRecordBytes - kHeaderBytes,
               "[records] expected an image of at most {} bytes but got {}", kMaxRecordBytes - kHeaderBytes,
               image.size());
  std::vector<uint8_t> payload;
  payload.reserve(kHeaderBytes + image.size());
  store(uint32_t{0}, payload);
  store(label, payload);
  store(id, payload);
  store(uint64_t{0}, payload);
  payload.insert(payload.end(), image.begin(), image.end());

  const std::span<const uint8_t> whole = payload;
  size_t begin = 0;  // of the part that is being looked through
  for (size_t at = 0; at + 4 <= whole.size(); at += 4) {
    if (load<uint32_t>(whole, at) != kRecordMagic) continue;
    append_part(begin == 0 ? kFirst : kMiddle, whole.subspan(begin, at - begin), bytes);
    begin = at + 4;
  }
  append_part(begin == 0 ? kWhole : kLast, whole.subspan(begin), bytes);
}

}  // namespace sinter::nn::data
