// The text of attributes.
#include <fmt/format.h>

#include <sinter/core/op/attributes.h>

namespace sinter::detail {

std::string number_text(int64_t value) {
  return fmt::format("{}", value);
}

std::string number_text(uint64_t value) {
  return fmt::format("{}", value);
}

std::string number_text(float value) {
  return fmt::format("{}", value);
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

std::string attribute_text(bool value) {
  return value ? "true" : "false";
}

std::string attribute_text(const std::string& value) {
  return "\"" + value + "\"";
}

std::string list_text(std::span<const int64_t> values) {
  std::string text = "[";
  for (int64_t value : values) {
    if (text.size() > 1) text += ", ";
    text += number_text(value);
  }
  return text + "]";
}

std::string braced(const std::string& text) {
  return "{" + text + "}";
}

void append_field(std::string& text, const char* name, const std::string& value) {
  if (!text.empty()) text += ", ";
  text += name;
  text += '=';
  text += value;
}

void fail_attributes_type(const char* asked, const char* held) {
  throw_error<InternalError>("[attributes] {} asked for, but {} is held", asked, held);
}

}  // namespace sinter::detail
