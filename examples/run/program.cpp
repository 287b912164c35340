#include "run/program.h"

#include <exception>
#include <new>
#include <system_error>

#include <sinter/core/runtime/backend.h>

#include "common/console.h"

namespace sinter::examples {

Device choose_device(const std::string& name) {
  if (name != "auto") return Device::parse(name);
  return is_available(Device::cuda()) ? Device::cuda() : Device::cpu();
}

void Ending::attempt(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Ending::fail(const std::string& message) {
  complain("error: {}", message);
  failed_ = true;
}

int run_program(const std::function<int()>& body) {
  set_up_console();
  int code = 1;
  try {
    code = body();
  } catch (const std::bad_alloc&) {
    complain("error: out of memory; a smaller --batch needs less");
  } catch (const std::system_error& error) {
    complain("error: the system refuses: {}; fewer --threads and --workers may do", error.what());
  } catch (const std::exception& error) {
    complain("error: {}", error.what());
  }
  if (const std::string failure = output_failure(); !failure.empty()) {
    complain("error: standard output: {}", failure);
    if (code == 0) code = 1;
  }
  return code;
}

}  // namespace sinter::examples
