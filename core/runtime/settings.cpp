#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/settings.h>

namespace sinter::settings {
namespace {

/// The value of an environment variable that is 0 or 1; throws InvalidArgument for any other text.
bool flag_from_environment(const char* name, bool otherwise) {
  const char* value = std::getenv(name);
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return otherwise;
  SINTER_CHECK(text == "0" || text == "1", "[settings] {}: expected 0 or 1 but got '{}'", name, text);
  return text == "1";
}

constexpr size_t kPlanLimit = 1024;

/// The value of an environment variable that is a positive number; throws InvalidArgument for any other text.
size_t count_from_environment(const char* name, size_t otherwise) {
  const char* value = std::getenv(name);
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return otherwise;
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  SINTER_CHECK(error == std::errc() && end == text.data() + text.size() && count > 0,
               "[settings] {}: expected a positive number but got '{}'", name, text);
  return count;
}

// Read at the first use and not when the library is loaded, so that a wrong value can be reported.
std::atomic<bool>& tf32_flag() {
  static std::atomic<bool> flag = flag_from_environment("SINTER_ALLOW_TF32", false);
  return flag;
}

std::atomic<bool>& deterministic_flag() {
  static std::atomic<bool> flag = flag_from_environment("SINTER_DETERMINISTIC", false);
  return flag;
}

std::atomic<bool>& autotune_flag() {
  static std::atomic<bool> flag = flag_from_environment("SINTER_AUTOTUNE", true);
  return flag;
}

std::atomic<size_t>& plan_count() {
  static std::atomic<size_t> count = count_from_environment("SINTER_PLAN_LIMIT", kPlanLimit);
  return count;
}

}  // namespace

bool allow_tf32() {
  return tf32_flag();
}
void set_allow_tf32(bool value) {
  tf32_flag() = value;
}

bool deterministic() {
  return deterministic_flag();
}
void set_deterministic(bool value) {
  deterministic_flag() = value;
}

bool autotune() {
  return autotune_flag();
}
void set_autotune(bool value) {
  autotune_flag() = value;
}

size_t plan_limit() {
  return plan_count();
}
void set_plan_limit(size_t value) {
  SINTER_CHECK(value > 0, "[settings] expected room for one plan or more but got {}", value);
  plan_count() = value;
}

}  // namespace sinter::settings
