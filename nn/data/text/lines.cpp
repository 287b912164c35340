#include <algorithm>

#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (text = without_byte_order_mark(text); !text.empty();) lines.emplace_back(take_line(text));
  return lines;
}

}  // namespace sinter::nn::data
