#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include <sinter/core/text/printable.h>

namespace sinter {
namespace {

/// Bytes of the UTF-8 character at `at`, which may be a control character; 0 if none starts there.
size_t character_bytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4) return 0;
  // The second byte's range excludes overlong forms, surrogates and code points beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (length > 1 && (byte(at + 1) < low || byte(at + 1) > high)) return 0;
  for (size_t k = 2; k < length; ++k) {
    if ((byte(at + k) & 0xC0) != 0x80) return 0;
  }
  return length;
}

bool is_control(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character.front());
  const bool is_c1 = lead == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
  return lead < 0x20 || lead == 0x7F || is_c1;
}

/// Copies `text`; each control character goes through `escape` first, which gives what stands for it or
/// nothing.
template <class Escape>
std::string copy_escaped(std::string_view text, Escape escape) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_bytes(text, at);
    const std::string_view character = text.substr(at, length == 0 ? 1 : length);
    at += character.size();
    if (const char* const word = escape(character)) {
      out += word;
    } else if (length > 0 && !is_control(character)) {
      out += character;
    } else {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return out;
}

std::optional<char> byte_of(std::string_view digits) {
  int value = 0;
  for (const char c : digits) {
    const bool is_letter = c >= 'a' && c <= 'f';
    if (!is_letter && (c < '0' || c > '9')) return std::nullopt;
    value = value * 16 + (is_letter ? c - 'a' + 10 : c - '0');
  }
  return digits.size() == 2 ? std::optional(static_cast<char>(value)) : std::nullopt;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = text[at] == '\0' ? 0 : character_bytes(text, at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

std::string printable(std::string_view text) {
  return copy_escaped(text, [](std::string_view character) -> const char* {
    return character == "\n" ? "\n" : character == "\t" ? "\t" : nullptr;
  });
}

std::string quote_name(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string text = "\"";
  for (const char c : name.substr(0, kLongest)) {
    const bool plain = c >= ' ' && c <= '~';
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return text + (name.size() > kLongest ? "...\"" : "\"");
}

std::string escape_name(std::string_view name) {
  return copy_escaped(name, [](std::string_view character) -> const char* {
    switch (character.front()) {
      case '\n':
        return "\\n";
      case '\t':
        return "\\t";
      case '\r':
        return "\\r";
      case '\\':
        return "\\\\";
      default:
        return nullptr;
    }
  });
}

std::string unescape_name(std::string_view text) {
  constexpr std::string_view kLetters = "ntr\\", kMeant = "\n\t\r\\";
  std::string name;
  for (size_t at = 0; at < text.size(); ++at) {
    name += text[at];
    if (text[at] != '\\' || at + 1 == text.size()) continue;
    if (const size_t letter = kLetters.find(text[at + 1]); letter != std::string_view::npos) {
      name.back() = kMeant[letter];
      ++at;
    } else if (const auto byte = byte_of(text.substr(at + 2, 2)); text[at + 1] == 'x' && byte) {
      name.back() = *byte;
      at += 3;
    }
  }
  return name;
}

}  // namespace sinter
