// The library's log. It is silent unless something is worth a warning; programs choose level and place.
#pragma once

#include <functional>
#include <string_view>

#include <fmt/core.h>

namespace sinter::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// Messages below this level are dropped before they are formatted. Starts from the environment variable
/// SINTER_LOG (trace, debug, info, warning, error or off), else kWarning.
void set_level(Level level);
Level level();

/// Sends messages to `sink` in place of standard error; an empty function restores it. Thread-safe.
void set_sink(std::function<void(Level, std::string_view)> sink);

/// Writes one finished line, with what is not printable() escaped.
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kDebug) write(Level::kDebug, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kInfo) write(Level::kInfo, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (level() <= Level::kWarning)
    write(Level::kWarning, fmt::vformat(format, fmt::make_format_args(args...)));
}

}  // namespace sinter::log
