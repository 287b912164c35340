// Lines of a text file that is read piece by piece, and the numbers in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::data {

/// Lines that end in "\n" or "\r\n"; the last one need not. Empty ones are passed over, as is a byte order
/// mark. Holds a megabyte at most, however long the file is.
class TextLines {
 public:
  /// Fills the span from the front; the number of bytes, 0 at the end.
  using Source = std::function<size_t(std::span<char>)>;

  /// `name` is the file's, for messages.
  TextLines(std::string name, Source source);
  /// Throws IoError, with the system's reason, if the file cannot be read.
  explicit TextLines(const std::filesystem::path& path);

  /// The next line, which holds until the next call; none at the end. Throws IoError for a line of more than
  /// a megabyte, or one that holds a zero byte, as no text does.
  std::optional<std::string_view> next();
  /// Throws IoError "[faces] <name>, line <number>: expected <what> but got '<line>'", of the line that came
  /// last.
  [[noreturn]] void fail(std::string_view expected) const;
  const std::string& name() const { return name_; }
  /// Of the line that came last, from 1.
  int64_t number() const { return number_; }

 private:
  std::string name_;
  Source source_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  int64_t number_ = 0;
  std::string_view line_;
};

/// The words of a line between blanks, or the fields between commas, without the blanks around them; at most
/// `most`, the last of which then has all the rest.
std::vector<std::string_view> split_words(std::string_view line, size_t most);
std::vector<std::string_view> split_fields(std::string_view line, size_t most);

/// All of a text as a whole number, or a finite one; else none.
std::optional<int64_t> to_whole(std::string_view text);
std::optional<double> to_number(std::string_view text);

}  // namespace sinter::nn::data
