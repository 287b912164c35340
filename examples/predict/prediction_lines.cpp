#include "predict/prediction_lines.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <system_error>

#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>

namespace sinter::examples {

namespace {

/// The shortest number that reads back as the same float.
std::string number_text(float value) {
  return fmt::format("{}", value);
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string csv_header(int64_t top_k) {
  std::string line = "path,class,probability";
  for (int64_t i = 2; i <= top_k; ++i) line += fmt::format(",class_{},probability_{}", i, i);
  return line + ",error\n";
}

std::string csv_line(const std::string& path, const nn::Prediction& prediction, int64_t top_k) {
  std::string line = csv_field(nn::to_utf8(path));
  for (size_t i = 0; i < static_cast<size_t>(top_k); ++i) {
    if (i < prediction.top.size()) {
      const nn::ClassScore& score = prediction.top[i];
      line += fmt::format(",{},{}", csv_field(score.name), number_text(score.probability));
    } else {
      line += ",,";
    }
  }
  return line + ',' + csv_field(nn::to_utf8(prediction.error)) + '\n';
}

std::string json_line(const std::string& path, const nn::Prediction& prediction) {
  nlohmann::ordered_json line = {{"path", nn::to_utf8(path)}};
  if (!prediction.error.empty()) {
    line["error"] = nn::to_utf8(prediction.error);
    return line.dump() + '\n';
  }
  const auto number = [](float value) { return std::strtod(number_text(value).c_str(), nullptr); };
  line["class"] = nn::to_utf8(prediction.top[0].name);
  line["probability"] = number(prediction.top[0].probability);
  line["top"] = nlohmann::ordered_json::array();
  for (const nn::ClassScore& score : prediction.top) {
    line["top"].push_back({{"class", nn::to_utf8(score.name)},
                           {"index", score.index},
                           {"probability", number(score.probability)}});
  }
  return line.dump() + '\n';
}

LineOutput::LineOutput(const std::string& file) {
  if (!file.empty()) file_ = std::make_unique<AtomicOutputFile>(file);
}

void LineOutput::write(const std::string& line) {
  constexpr size_t kMostBytes = size_t{1} << 16;
  if (file_ == nullptr && ::isatty(STDOUT_FILENO) != 0) {
    buffer_ += printable(line);
    return flush();
  }
  buffer_ += line;
  if (file_ == nullptr || buffer_.size() >= kMostBytes) flush();
}

void LineOutput::flush() {
  if (file_ != nullptr) {
    file_->write(std::as_bytes(std::span(buffer_)));
  } else {
    errno = 0;
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size()) {
      throw IoError(
          fmt::format("standard output: {}", std::generic_category().message(errno != 0 ? errno : EIO)));
    }
  }
  buffer_.clear();
}

void LineOutput::finish() {
  flush();
  if (file_ != nullptr) file_->commit();
}

}  // namespace sinter::examples
