#include "nn/job/html/page_reader.h"

#include <cctype>
#include <stdexcept>

#include <fmt/format.h>

namespace sinter::nn::testing {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  PageElement read() {
    take("<!DOCTYPE html>");
    PageElement top{"page", {}, {}, {}};
    content(top);
    if (at_ != text_.size()) fail("something is behind the page");
    return top;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{} at {}: {}", what, at_, text_.substr(at_, 60)));
  }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  void take(std::string_view text) {
    if (!next_is(text)) fail(fmt::format("expected {}", text));
    at_ += text.size();
  }
  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    if (at_ == begin) fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  void check_characters(std::string_view text) const {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c == '<' || (c < 32 && c != '\n' && c != '\t') || c == 127) fail("a bare character");
      if (c != '&') continue;
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
        known = known || text.substr(i).starts_with(entity);
      if (!known) fail("a bare &");
    }
  }

  /// Children and text up to the end of the element, whose closing tag stays.
  void content(PageElement& element) {
    while (at_ < text_.size() && !next_is("</")) {
      if (next_is("<")) {
        element.children.push_back(read_element());
        element.text += element.children.back().text;
        continue;
      }
      const size_t end = std::min(text_.find('<', at_), text_.size());
      check_characters(text_.substr(at_, end - at_));
      element.text += text_.substr(at_, end - at_);
      at_ = end;
    }
  }

  PageElement read_element() {
    take("<");
    PageElement element{name(), {}, {}, {}};
    while (next_is(" ")) {
      take(" ");
      const std::string attribute = name();
      take("=\"");
      const size_t end = text_.find('"', at_);
      if (end == std::string_view::npos) fail("an attribute that does not end");
      check_characters(text_.substr(at_, end - at_));
      if (!element.attributes.emplace(attribute, text_.substr(at_, end - at_)).second)
        fail("an attribute twice");
      at_ = end + 1;
    }
    if (next_is("/>")) {
      take("/>");
      return element;
    }
    take(">");
    content(element);
    take("</" + element.tag + ">");
    return element;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void collect(const PageElement& element, std::string_view tag, std::string_view name,
             std::vector<const PageElement*>& found) {
  for (const PageElement& child : element.children) {
    if (child.tag == tag && (name.empty() || child.has_class(name))) found.push_back(&child);
    collect(child, tag, name, found);
  }
}

}  // namespace

bool PageElement::has_class(std::string_view name) const {
  const auto found = attributes.find("class");
  if (found == attributes.end()) return false;
  return (" " + found->second + " ").find(" " + std::string(name) + " ") != std::string::npos;
}

std::vector<const PageElement*> PageElement::all(std::string_view tag_, std::string_view class_) const {
  std::vector<const PageElement*> found;
  collect(*this, tag_, class_, found);
  return found;
}

PageElement read_page(std::string_view text) {
  return Reader(text).read();
}

}  // namespace sinter::nn::testing
