#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/record_table.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

std::string_view as_text(std::span<const uint8_t> bytes) {
  return without_byte_order_mark({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Takes a whole number, with blanks around it, off the line. False if there is none or it is too large.
bool take_number(std::string_view& line, uint64_t& value) {
  const auto skip_blanks = [&] {
    while (line.starts_with(' ')) line.remove_prefix(1);
  };
  skip_blanks();
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc{}) return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  skip_blanks();
  return true;
}

bool take_separator(std::string_view& line, char separator) {
  if (!line.starts_with(separator)) return false;
  line.remove_prefix(1);
  return true;
}

// For messages: what stands in a file may be long, or no text at all.
std::string shown(std::string_view line) {
  std::string text;
  for (const char c : line.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
  return line.size() > 40 ? text + "..." : text;
}

bool by_offset(const RecordEntry& a, const RecordEntry& b) {
  return a.offset < b.offset;
}
bool by_key(const RecordEntry& a, const RecordEntry& b) {
  return a.key < b.key;
}

// Sorts, unless it is done already, as files mostly are.
template <class Less>
void sort_entries(std::vector<RecordEntry>& entries, Less less) {
  if (!std::is_sorted(entries.begin(), entries.end(), less)) std::sort(entries.begin(), entries.end(), less);
}

}  // namespace

std::vector<RecordEntry> parse_record_index(std::span<const uint8_t> text, const std::string& name) {
  std::vector<RecordEntry> entries;
  std::string_view rest = as_text(text);
  for (size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    std::string_view left = line;
    RecordEntry entry;
    if (!take_number(left, entry.key) || !take_separator(left, '\t') || !take_number(left, entry.offset) ||
        !left.empty()) {
      throw_error<IoError>("[records] {}: expected \"key<tab>offset\" in line {} but got \"{}\"", name,
                           number, shown(line));
    }
    entries.push_back(entry);
  }
  if (entries.empty())
    throw_error<IoError>("[records] {}: expected one line per record but there is none", name);
  sort_entries(entries, by_offset);
  const auto same_place =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const RecordEntry& a, const RecordEntry& b) { return a.offset == b.offset; });
  if (same_place != entries.end()) {
    throw_error<IoError>("[records] {}: keys {} and {} have the same offset {}", name, same_place->key,
                         (same_place + 1)->key, same_place->offset);
  }
  sort_entries(entries, by_key);
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const RecordEntry& a, const RecordEntry& b) { return a.key == b.key; });
  if (twice != entries.end())
    throw_error<IoError>("[records] {}: key {} comes more than once", name, twice->key);
  return entries;
}

RecordProperty parse_record_property(std::span<const uint8_t> text, const std::string& name) {
  constexpr uint64_t kMostClasses = uint64_t{1} << 24;  // beyond it, labels in float32 are not exact
  constexpr uint64_t kMostExtent = uint64_t{1} << 20;
  std::string_view rest = as_text(text);
  const std::string_view line = take_line(rest);
  std::string_view left = line;
  uint64_t classes = 0, height = 0, width = 0;
  if (!take_number(left, classes) || !take_separator(left, ',') || !take_number(left, height) ||
      !take_separator(left, ',') || !take_number(left, width) || !left.empty()) {
    throw_error<IoError>("[records] {}: expected \"classes,height,width\" in line 1 but got \"{}\"", name,
                         shown(line));
  }
  if (classes < 1 || classes > kMostClasses || height > kMostExtent || width > kMostExtent) {
    throw_error<IoError>(
        "[records] {}: expected 1 to {} classes and a size of up to {} but got {} classes and {} x {}", name,
        kMostClasses, kMostExtent, classes, height, width);
  }
  return {static_cast<int64_t>(classes), static_cast<int64_t>(height), static_cast<int64_t>(width)};
}

uint64_t find_first_identity(float bound, const std::function<bool(uint64_t key)>& has_image) {
  constexpr float kExact = 1 << 24;
  if (bound < kExact) return static_cast<uint64_t>(bound);
  auto key = static_cast<uint64_t>(std::nextafter(bound, 0.0f));
  const auto last = static_cast<uint64_t>(std::nextafter(bound, std::numeric_limits<float>::max()));
  while (key < last && has_image(key)) ++key;
  return key;
}

RecordTable::RecordTable(std::span<const uint8_t> file, std::string file_name, std::span<const uint8_t> index,
                         const std::string& index_name)
    : file_name_(std::move(file_name)), images_(parse_record_index(index, index_name)) {
  check_extent(file, index_name);
  drop_identities(file, index_name);
  if (images_.empty()) throw_error<IoError>("[records] {}: expected images but there is none", file_name_);
}

// An index that lost lines is noticed here: writers write records in the order of their lines.
void RecordTable::check_extent(std::span<const uint8_t> file, const std::string& index_name) const {
  const auto [first, last] = std::minmax_element(images_.begin(), images_.end(), by_offset);
  if (first->offset != 0) {
    throw_error<IoError>(
        "[records] {}: expected an entry for the record at byte 0 but the first is at byte {}", index_name,
        first->offset);
  }
  const RecordPlace place{file_name_, last->key, last->offset};
  std::vector<uint8_t> joined;
  const uint64_t end = read_record(file, place, joined).end;
  if (end != file.size()) {
    throw_error<IoError>(
        "[records] {}: expected the last entry, {}, to end the file at byte {} but it ends at byte {}; the "
        "index is of another file, or cut short",
        index_name, place.text(), file.size(), end);
  }
}

bool RecordTable::has_image(size_t entry, std::span<const uint8_t> file) const {
  std::vector<uint8_t> joined;
  return !parse_image_record(read_record(file, place(entry), joined).payload, place(entry)).image.empty();
}

// Where record 0 holds no image but labels [L0, L1], images have the keys 1 ... L0 - 1, and L0 ... L1 - 1 are
// identities. As a float32, L0 is the nearest that there is; which of the keys near it is meant is told by
// the records, as those of identities hold no image.
void RecordTable::drop_identities(std::span<const uint8_t> file, const std::string& index_name) {
  if (images_.front().key != 0) return;
  std::vector<uint8_t> joined;
  const ImageRecord header = parse_image_record(read_record(file, place(0), joined).payload, place(0));
  if (header.labels.empty() || !header.image.empty()) return;  // an image like others
  constexpr float kMost = 1e18f;
  const float bound = header.label;
  if (header.extra_labels() < 2 || !(bound >= 1) || !(header.extra_label(1) >= bound) ||
      !(header.extra_label(1) <= kMost) || bound != std::floor(bound)) {
    throw_error<IoError>(
        "[records] {}: expected two labels 1 <= L0 <= L1, where images and identities end, but got {} "
        "labels{}",
        place(0).text(), header.extra_labels(),
        header.extra_labels() < 2 ? "" : fmt::format(", {} and {}", bound, header.extra_label(1)));
  }
  // Keys are unique and sorted: if entry i has key i, so have all before it.
  const auto is_listed = [&](uint64_t end) {
    return end <= images_.size() && images_[end - 1].key == end - 1;
  };
  const uint64_t end =
      find_first_identity(bound, [&](uint64_t key) { return is_listed(key + 1) && has_image(key, file); });
  if (!is_listed(end)) {
    throw_error<IoError>("[records] {}: expected the keys 0 to {} but some of them are missing", index_name,
                         end - 1);
  }
  const bool more = end < images_.size() && has_image(end, file);
  if (more || (end > 1 && !has_image(end - 1, file))) {
    throw_error<IoError>("[records] {}: expected images up to key {}, as record 0 says, but this {}",
                         place(more ? end : end - 1).text(), end - 1, more ? "is one too" : "is none");
  }
  identities_ = images_.size() - end;
  images_.erase(images_.begin() + static_cast<std::ptrdiff_t>(end), images_.end());
  images_.erase(images_.begin());
}

ImageRecord RecordTable::read(size_t image, std::span<const uint8_t> file,
                              std::vector<uint8_t>& joined) const {
  const RecordPlace at = place(image);
  const ImageRecord record = parse_image_record(read_record(file, at, joined).payload, at);
  if (record.image.empty())
    throw_error<IoError>("[records] {}: expected an image behind the labels but the record ends there",
                         at.text());
  return record;
}

}  // namespace sinter::nn::data
