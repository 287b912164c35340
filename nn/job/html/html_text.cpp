#include <cmath>

#include <fmt/format.h>

#include <sinter/core/text/printable.h>
#include <sinter/nn/job/html/html_text.h>

namespace sinter::nn::html {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += is_continuation(c) ? 0U : 1U;
  return count;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string beginning(std::string_view text, size_t width) {
  if (characters(text) <= width) return std::string(text);
  size_t end = 0;
  for (size_t count = 0; end < text.size(); ++end) {
    if (!is_continuation(text[end]) && ++count == width) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string ending(std::string_view text, size_t width) {
  if (characters(text) <= width) return std::string(text);
  size_t begin = text.size();
  for (size_t count = 0; begin > 0;) {
    if (!is_continuation(text[--begin]) && ++count + 1 == width) break;
  }
  return "…" + std::string(text.substr(begin));
}

std::string size_text(size_t bytes) {
  const auto number = static_cast<double>(bytes);
  return number < 1e6 ? fmt::format("{:.1f} kB", number / 1e3) : fmt::format("{:.1f} MB", number / 1e6);
}

std::string rounded(double number) {
  return std::abs(number) < 1000 ? fmt::format("{:.3g}", number) : fmt::format("{:.0f}", number);
}

std::string counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace sinter::nn::html
