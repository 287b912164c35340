#include "common/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

namespace sinter::examples {
namespace {

constexpr size_t kUsual = 80, kFewest = 40;

/// 0 if the stream is no terminal or does not know.
size_t columns_by_system(std::FILE* stream) {
  winsize size{};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

int terminal_columns(std::FILE* stream) {
  const char* terminal = std::getenv("TERM");
  if (isatty(fileno(stream)) == 0 || terminal == nullptr || std::strcmp(terminal, "dumb") == 0) return 0;
  const size_t columns = columns_by_system(stream);
  return static_cast<int>(columns > 0 ? columns : kUsual);
}

size_t text_columns(std::FILE* stream) {
  size_t columns = columns_by_system(stream);
  const char* asked = std::getenv("COLUMNS");
  if (columns == 0 && asked != nullptr) std::from_chars(asked, asked + std::strlen(asked), columns);
  return std::max(columns > 0 ? columns : kUsual, kFewest);
}

std::string plural(std::string_view noun) {
  const auto ends = [&](const char* end) { return noun.ends_with(end); };
  if (ends("s") || ends("x") || ends("tch") || ends("sh")) return std::string(noun) + "es";
  const bool is_y = ends("y") && !ends("ay") && !ends("ey") && !ends("oy");
  return is_y ? std::string(noun.substr(0, noun.size() - 1)) + "ies" : std::string(noun) + "s";
}

std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("/._-+=:,@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

size_t width_of(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins));
}

std::string wrap(std::string_view text, size_t columns, size_t indent) {
  std::string wrapped;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    for (size_t room = columns; width_of(line) > room; room = columns - indent) {
      // The last blank within the room, but none of those that the line begins with; else the next one.
      const size_t begin = std::min(line.find_first_not_of(' '), line.size());
      size_t at = std::string_view::npos;
      for (size_t blank = line.find(' ', begin); blank < line.size(); blank = line.find(' ', blank + 1)) {
        if (at != std::string_view::npos && width_of(line.substr(0, blank)) > room) break;
        at = blank;
      }
      if (at == std::string_view::npos) break;
      const size_t rest = line.find_first_not_of(' ', at);
      if (rest == std::string_view::npos) break;
      const size_t last = line.find_last_not_of(' ', at);
      wrapped += line.substr(0, last + 1);
      wrapped += '\n' + std::string(indent, ' ');
      line.remove_prefix(rest);
    }
    wrapped += line;
    if (end < text.size()) wrapped += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrapped;
}

std::string fit(std::string line, const std::vector<std::string>& details, size_t columns) {
  for (const std::string& detail : details) {
    if (width_of(line) + 2 + width_of(detail) > columns) break;
    line += "  " + detail;
  }
  return line;
}

}  // namespace sinter::examples
