// Any bytes as the file of a trainer's --recipe: values of options that stand in the group Recipe, or an
// Error. What was read is taken by the command line or refused, too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include <sinter/core/base/error.h>

#include "recipe/recipe_file.h"
#include "run/command_line.h"

namespace {

using namespace sinter::examples;

/// A few options of every kind that trainers have; the last two are no part of a recipe.
struct CommandLine {
  CLI::App app;
  double lr = 0;
  uint64_t batch = 0;
  bool flip = false;
  std::string optimizer, recipe, output;
  std::vector<double> jitter;

  CommandLine() {
    app.add_option("--lr", lr)->check(number(0, 100))->group(kRecipeGroup);
    app.add_option("--batch", batch)->check(whole(1, kMany))->group(kRecipeGroup);
    app.add_flag("--flip,!--no-flip", flip)->group(kRecipeGroup);
    app.add_option("--optimizer", optimizer)->check(CLI::IsMember({"sgd", "adamw"}))->group(kRecipeGroup);
    app.add_option("--jitter", jitter)->delimiter(',')->check(number(0, 1))->group(kRecipeGroup);
    app.add_option("--recipe", recipe);
    app.add_option("-o", output)->check(file());
  }
};

/// A file in memory, and a name for it.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(memfd_create("recipe", 0)) {
    if (file_ < 0 || ::write(file_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  CommandLine line;
  try {
    const Recipe recipe = read_recipe_file(file.path(), line.app);
    std::vector<std::string> words;
    for (const auto& [option, value] : recipe) {
      if (line.app.get_option(option)->get_group() != kRecipeGroup) std::abort();
      words.push_back(option + "=" + value);
    }
    sinter::examples::apply(line.app, words);  // not std::apply
    if (recipe.contains("--lr") && !(line.lr >= 0 && line.lr <= 100)) std::abort();
    if (recipe.contains("--batch") && line.batch < 1) std::abort();
  } catch (const sinter::Error&) {
  }
  return 0;
}
