#include "run/program.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <thread>

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

namespace {

/// An exception that leaves a thread of a library ends the process: one of Gloo's, say, where a rank goes
/// away while it connects. The program's own thread mostly knows better why, so it has three seconds to say
/// so.
void tell_what_ends_threads_of_libraries() {
  static const std::thread::id own = std::this_thread::get_id();
  std::set_terminate([] {
    if (std::this_thread::get_id() == own) std::abort();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    try {
      if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      complain("error: a thread of a library has failed: {}", error.what());
    } catch (...) {
      complain("error: a thread of a library has failed");
    }
    std::_Exit(1);
  });
}

}  // namespace

int run_program(const std::function<int()>& body, const Advice& advice) {
  set_up_console();
  tell_what_ends_threads_of_libraries();
  int code = 1;
  try {
    code = body();
  } catch (const std::bad_alloc&) {
    complain("error: out of memory{}", advice.memory);
  } catch (const std::system_error& error) {
    if (advice.system == nullptr) {
      complain("error: {}", error.what());
    } else {
      complain("error: the system refuses: {}{}", error.what(), advice.system);
    }
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
