// What an option's value may be. Files that fill tables of options see this alone: each file that includes
// CLI11 takes the compiler four seconds.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class Validator;
}

namespace sinter::examples {

struct Check {
  std::function<std::string(const std::string& text)> mistake;  ///< in words; empty for what is let pass
  std::string value;                                            ///< what --help calls the value

  operator CLI::Validator() const;
};

}  // namespace sinter::examples
