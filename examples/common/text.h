// Text for people, as wide as what shows it.
#pragma once

#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::examples {

/// Columns of a terminal that can redraw its lines; 0 for files, pipes and dumb terminals.
int terminal_columns(std::FILE* stream);

/// Columns for text on a stream: those of its terminal, elsewhere COLUMNS, or 80; at least 40.
size_t text_columns(std::FILE* stream);

/// What many of it are called: "images" of "training image"; of the last word, by the rules of spelling.
std::string plural(std::string_view noun);

/// "1 epoch", "2 epochs", "0 epochs".
template <std::integral T>
std::string counted(T count, std::string_view noun) {
  return std::to_string(count) + ' ' + (count == 1 ? std::string(noun) : plural(noun));
}

/// A word as a shell takes it: in quotes where it has to be.
std::string quoted(const std::string& word);

/// Columns that a text takes: letters of UTF-8, each one column wide.
size_t width_of(std::string_view text);

/// The text in lines of at most `columns`, broken at blanks; what was broken off begins with `indent` blanks.
/// A longer word stays whole.
std::string wrap(std::string_view text, size_t columns, size_t indent);

/// `line`, and of `details`, the most important first, as many as fit behind it, each after two blanks.
std::string fit(std::string line, const std::vector<std::string>& details, size_t columns);

}  // namespace sinter::examples
