// Lines of a text that people wrote: names of classes, paths of pictures, pairs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::data {

/// `text` without UTF-8's byte order mark, which some editors put before it.
std::string_view without_byte_order_mark(std::string_view text);

/// Takes the first line off the text; gives it without its end, "\n" or "\r\n", which the last need not have.
std::string_view take_line(std::string_view& text);

/// The lines of a text without its byte order mark, as take_line() gives them.
std::vector<std::string> split_lines(std::string_view text);

}  // namespace sinter::nn::data
