#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/zip_archive.h>

namespace sinter::nn::pytorch {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

using Bytes = std::span<const std::byte>;

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kLocatorSignature = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint32_t kIn64 = 0xffffffff;  // a field that the 64-bit part says
constexpr uint64_t kMostEntries = uint64_t{1} << 20;
constexpr uint64_t kMostDirectoryBytes = uint64_t{256} << 20;
constexpr uint16_t kRefusedFlags = 1 << 0 | 1 << 6 | 1 << 13;  // encrypted, twice, or its names masked

/// Where the directory is, as the records at the end of the file say.
struct Place {
  uint64_t begin = 0, size = 0, entries = 0;
  uint64_t end_record = 0;  // the first of the records behind it
};

std::array<std::byte, kEnd64Bytes> read_part(const ByteSource& source, uint64_t at, size_t size) {
  std::array<std::byte, kEnd64Bytes> part{};
  source.read(at, std::span(part).first(size));
  return part;
}

/// The 64-bit end record, which PyTorch always writes; `end` is where the short one begins.
void read_end64(const ByteSource& source, uint64_t end, Place& place) {
  if (end < kLocatorBytes) return;
  const uint64_t locator_at = end - kLocatorBytes;
  const auto locator = read_part(source, locator_at, kLocatorBytes);
  if (number_at<uint32_t>(locator, 0) != kLocatorSignature) return;
  const auto at = number_at<uint64_t>(locator, 8);
  if (number_at<uint32_t>(locator, 4) != 0 || number_at<uint32_t>(locator, 16) > 1)
    source.fail("byte {}: expected an archive of one disk", locator_at);
  if (locator_at < kEnd64Bytes || at > locator_at - kEnd64Bytes)
    source.fail("byte {}: expected the place of the 64-bit end record but got {}", locator_at + 8, at);
  const auto record = read_part(source, at, kEnd64Bytes);
  if (number_at<uint32_t>(record, 0) != kEnd64Signature ||
      number_at<uint64_t>(record, 4) != locator_at - at - 12)
    source.fail("byte {}: expected a 64-bit end record that ends at byte {}", at, locator_at);
  if (number_at<uint64_t>(record, 16) != 0 ||
      number_at<uint64_t>(record, 24) != number_at<uint64_t>(record, 32))
    source.fail("byte {}: expected an archive of one disk", at + 16);
  const Place wide{.begin = number_at<uint64_t>(record, 48),
                   .size = number_at<uint64_t>(record, 40),
                   .entries = number_at<uint64_t>(record, 32),
                   .end_record = at};
  const auto agree = [](uint64_t narrow, uint64_t other, uint64_t in_64) {
    return narrow == in_64 || narrow == other;
  };
  if (!agree(place.begin, wide.begin, kIn64) || !agree(place.size, wide.size, kIn64) ||
      !agree(place.entries, wide.entries, 0xffff))
    source.fail("byte {}: the end records differ", end);
  place = wide;
}

Place find_directory(const ByteSource& source) {
  if (source.size < kEndBytes)
    source.fail("byte 0: expected the end record of an archive but the file has {} bytes", source.size);
  const uint64_t end = source.size - kEndBytes;
  const auto record = read_part(source, end, kEndBytes);
  if (number_at<uint32_t>(record, 0) != kEndSignature || number_at<uint16_t>(record, 20) != 0)
    source.fail("byte {}: expected the end record of an archive: the file is cut off, or something follows",
                end);
  const auto disk = number_at<uint16_t>(record, 4), directory_disk = number_at<uint16_t>(record, 6);
  if (disk != directory_disk || (disk != 0 && disk != 0xffff) ||
      number_at<uint16_t>(record, 8) != number_at<uint16_t>(record, 10))
    source.fail("byte {}: expected an archive of one disk", end + 4);
  Place place{.begin = number_at<uint32_t>(record, 16),
              .size = number_at<uint32_t>(record, 12),
              .entries = number_at<uint16_t>(record, 10),
              .end_record = end};
  read_end64(source, end, place);
  if (place.entries > kMostEntries)
    source.fail("byte {}: expected at most {} records but got {}", end, kMostEntries, place.entries);
  if (place.size > kMostDirectoryBytes)
    source.fail("byte {}: expected a directory of at most {} bytes but got {}", end, kMostDirectoryBytes,
                place.size);
  if (place.begin > place.end_record || place.size != place.end_record - place.begin)
    source.fail("byte {}: expected a directory that ends at byte {} but got {} bytes from {}", end,
                place.end_record, place.size, place.begin);
  return place;
}

/// Reads the directory's entries one behind the other.
class EntryReader {
 public:
  EntryReader(const ByteSource& source, Bytes directory, uint64_t begin)
      : source_(source), directory_(directory), begin_(begin) {}

  /// The next entry; the record's `begin` is that of its local header.
  ZipArchive::Entry next() {
    const Bytes head = take(kEntryBytes);
    const uint64_t place = begin_ + at_ - kEntryBytes;
    if (number_at<uint32_t>(head, 0) != kEntrySignature)
      source_.fail("byte {}: expected an entry of the archive's directory", place);
    const Bytes name = take(number_at<uint16_t>(head, 28));
    const Bytes extra = take(number_at<uint16_t>(head, 30));
    take(number_at<uint16_t>(head, 32));  // a comment
    ZipArchive::Entry entry;
    entry.name = {reinterpret_cast<const char*>(name.data()), name.size()};
    const auto flags = number_at<uint16_t>(head, 8);
    entry.method = number_at<uint16_t>(head, 10);
    if ((flags & kRefusedFlags) != 0)
      source_.fail("byte {}: record {} is encrypted", place, quote_name(entry.name));
    std::array<uint64_t, 3> sizes = {number_at<uint32_t>(head, 24), number_at<uint32_t>(head, 20),
                                     number_at<uint32_t>(head, 42)};
    read_extra(extra, sizes, place);
    if (number_at<uint16_t>(head, 34) != 0) source_.fail("byte {}: expected an archive of one disk", place);
    if (entry.method == 0 && sizes[0] != sizes[1]) {
      source_.fail("byte {}: record {}: {} bytes are stored as {}", place, quote_name(entry.name), sizes[0],
                   sizes[1]);
    }
    entry.record = {.begin = sizes[2], .size = sizes[1], .crc32 = number_at<uint32_t>(head, 16)};
    if (entry.record.crc32 == 0U) entry.record.crc32.reset();  // not computed: set_crc32_options(False)
    return entry;
  }

  bool at_end() const { return at_ == directory_.size(); }
  uint64_t position() const { return begin_ + at_; }

 private:
  Bytes take(size_t count) {
    if (count > directory_.size() - at_)
      source_.fail("byte {}: expected {} more bytes of the archive's directory but {} are left", position(),
                   count, directory_.size() - at_);
    const Bytes bytes = directory_.subspan(at_, count);
    at_ += count;
    return bytes;
  }

  /// The extra field 1 holds, in this order, those of the numbers that do not fit into 32 bits.
  void read_extra(Bytes extra, std::array<uint64_t, 3>& sizes, uint64_t place) const {
    Bytes wide;
    while (extra.size() >= 4) {
      const auto id = number_at<uint16_t>(extra, 0), size = number_at<uint16_t>(extra, 2);
      if (size > extra.size() - 4) source_.fail("byte {}: an extra field is cut off", place);
      if (id == 1) wide = extra.subspan(4, size);
      extra = extra.subspan(4 + size_t{size});
    }
    for (uint64_t& number : sizes) {
      if (number != kIn64) continue;
      if (wide.size() < sizeof number) source_.fail("byte {}: a number of 64 bits is missing", place);
      number = number_at<uint64_t>(wide, 0);
      wide = wide.subspan(sizeof number);
    }
  }

  const ByteSource& source_;
  Bytes directory_;
  uint64_t begin_;
  size_t at_ = 0;
};

/// Turns an entry's place into that of its bytes, which must end before the directory.
void skip_local_header(const ByteSource& source, uint64_t directory, ZipArchive::Entry& entry) {
  Record& record = entry.record;
  const std::string name = quote_name(entry.name);
  const uint64_t head_bytes = kLocalBytes + entry.name.size();
  if (record.begin > directory || head_bytes > directory - record.begin)
    source.fail("byte {}: record {} does not lie before the archive's directory", record.begin, name);
  std::vector<std::byte> head(head_bytes);
  source.read(record.begin, head);
  const auto name_bytes = number_at<uint16_t>(head, 26), extra_bytes = number_at<uint16_t>(head, 28);
  const std::string_view local_name(reinterpret_cast<const char*>(head.data()) + kLocalBytes,
                                    entry.name.size());
  if (number_at<uint32_t>(head, 0) != kLocalSignature || number_at<uint16_t>(head, 8) != entry.method ||
      name_bytes != entry.name.size() || local_name != entry.name)
    source.fail("byte {}: expected the local header of record {}", record.begin, name);
  const uint64_t rest = directory - record.begin - head_bytes;
  if (extra_bytes > rest || record.size > rest - extra_bytes)
    source.fail("byte {}: record {} does not end before the archive's directory", record.begin, name);
  record.begin += head_bytes + extra_bytes;
}

void check_overlaps(const ByteSource& source, std::vector<std::pair<uint64_t, uint64_t>>& extents) {
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].first < extents[i - 1].second)
      source.fail("byte {}: two records of the archive overlap", extents[i].first);
  }
}

}  // namespace

void read_record(const ByteSource& source, const Record& record, std::span<std::byte> bytes) {
  constexpr size_t kPiece = size_t{256} << 10;  // still in the processor's cache when its sum is taken
  if (!record.crc32) return source.read(record.begin, bytes);
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    source.read(record.begin + at, piece);
    crc = extend_crc32(crc, piece);
  }
  if (crc != *record.crc32) {
    source.fail("byte {}: expected the checksum {:08x} of {} bytes but got {:08x}: the file is damaged",
                record.begin, *record.crc32, record.size, crc);
  }
}

ZipArchive::ZipArchive(const ByteSource& source) {
  const Place place = find_directory(source);
  directory_.resize(place.size);
  source.read(place.begin, directory_);
  if (place.entries > place.size / kEntryBytes)
    source.fail("byte {}: {} records do not fit into the archive's directory", place.end_record,
                place.entries);
  EntryReader reader(source, directory_, place.begin);
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  entries_.reserve(place.entries);
  extents.reserve(place.entries);
  for (uint64_t i = 0; i < place.entries; ++i) {
    Entry& entry = entries_.emplace_back(reader.next());
    const uint64_t begin = entry.record.begin;
    skip_local_header(source, place.begin, entry);
    extents.emplace_back(begin, entry.record.end());
  }
  if (!reader.at_end())
    source.fail("byte {}: expected the end of the archive's directory", reader.position());
  check_overlaps(source, extents);
  if (!entries_.empty()) first_name_ = entries_.front().name;
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].name == entries_[i - 1].name)
      source.fail("byte {}: two records have the name {}", place.begin, quote_name(entries_[i].name));
  }
}

void ZipArchive::check_stored(const ByteSource& source) const {
  for (const Entry& entry : entries_) {
    if (entry.method != 0) {
      source.fail<Unsupported>(
          "byte {}: record {} is compressed: the file was zipped again; save it anew with torch",
          entry.record.begin, quote_name(entry.name));
    }
  }
}

const ZipArchive::Entry* ZipArchive::find(std::string_view name) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name,
                                      [](const Entry& entry, std::string_view n) { return entry.name < n; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace sinter::nn::pytorch
