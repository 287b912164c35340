// The frame of a trainer: its device, what it does at the end, and how errors leave it.
#pragma once

#include <functional>
#include <string>

#include <sinter/core/base/device.h>

namespace sinter::examples {

/// "auto" is a GPU if there is one.
Device choose_device(const std::string& name);

/// Tries everything that is left to do, so that what fails does not take the rest with it.
class Ending {
 public:
  void attempt(const std::function<void()>& action);
  void fail(const std::string& message);
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

/// What a program's user can do about errors of the system: ends of messages.
struct Advice {
  const char* memory = "; a smaller --batch needs less";
  const char* system = "; fewer --threads and --workers may do";  ///< null: the error tells enough
};

/// Runs `body`, which gives the exit code, and tells its errors: 1 for these, and for output that did not
/// arrive.
int run_program(const std::function<int()>& body, const Advice& advice = {});

}  // namespace sinter::examples
