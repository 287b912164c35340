// The message of an error that a test expects.
#pragma once

#include <exception>
#include <string>
#include <typeinfo>

#include <sinter/core/base/error.h>

namespace sinter::test {

/// The message of the error of exactly type E that `action` throws; says what happened if it does not.
template <class E = InvalidArgument, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return typeid(error) == typeid(E) ? error.what() : std::string("a derived error: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace sinter::test
