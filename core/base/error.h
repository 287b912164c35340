// Errors: everything that can go wrong in Sinter is thrown as one of these types. Nothing in the library
// prints, aborts or exits; programs decide.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace sinter {

/// The root of all errors that Sinter throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that cannot be right: a shape, dtype, device, option or name.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A device or a memory limit has no room left; the library stays usable.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device, its driver or a vendor library failed or is absent.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, damaged or cannot be written.
class IoError : public Error {
 public:
  using Error::Error;
};

/// The request is meaningful, but this build or device cannot do it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// A broken promise inside Sinter itself: always a bug, please report it.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// Throws `E` with a formatted message. Messages start with a tag in brackets that names the part:
/// `throw_error<IoError>("[idx] {}: expected ...", path)`.
template <class E, class... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::vformat(format, fmt::make_format_args(args...)));
}

namespace detail {

/// Base of the formatters of Sinter's types, which take no format options. Needs nothing of {fmt} but its
/// core.
struct TextFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }

 protected:
  template <class Context>
  static auto write(std::string_view text, Context& context) {
    return std::copy(text.begin(), text.end(), context.out());
  }
};

}  // namespace detail

}  // namespace sinter

/// Throws sinter::InvalidArgument unless `condition` holds. The message says what was expected and what came.
#define SINTER_CHECK(condition, ...)                                 \
  do {                                                               \
    if (!(condition)) [[unlikely]] {                                 \
      ::sinter::throw_error<::sinter::InvalidArgument>(__VA_ARGS__); \
    }                                                                \
  } while (false)

/// Throws sinter::InternalError unless `condition` holds: for promises that Sinter makes to itself.
#define SINTER_ASSERT(condition, ...)                              \
  do {                                                             \
    if (!(condition)) [[unlikely]] {                               \
      ::sinter::throw_error<::sinter::InternalError>(__VA_ARGS__); \
    }                                                              \
  } while (false)
