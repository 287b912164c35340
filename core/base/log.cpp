#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <sinter/core/base/log.h>
#include <sinter/core/text/printable.h>

namespace sinter::log {
namespace {

struct Sink {
  std::mutex mutex;
  std::function<void(Level, std::string_view)> function;
};

Sink& current_sink() {
  static Sink sink;
  return sink;
}

spdlog::logger& standard_error() {
  // A logger of our own, outside spdlog's registry: a program that uses spdlog itself is not disturbed.
  static spdlog::logger logger = [] {
    const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org
    const bool is_plain = no_color != nullptr && *no_color != '\0';
    spdlog::logger made("sinter", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
                                      is_plain ? spdlog::color_mode::never : spdlog::color_mode::automatic));
    made.set_level(spdlog::level::trace);
    made.set_pattern("%H:%M:%S.%e %n %^%l%$ %v");
    return made;
  }();
  return logger;
}

void emit(Level level, std::string_view text) {
  const std::string message = printable(text);
  {
    const std::lock_guard lock(current_sink().mutex);
    if (current_sink().function) return current_sink().function(level, message);
  }
  standard_error().log(static_cast<spdlog::level::level_enum>(level), "{}", message);
}

/// What SINTER_LOG says. A word that is none of the levels must not pass in silence: whoever set it waits for
/// messages.
Level level_from_environment() {
  const char* text = std::getenv("SINTER_LOG");
  if (text == nullptr) return Level::kWarning;
  constexpr std::string_view names[] = {"trace", "debug", "info", "warning", "error", "off"};
  for (int i = 0; i < 6; ++i) {
    if (names[i] == text) return static_cast<Level>(i);
  }
  emit(Level::kWarning,
       fmt::format("[log] SINTER_LOG must be trace, debug, info, warning, error or off but is '{}'", text));
  return Level::kWarning;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> level = level_from_environment();
  return level;
}

}  // namespace

void set_level(Level level) {
  current_level() = level;
}

Level level() {
  return current_level();
}

void set_sink(std::function<void(Level, std::string_view)> sink) {
  const std::lock_guard lock(current_sink().mutex);
  current_sink().function = std::move(sink);
}

void write(Level level, std::string_view message) {
  if (level < current_level() || level == Level::kOff) return;
  emit(level, message);
}

}  // namespace sinter::log
