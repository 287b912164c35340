// What is thrown where another process of a job fails.
#pragma once

#include <sinter/core/base/error.h>

namespace sinter {

/// Another process of the job is lost or does not answer, or the way to it is broken.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

}  // namespace sinter
