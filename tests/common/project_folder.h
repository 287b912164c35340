// Where the files lie that tests read.
#pragma once

#include <filesystem>

namespace sinter::test {

/// The folder of the project's sources. One file knows it, so that a compiler's cache finds all others again
/// from another checkout.
std::filesystem::path project_folder();

/// tests/data in it.
inline std::filesystem::path test_data() {
  return project_folder() / "tests/data";
}

}  // namespace sinter::test
