#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/log/scalars.h>

namespace sinter::nn {
namespace {

constexpr size_t kLongestTag = 1000;
constexpr size_t kLongestLine = 1 << 20;  // so that no file makes its reader take much memory
constexpr size_t kBlock = 1 << 16;

/// The text for a number that JSON has not; null for the others.
const char* text_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nullptr;
}

std::optional<double> value_of(const nlohmann::ordered_json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return kInfinity;
  if (json == "-Infinity") return -kInfinity;
  return std::nullopt;
}

std::optional<int64_t> step_of(const nlohmann::ordered_json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;  // which integers >= 0 are
  const auto step = json.get<uint64_t>();
  if (step > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(step);
}

/// Hands every whole line of a file, with its line feed, to `use`, beside "<path>: line <number>".
void for_each_line(const std::filesystem::path& path, FileSystem& files,
                   const std::function<void(std::string_view line, const std::string& place)>& use) {
  InputFile file(path, files);
  std::string text;
  int64_t number = 1;
  for (uint64_t offset = 0; offset < file.size();) {
    const size_t old_size = text.size();
    const auto count = static_cast<size_t>(std::min<uint64_t>(kBlock, file.size() - offset));
    text.resize(old_size + count);
    file.read(offset, std::as_writable_bytes(std::span(text)).subspan(old_size));
    offset += count;
    size_t begin = 0;
    for (size_t end = text.find('\n', old_size); end != std::string::npos; end = text.find('\n', begin)) {
      use(std::string_view(text).substr(begin, end + 1 - begin),
          fmt::format("{}: line {}", path.string(), number++));
      begin = end + 1;
    }
    text.erase(0, begin);
    if (text.size() > kLongestLine) {
      throw_error<IoError>("[scalars] {}: line {}: expected at most {} bytes but got more", path.string(),
                           number, kLongestLine);
    }
  }
}

std::string_view without_feed(std::string_view line) {
  return line.substr(0, line.size() - 1);
}

}  // namespace

void check_record(const ScalarRecord& record) {
  SINTER_CHECK(record.step >= 0, "[run_log] expected a step >= 0 but got {}", record.step);
  SINTER_CHECK(!record.values.empty(), "[run_log] expected values to log but got none");
  std::set<std::string_view> seen;
  for (const auto& [tag, value] : record.values) {
    const bool good =
        !tag.empty() && tag.size() <= kLongestTag && valid_utf8_prefix(tag) == tag.size() &&
        std::none_of(tag.begin(), tag.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    SINTER_CHECK(good, "[run_log] expected a tag of 1 to {} bytes of UTF-8 but got {}", kLongestTag,
                 quote_name(tag));
    SINTER_CHECK(tag != "step" && tag != "time", "[run_log] the tag '{}' is taken: every record has it", tag);
    SINTER_CHECK(seen.insert(tag).second, "[run_log] the tag {} came twice in one record", quote_name(tag));
  }
}

std::string to_json_line(const ScalarRecord& record) {
  nlohmann::ordered_json json = {{"step", record.step}, {"time", record.time}};
  for (const auto& [tag, value] : record.values) {
    if (const char* text = text_of(value)) {
      json[tag] = text;
    } else {
      json[tag] = value;
    }
  }
  return json.dump() + '\n';
}

ScalarRecord parse_json_line(std::string_view line, const std::string& place) {
  const auto refuse = [&](const std::string& expected) {
    throw_error<IoError>("[scalars] {}: expected {}", place, expected);
  };
  nlohmann::ordered_json json;
  try {
    json = parse_json(line);
  } catch (const IoError&) {
    refuse("a JSON object");
  }
  if (!json.is_object()) refuse("a JSON object");
  const std::optional<int64_t> step = json.contains("step") ? step_of(json["step"]) : std::nullopt;
  if (!step) refuse("a \"step\" that is a whole number >= 0");
  const std::optional<double> time = json.contains("time") ? value_of(json["time"]) : std::nullopt;
  if (!time) refuse("a \"time\" that is a number");
  ScalarRecord record{.step = *step, .time = *time, .values = {}};
  for (const auto& [tag, held] : json.items()) {
    if (tag == "step" || tag == "time") continue;
    const std::optional<double> value = value_of(held);
    if (!value) refuse(fmt::format("a number as the value of {}", quote_name(tag)));
    record.values.emplace_back(tag, *value);
  }
  return record;
}

std::vector<ScalarRecord> read_scalars(const std::filesystem::path& path, FileSystem& files) {
  std::vector<ScalarRecord> records;
  for_each_line(path, files, [&](std::string_view line, const std::string& place) {
    records.push_back(parse_json_line(without_feed(line), place));
  });
  return records;
}

void cut_scalars(const std::filesystem::path& path, int64_t last_step, FileSystem& files) {
  uint64_t size = 0, kept = 0;
  const auto each_kept = [&](const std::function<void(std::string_view)>& use) {
    for_each_line(path, files, [&](std::string_view line, const std::string& place) {
      if (parse_json_line(without_feed(line), place).step <= last_step) use(line);
    });
  };
  each_kept([&](std::string_view line) { kept += line.size(); });
  size = InputFile(path, files).size();
  if (kept == size) return;
  AtomicOutputFile output(path, files);
  std::string text;  // lines are short, and each write is a call to the system
  const auto write = [&] {
    output.write(std::as_bytes(std::span(text)));
    text.clear();
  };
  each_kept([&](std::string_view line) {
    text += line;
    if (text.size() >= kBlock) write();
  });
  write();
  output.commit();
}

}  // namespace sinter::nn
