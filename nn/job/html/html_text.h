// Pieces of text for HTML that is well-formed XML too. What others wrote, such as names, passes through
// escaped().
#pragma once

#include <string>
#include <string_view>

namespace sinter::nn::html {

/// `text` as content of an element or an attribute in quotes. Control characters and what is no UTF-8 come
/// out as printable() writes them.
std::string escaped(std::string_view text);

/// "conv2d", at most `width` characters: of a longer text its beginning, or its end, with "…".
std::string beginning(std::string_view text, size_t width);
std::string ending(std::string_view text, size_t width);

/// "12.3 MB", "45.6 kB", of 10^6 and 10^3 bytes.
std::string size_text(size_t bytes);
/// Three digits: 0.0241, 17.1, 4096.
std::string rounded(double number);

/// "1 call", "12 calls".
std::string counted(size_t count, std::string_view noun);

}  // namespace sinter::nn::html
