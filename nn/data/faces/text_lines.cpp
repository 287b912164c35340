#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/data/faces/text_lines.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kUsualBytes = size_t{1} << 16, kMostBytes = size_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r";

TextLines::Source source_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) && std::filesystem::exists(path, ignored))
    throw_error<IoError>("[faces] {}: expected a regular file", path.string());  // a pipe would be waited for
  return [file = std::make_shared<InputFile>(path), at = uint64_t{0}](std::span<char> bytes) mutable {
    const auto count = static_cast<size_t>(std::min<uint64_t>(bytes.size(), file->size() - at));
    file->read(at, std::as_writable_bytes(bytes.first(count)));
    at += count;
    return count;
  };
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

TextLines::TextLines(std::string name, Source source)
    : name_(std::move(name)), source_(std::move(source)), buffer_(kUsualBytes) {}

TextLines::TextLines(const std::filesystem::path& path) : TextLines(path.string(), source_of(path)) {}

std::optional<std::string_view> TextLines::next() {
  for (;;) {
    const char* const from = buffer_.data() + begin_;
    const auto* const feed = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    if (feed == nullptr && !ended_) {
      std::memmove(buffer_.data(), from, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
      if (end_ == kMostBytes)
        throw_error<IoError>("[faces] {}, line {}: longer than {} bytes", name_, number_ + 1, kMostBytes);
      if (end_ == buffer_.size()) buffer_.resize(2 * end_);
      const size_t count = source_(std::span(buffer_).subspan(end_));
      end_ += count;
      ended_ = count == 0;
      continue;
    }
    if (begin_ == end_) return std::nullopt;
    const size_t length = feed != nullptr ? static_cast<size_t>(feed - from) : end_ - begin_;
    begin_ += length + (feed != nullptr ? 1 : 0);
    ++number_;
    const std::string_view whole(from, length);
    line_ = trimmed(number_ == 1 ? without_byte_order_mark(whole) : whole);
    if (line_.find('\0') != std::string_view::npos) fail("text");
    if (!line_.empty()) return line_;
  }
}

void TextLines::fail(std::string_view expected) const {
  constexpr size_t kShown = 200;
  throw_error<IoError>("[faces] {}, line {}: expected {} but got '{}{}'", name_, number_, expected,
                       printable(line_.substr(0, kShown)), line_.size() > kShown ? "..." : "");
}

std::vector<std::string_view> split_words(std::string_view line, size_t most) {
  std::vector<std::string_view> words;
  for (line = trimmed(line); !line.empty() && words.size() + 1 < most;) {
    const size_t end = std::min(line.find_first_of(kBlanks), line.size());
    words.push_back(line.substr(0, end));
    line = trimmed(line.substr(end));
  }
  if (!line.empty()) words.push_back(line);
  return words;
}

std::vector<std::string_view> split_fields(std::string_view line, size_t most) {
  std::vector<std::string_view> fields;
  while (fields.size() + 1 < most) {
    const size_t end = line.find(',');
    fields.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
  fields.push_back(trimmed(line));
  return fields;
}

std::optional<int64_t> to_whole(std::string_view text) {
  return parse<int64_t>(text);
}

std::optional<double> to_number(std::string_view text) {
  const std::optional<double> value = parse<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace sinter::nn::data
