#include "common/project_folder.h"

namespace sinter::test {

std::filesystem::path project_folder() {
  return SINTER_PROJECT_FOLDER;
}

}  // namespace sinter::test
