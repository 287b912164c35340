#include "common/console.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <sinter/core/text/printable.h>

namespace sinter::examples {
namespace {

int first_failure = 0;
bool quiet = false;
std::string complaint_prefix;

void note_failure(bool good) {
  if (!good && first_failure == 0) first_failure = errno != 0 ? errno : EIO;
}

}  // namespace

void set_up_console() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
}

void be_quiet() {
  quiet = true;
}

bool is_quiet() {
  return quiet;
}

void set_complaint_prefix(const std::string& prefix) {
  complaint_prefix = prefix;
}

void say(std::string_view text) {
  if (quiet) return;
  errno = 0;
  const std::string shown = printable(text);
  note_failure(std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size());
}

void complain(std::string_view line) {
  const std::string text = complaint_prefix + printable(line) + '\n';
  std::fflush(stdout);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string output_failure() {
  errno = 0;
  note_failure(std::fflush(stdout) == 0);
  return first_failure == 0 ? "" : std::generic_category().message(first_failure);
}

}  // namespace sinter::examples
