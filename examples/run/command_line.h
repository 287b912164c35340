// What the command lines of trainers share: checks of values, and words for mistakes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "run/check.h"

namespace CLI {
class App;
}

namespace sinter::examples {

/// A finite number from `low` to `high`, in decimal digits; CLI11's own Range lets NaN pass.
Check number(double low, double high);
/// A whole number from `low` to `high`, in decimal digits: 010 is ten, and 0x10 none.
Check whole(uint64_t low, uint64_t high);
/// One of these words.
Check one_of(const std::vector<std::string>& names);
/// A device's name, or auto.
Check device_name();
/// The name of a file, of a folder, or of either; it may not be empty.
Check file();
Check folder();
Check path();

constexpr uint64_t kMany = 1'000'000'000'000'000;  ///< steps and the like

/// Reads the command line. For --help, --version and mistakes it prints what there is to say, an option that
/// was perhaps meant included, and gives the exit code: 0, or 2 for a mistake. From then on the app has the
/// name by which the program was called. `given` gets the options that stood there, as "--lr". An option that
/// is a number has to have number() or whole(): else logic_error.
std::optional<int> parse(CLI::App& app, int argc, char** argv, std::set<std::string>& given);

/// Reads words such as "--lr=0.1". Throws InvalidArgument for a word that the command line would not take.
void apply(CLI::App& app, const std::vector<std::string>& words);

/// The name of the option that was perhaps meant by a word without its dashes; empty if none is near.
std::string nearest_option(const CLI::App& app, const std::string& word);

/// Tells a mistake and how to get help, by the app's name; gives its exit code.
int refuse(const CLI::App& app, const std::string& mistake);

}  // namespace sinter::examples
