// Predictions as lines of CSV or JSON, and where these go.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/predict/classifier.h>

namespace sinter::examples {

/// A value of a CSV line: in quotes, as RFC 4180 has it, if commas, quotes or line ends are in it.
std::string csv_field(std::string_view text);

/// "path,class,probability", "class_2,probability_2" and so on up to `top_k`, and "error"; with its line end.
std::string csv_header(int64_t top_k);
/// The line of a picture. Bytes of the path that are no UTF-8 stand as \xff.
std::string csv_line(const std::string& path, const nn::Prediction& prediction, int64_t top_k);
/// {"path": ..., "class": ..., "probability": ..., "top": [{"class", "index", "probability"}, ...]}, or
/// {"path": ..., "error": ...}; with its line end.
std::string json_line(const std::string& path, const nn::Prediction& prediction);

/// A file that is there when finish() has put it in its place, or standard output. Throws IoError where
/// something cannot be written.
class LineOutput {
 public:
  /// `file`: empty for standard output.
  explicit LineOutput(const std::string& file);
  void write(const std::string& line);
  void finish();

 private:
  void flush();

  std::unique_ptr<AtomicOutputFile> file_;
  std::string buffer_;
};

}  // namespace sinter::examples
