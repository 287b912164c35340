// What a program says on its standard output and standard error, without ever failing for it. All of it is
// printable(): names of files, and messages with them, cannot drive a terminal.
#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace sinter::examples {

/// Makes standard output a line at a time, also into files and pipes, so that it keeps its order with
/// standard error and a log can be followed. Call it first.
void set_up_console();

/// Writes to standard output. A failure (a full device, a closed pipe) ends nothing: output_failure() tells
/// it.
void say(std::string_view text);
/// From now on say() says nothing: of several processes one speaks.
void be_quiet();
bool is_quiet();
/// What complain() puts before every line: which of several processes it is.
void set_complaint_prefix(const std::string& prefix);
/// Writes a line to standard error.
void complain(std::string_view line);

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(std::string_view(fmt::vformat(format, fmt::make_format_args(args...))));
}
template <class... Args>
void complain(fmt::format_string<Args...> format, Args&&... args) {
  complain(std::string_view(fmt::vformat(format, fmt::make_format_args(args...))));
}

/// Why some of the output so far did not arrive, in the system's words; empty if all of it did.
std::string output_failure();

}  // namespace sinter::examples
