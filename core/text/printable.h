// Text that others made, such as names of files, in messages, lists and on terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sinter {

/// The offset of the first byte that starts no valid UTF-8 character or is zero; text.size() if there is
/// none.
size_t valid_utf8_prefix(std::string_view text);

/// `text` without what a terminal would act on, or could not show: control characters (those of Unicode's
/// U+0080 to U+009F too) but line feeds and tabs, and bytes that are no UTF-8, come out as a backslash, x and
/// two hexadecimal digits. For messages: the log and the example programs pass through it whatever they
/// print.
std::string printable(std::string_view text);

/// A name for a message: in quotes, without control or non-ASCII characters, and of bounded length.
std::string quote_name(std::string_view name);

/// A name as one line of UTF-8 from which unescape_name() gets it back byte for byte: as in C, a backslash
/// and n, t, r, another backslash, or x and two digits stand for control characters, backslashes and bytes
/// that are no UTF-8. Most names stay as they are.
std::string escape_name(std::string_view name);

/// The inverse of escape_name(). A backslash that begins none of its sequences stands for itself.
std::string unescape_name(std::string_view text);

}  // namespace sinter
