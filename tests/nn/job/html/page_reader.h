// Reads a report's page back: checks that it is well-formed, and gives its elements.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::testing {

struct PageElement {
  std::string tag;
  std::map<std::string, std::string> attributes;  // as written
  std::string text;                               // of it and of all within, as written
  std::vector<PageElement> children;

  bool has_class(std::string_view name) const;
  /// All elements within of this tag, and of this class unless it is empty.
  std::vector<const PageElement*> all(std::string_view tag_, std::string_view class_ = {}) const;
};

/// The element that holds `html`. Throws std::runtime_error, which says where, unless elements are closed in
/// order, attributes are in quotes and come once, and every "&" begins one of XML's entities.
PageElement read_page(std::string_view text);

}  // namespace sinter::nn::testing
