#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <sinter/core/base/checked.h>
#include <sinter/core/json/json.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/safetensors_header.h>

namespace sinter::nn {
namespace {

constexpr size_t kMaxDepth = 4;
constexpr size_t kMaxFileRank = 16;

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array kDTypeNames = {DTypeName{DType::kFloat64, "F64"}, DTypeName{DType::kFloat32, "F32"},
                                    DTypeName{DType::kFloat16, "F16"}, DTypeName{DType::kBFloat16, "BF16"},
                                    DTypeName{DType::kInt64, "I64"},   DTypeName{DType::kInt32, "I32"},
                                    DTypeName{DType::kUInt8, "U8"},    DTypeName{DType::kBool, "BOOL"}};
// The other dtypes of the format: a file with one is not damaged, but no Tensor can hold it.
constexpr std::string_view kForeignDTypes[] = {"I8",      "I16",     "U16",         "U32",        "U64",
                                               "C64",     "F8_E4M3", "F8_E5M2",     "F8_E8M0",    "F4",
                                               "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

std::string_view name_of(DType dtype) {
  return std::find_if(kDTypeNames.begin(), kDTypeNames.end(),
                      [&](const DTypeName& d) { return d.dtype == dtype; })
      ->name;
}

/// An entry as it stands in the file, before it is checked against shape and data.
struct RawEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
  uint64_t position = 0;  // where the entry ends in the file
};

/// Follows the events of the JSON parser with a stack of at most kMaxDepth places, so that a header of any
/// form costs no more memory than its entries.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const std::string& path, const uint64_t& consumed) : path_(path), consumed_(consumed) {}

  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_float(double, const std::string& text) override {
    return value("the number " + quote_name(text));
  }
  bool number_integer(int64_t number) override {
    if (number >= 0) return number_unsigned(static_cast<uint64_t>(number));
    return value("the number \"" + std::to_string(number) + "\"");
  }

  bool number_unsigned(uint64_t number) override {
    const Place place = places_.back().kind;
    if (place != Place::kShape && place != Place::kOffsets) return value("a number");
    std::vector<uint64_t>& list = place == Place::kShape ? *entry().shape : *entry().offsets;
    const size_t limit = place == Place::kShape ? kMaxFileRank : 2;
    if (list.size() == limit && place == Place::kShape) fail("the shape has more than {} axes", kMaxFileRank);
    if (list.size() == limit) fail("data_offsets has more than two numbers");
    list.push_back(number);
    return true;
  }

  bool string(std::string& text) override {
    const Frame& frame = places_.back();
    if (frame.kind == Place::kMetadata) {
      metadata[frame.key] = std::move(text);
      return true;
    }
    if (frame.kind == Place::kEntry && frame.key == "dtype") {
      entry().dtype = std::move(text);
      return true;
    }
    return value("a string");
  }

  bool binary(nlohmann::json::binary_t&) override { return value("binary data"); }  // not in JSON text

  bool start_object(size_t) override {
    Place kind = Place::kIgnored;
    if (places_.empty()) {
      kind = Place::kRoot;
    } else if (places_.back().kind == Place::kRoot) {
      const std::string& key = places_.back().key;
      kind = key == kSafetensorsMetadata ? Place::kMetadata : Place::kEntry;
      if (kind == Place::kEntry) entries.emplace_back().name = key;
    } else {
      refuse_unless_ignored("an object");
    }
    return enter(kind);
  }

  bool start_array(size_t) override {
    Place kind = Place::kIgnored;
    const Frame& frame = places_.back();
    if (frame.kind == Place::kEntry && frame.key == "shape") {
      kind = Place::kShape;
      entry().shape.emplace();
    } else if (frame.kind == Place::kEntry && frame.key == "data_offsets") {
      kind = Place::kOffsets;
      entry().offsets.emplace();
    } else {
      refuse_unless_ignored("an array");
    }
    return enter(kind);
  }

  bool end_array() override {
    places_.pop_back();
    return true;
  }

  bool end_object() override {
    if (places_.back().kind == Place::kEntry) finish_entry();
    places_.pop_back();
    return true;
  }

  bool key(std::string& text) override {
    Frame& frame = places_.back();
    if (frame.keys.size() == kSafetensorsMaxKeys)
      fail("an object has more than {} keys", kSafetensorsMaxKeys);
    if (!frame.keys.insert(text).second) fail("the key {} stands twice in one object", quote_name(text));
    frame.key = std::move(text);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    fail("the header is no valid JSON");
  }

 private:
  enum class Place { kRoot, kMetadata, kEntry, kShape, kOffsets, kIgnored };
  struct Frame {
    Place kind;
    std::string key;             // the last key, in an object
    std::set<std::string> keys;  // all keys so far
  };

  RawEntry& entry() { return entries.back(); }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    const bool in_entry = places_.size() >= 2 && places_[1].kind == Place::kEntry;
    throw_error<IoError>("[safetensors] {}: byte {}: {}{}", path_, kSafetensorsPrefixBytes + consumed_,
                         in_entry ? "tensor " + quote_name(entries.back().name) + ": " : "",
                         fmt::vformat(format, fmt::make_format_args(args...)));
  }

  bool enter(Place kind) {
    if (places_.size() == kMaxDepth) fail("the header is nested deeper than {} levels", kMaxDepth);
    places_.push_back({.kind = kind, .key = {}, .keys = {}});
    return true;
  }

  /// A value with no meaning in this place: allowed, and ignored, only below keys that the format does not
  /// know.
  bool value(const std::string& what) {
    refuse_unless_ignored(what);
    return true;
  }

  void refuse_unless_ignored(const std::string& what) const {
    const Frame& frame = places_.back();
    switch (frame.kind) {
      case Place::kRoot:
        fail("expected an object for {} but got {}", quote_name(frame.key), what);
      case Place::kMetadata:
        fail("expected a string for {} in __metadata__ but got {}", quote_name(frame.key), what);
      case Place::kShape:
        fail("expected extents >= 0 below 2^64 in the shape but got {}", what);
      case Place::kOffsets:
        fail("expected offsets >= 0 below 2^64 in data_offsets but got {}", what);
      case Place::kEntry:
        if (frame.key == "dtype") fail("expected a string for dtype but got {}", what);
        if (frame.key == "shape") fail("expected an array for shape but got {}", what);
        if (frame.key == "data_offsets") fail("expected an array for data_offsets but got {}", what);
        break;
      case Place::kIgnored:
        break;
    }
  }

  void finish_entry() {
    if (!entry().dtype) fail("dtype is missing");
    if (!entry().shape) fail("shape is missing");
    if (!entry().offsets) fail("data_offsets is missing");
    if (entry().offsets->size() != 2) fail("data_offsets has fewer than two numbers");
    entry().position = kSafetensorsPrefixBytes + consumed_;
  }

  const std::string& path_;
  const uint64_t& consumed_;
  std::vector<Frame> places_;
};

template <class E, class... Args>
[[noreturn]] void fail_entry(const std::string& path, uint64_t position, const std::string& name,
                             fmt::format_string<Args...> format, Args&&... args) {
  throw_error<E>("[safetensors] {}: byte {}: tensor {}: {}", path, position, quote_name(name),
                 fmt::vformat(format, fmt::make_format_args(args...)));
}

DType check_dtype(const RawEntry& raw, const std::string& path) {
  for (const DTypeName& known : kDTypeNames) {
    if (known.name == *raw.dtype) return known.dtype;
  }
  const bool foreign =
      std::find(std::begin(kForeignDTypes), std::end(kForeignDTypes), *raw.dtype) != std::end(kForeignDTypes);
  constexpr std::string_view kHeld = "F64, F32, F16, BF16, I64, I32, U8, BOOL";
  if (foreign) {
    fail_entry<Unsupported>(path, raw.position, raw.name, "tensors cannot hold the dtype {}, only {}",
                            *raw.dtype, kHeld);
  }
  fail_entry<IoError>(path, raw.position, raw.name, "unknown dtype {}; expected one of {}",
                      quote_name(*raw.dtype), kHeld);
}

/// Checks one entry by itself: dtype, shape, and that its bytes are as many as these ask for and exist.
SafetensorsEntry check_entry(RawEntry& raw, uint64_t data_bytes, const std::string& path) {
  SafetensorsEntry entry;
  entry.dtype = check_dtype(raw, path);
  uint64_t elements = 1;  // over the non-zero extents, as in Shape
  bool empty = false;
  for (const uint64_t extent : *raw.shape) {
    constexpr uint64_t kMost{kMaxElements};
    if (extent > kMost || (extent != 0 && elements > kMost / extent)) {
      fail_entry<IoError>(path, raw.position, raw.name, "the number of elements exceeds 2^59");
    }
    empty = empty || extent == 0;
    if (extent != 0) elements *= extent;
  }
  if (empty) elements = 0;
  entry.begin = (*raw.offsets)[0];
  entry.end = (*raw.offsets)[1];
  if (entry.begin > entry.end || entry.end > data_bytes) {
    fail_entry<IoError>(path, raw.position, raw.name, "the bytes [{}, {}) do not lie in the {} bytes of data",
                        entry.begin, entry.end, data_bytes);
  }
  const uint64_t bytes = entry.end - entry.begin;
  const uint64_t element_bytes = size_of(entry.dtype);
  if (bytes / element_bytes != elements || bytes % element_bytes != 0) {
    fail_entry<IoError>(path, raw.position, raw.name,
                        "{} elements of dtype {} do not take the {} bytes [{}, {})", elements, *raw.dtype,
                        bytes, entry.begin, entry.end);
  }
  if (raw.shape->size() > static_cast<size_t>(kMaxRank)) {
    fail_entry<Unsupported>(path, raw.position, raw.name, "tensors have at most {} axes, not {}", kMaxRank,
                            raw.shape->size());
  }
  std::array<int64_t, kMaxRank> extents{};
  std::copy(raw.shape->begin(), raw.shape->end(), extents.begin());
  entry.shape = Shape(std::span<const int64_t>(extents.data(), raw.shape->size()));
  entry.name = std::move(raw.name);
  return entry;
}

/// Sorts the entries by place and checks that they cover the data without overlap or gap.
void check_coverage(std::vector<SafetensorsEntry>& entries, uint64_t data_start, uint64_t data_bytes,
                    const std::string& path) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < covered) {
      fail_entry<IoError>(path, data_start + entry.begin, entry.name,
                          "overlaps the tensor before it, which ends at byte {}", data_start + covered);
    }
    if (entry.begin > covered) {
      fail_entry<IoError>(path, data_start + covered, entry.name, "{} bytes before it belong to no tensor",
                          entry.begin - covered);
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw_error<IoError>("[safetensors] {}: byte {}: the last {} bytes belong to no tensor", path,
                         data_start + covered, data_bytes - covered);
  }
}

/// What else a file is whose first eight bytes, read as a length, are too large; or nothing.
std::string foreign_format(uint64_t first_bytes) {
  constexpr uint64_t kZip = 0x04034b50;  // "PK\3\4", torch.save since 1.6
  const uint64_t start = first_bytes & 0xffffffff;
  const bool is_old_pickle = (first_bytes & 0xff) == 0x80 && (first_bytes >> 8 & 0xff) <= 5;
  if (start == kZip || is_old_pickle) {
    return "this is a file of PyTorch (.pth, .pt): nn::read_pytorch reads it, and sinter_convert makes a "
           "safetensors file of it";
  }
  if ((start & 0xffff) == 0x8b1f) return "this file is compressed with gzip; unpack it first";
  return {};
}

std::string to_json_string(const std::string& text) {
  return nlohmann::json(text).dump();
}

}  // namespace

void check_safetensors_header_length(uint64_t header_bytes, uint64_t file_bytes, const std::string& path) {
  const uint64_t most = std::min(kSafetensorsMaxHeaderBytes, file_bytes - kSafetensorsPrefixBytes);
  if (header_bytes <= most) return;
  if (const std::string format = foreign_format(header_bytes); !format.empty())
    throw_error<IoError>("[safetensors] {}: byte 0: {}", path, format);
  throw_error<IoError>(
      "[safetensors] {}: byte 0: expected the length of the header, at most {}, but got {}: this is no "
      "safetensors file, or it is damaged or cut off",
      path, most, header_bytes);
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size()) {
    throw_error<IoError>("[safetensors] {}: byte {}: the header is no valid UTF-8 text", path,
                         kSafetensorsPrefixBytes + valid);
  }
  if (!text.starts_with('{')) {
    throw_error<IoError>("[safetensors] {}: byte {}: the header does not start with '{{'", path,
                         kSafetensorsPrefixBytes);
  }
  uint64_t consumed = 0;
  HeaderEvents events(path, consumed);
  read_json_events(text, events, consumed);
  SafetensorsHeader header;
  header.metadata = std::move(events.metadata);
  header.entries.reserve(events.entries.size());
  for (RawEntry& raw : events.entries) header.entries.push_back(check_entry(raw, data_bytes, path));
  check_coverage(header.entries, kSafetensorsPrefixBytes + text.size(), data_bytes, path);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  // __metadata__ is a key beside the tensors.
  SINTER_CHECK(header.entries.size() < kSafetensorsMaxKeys && header.metadata.size() <= kSafetensorsMaxKeys,
               "[safetensors] expected fewer than {} tensors and metadata keys but got {} and {}",
               kSafetensorsMaxKeys, header.entries.size(), header.metadata.size());
  std::string text = "{";
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      if (text.back() != '{') text += ',';
      text += to_json_string(key) + ':' + to_json_string(value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : header.entries) {
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        to_json_string(entry.name), name_of(entry.dtype),
                        fmt::join(entry.shape.extents(), ","), entry.begin, entry.end);
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace sinter::nn
