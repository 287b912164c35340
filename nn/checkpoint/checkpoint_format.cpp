#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_set>

#include <fmt/format.h>

#include <sinter/core/json/json.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/checkpoint_format.h>

namespace sinter::nn {
namespace {

constexpr std::string_view kManifestTitle = "sinter checkpoint 1\n";
// Files in a manifest and values in a state, each of which takes some hundred bytes of memory.
constexpr size_t kMaxEntries = 1'000'000;

uint32_t crc32_of(std::string_view text) {
  return extend_crc32(0, std::as_bytes(std::span(text)));
}

std::string last_line(std::string_view body) {
  return fmt::format("{:08x} end\n", crc32_of(body));
}

template <class T>
bool parse_whole(std::string_view text, T& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size();
}

bool is_file_name(std::string_view name) {
  return name == kStateName ||
         (name.ends_with(kPartSuffix) && is_part_name(name.substr(0, name.size() - kPartSuffix.size())));
}

// JSON has no numbers for these doubles; each is an object with this one member instead.
constexpr std::string_view kNonFinite = "non-finite";

std::string format_value(const CheckpointValue& value) {
  if (const auto* number = std::get_if<double>(&value); number != nullptr && !std::isfinite(*number)) {
    const std::string_view name = std::isnan(*number) ? "nan" : *number > 0 ? "infinity" : "-infinity";
    return fmt::format("{{\"{}\": \"{}\"}}", kNonFinite, name);
  }
  return std::visit([](const auto& held) { return nlohmann::json(held).dump(); }, value);
}

/// Follows the events of the JSON parser: an object of plain values, in which a value may be a non-finite
/// double.
class ValueEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueEvents(const std::string& path, const uint64_t& consumed) : path_(path), consumed_(consumed) {}

  std::map<std::string, CheckpointValue> values;

  bool null() override { fail("expected a value but got null"); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    return value <= uint64_t{std::numeric_limits<int64_t>::max()} ? add(static_cast<int64_t>(value))
                                                                  : add(value);
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& text) override {
    if (depth_ == 1) {
      check_text(text);
      return add(std::move(text));
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "nan") return set(std::numeric_limits<double>::quiet_NaN());
    if (text == "infinity") return set(kInfinity);
    if (text == "-infinity") return set(-kInfinity);
    fail("expected nan, infinity or -infinity but got {}", quote_name(text));
  }
  bool binary(nlohmann::json::binary_t&) override { fail("unexpected binary data"); }

  bool start_object(size_t) override {
    if (++depth_ > 2) fail("the object is nested too deeply");
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 2) {
      if (text != kNonFinite || values.contains(key_)) fail("expected only the key {}", kNonFinite);
      return true;
    }
    check_text(text);
    if (values.contains(text)) fail("the key {} stands twice", quote_name(text));
    key_ = std::move(text);
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1 && !values.contains(key_)) fail("expected the key {}", kNonFinite);
    return true;
  }
  bool start_array(size_t) override { fail("expected a value but got an array"); }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    fail("the values are no valid JSON");
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error<IoError>("[checkpoint] {}: byte {}: {}", path_, consumed_,
                         fmt::vformat(format, fmt::make_format_args(args...)));
  }

  /// What format_values() would refuse: JSON can name a zero byte without having one.
  void check_text(const std::string& text) const {
    if (valid_utf8_prefix(text) != text.size()) fail("there is a zero byte in {}", quote_name(text));
  }

  bool add(CheckpointValue value) {
    if (depth_ != 1) fail("expected an object of values");
    return set(std::move(value));
  }
  bool set(CheckpointValue value) {
    if (values.size() == kMaxEntries) fail("there are more than {} values", kMaxEntries);
    values[key_] = std::move(value);
    return true;
  }

  const std::string& path_;
  const uint64_t& consumed_;
  int depth_ = 0;
  std::string key_;
};

}  // namespace

std::string format_manifest(const std::vector<ManifestEntry>& entries) {
  std::string text(kManifestTitle);
  for (const ManifestEntry& entry : entries) {
    text += fmt::format("{:08x} {} {}\n", entry.crc32, entry.size, entry.name);
  }
  return text + last_line(text);
}

std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& path) {
  constexpr size_t kLastLine = 13;  // eight digits, " end" and a newline
  if (!text.starts_with(kManifestTitle)) {
    throw_error<IoError>("[checkpoint] {}: byte 0: expected the line \"sinter checkpoint 1\"", path);
  }
  const size_t end = text.size() < kManifestTitle.size() + kLastLine ? text.size() : text.size() - kLastLine;
  if (text.substr(end) != last_line(text.substr(0, end))) {
    throw_error<IoError>("[checkpoint] {}: byte {}: the checksum of the manifest is wrong or missing", path,
                         end);
  }
  std::vector<ManifestEntry> entries;
  std::unordered_set<std::string_view> names;  // parts of `text`
  size_t place = kManifestTitle.size();
  while (place < end) {
    const size_t line_end = std::min(text.find('\n', place), end);
    const std::string_view line = text.substr(place, line_end - place);
    const size_t size_at = 9;
    const size_t name_at = line.size() < size_at ? 0 : line.find(' ', size_at) + 1;
    if (entries.size() == kMaxEntries) {
      throw_error<IoError>("[checkpoint] {}: byte {}: there are more than {} files", path, place,
                           kMaxEntries);
    }
    ManifestEntry entry;
    const bool good = name_at > size_at && parse_whole(line.substr(0, 8), entry.crc32, 16) &&
                      line[8] == ' ' &&
                      parse_whole(line.substr(size_at, name_at - 1 - size_at), entry.size, 10) &&
                      is_file_name(line.substr(name_at));
    if (good) entry.name = line.substr(name_at);
    if (!good || !names.insert(line.substr(name_at)).second) {
      throw_error<IoError>("[checkpoint] {}: byte {}: expected \"<crc32> <size> <file>\" but got {}", path,
                           place, quote_name(line));
    }
    entries.push_back(std::move(entry));
    place = line_end + 1;
  }
  return entries;
}

bool is_checkpoint_file(std::string_view name) {
  return name == kManifestName || is_file_name(name);
}

bool is_part_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), good);
}

std::string format_values(const std::map<std::string, CheckpointValue>& values) {
  const auto check_text = [](const std::string& text) {
    SINTER_CHECK(valid_utf8_prefix(text) == text.size(),
                 "[checkpoint] expected UTF-8 text without zero bytes in the values but got {}",
                 quote_name(text));
  };
  std::string text = "{";
  for (const auto& [key, value] : values) {
    check_text(key);
    if (const auto* held = std::get_if<std::string>(&value)) check_text(*held);
    text += fmt::format("{}\n  {}: {}", text.size() > 1 ? "," : "", nlohmann::json(key).dump(),
                        format_value(value));
  }
  return text + "\n}\n";
}

std::map<std::string, CheckpointValue> parse_values(std::string_view text, const std::string& path) {
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size() || !text.starts_with('{')) {
    throw_error<IoError>("[checkpoint] {}: byte {}: expected a JSON object in UTF-8", path,
                         valid != text.size() ? valid : 0);
  }
  uint64_t consumed = 0;
  ValueEvents events(path, consumed);
  read_json_events(text, events, consumed);
  return std::move(events.values);
}

}  // namespace sinter::nn
