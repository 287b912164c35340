// What --help shows of a command line, as wide as the terminal.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace sinter::examples {

/// The group of options that are about the machine and the program itself; --help shows it last.
inline constexpr const char* kSystemGroup = "System";

/// What trainers' pages end with.
inline constexpr const char* kExitCodes =
    "Exit code: 0 the run is complete, or stopped by --max-steps; 1 an error; 2 a mistake on the command "
    "line; "
    "143 (SIGTERM), 130 (Ctrl-C), 129 (SIGHUP), 140 (SIGUSR2), 152 (SIGXCPU): stopped after the present "
    "step, "
    "and everything that was asked for is saved; --resume goes on. SIGUSR1 saves and goes on.";

struct HelpPage {
  std::vector<std::string> first;  ///< options that most runs need, as "--data": they stand above all others
  std::vector<std::string> examples;  ///< command lines
  std::string notes;                  ///< what follows the options
};

/// Makes --help show a page in place of CLI11's: no line is longer than the terminal (of 80 columns or more),
/// and no word is cut. A value is called what its check says, as FILE, or what it may be stands behind the
/// description; a default that was captured does too.
void set_help(CLI::App& app, HelpPage page);
/// The same, with --version.
void set_help_and_version(CLI::App& app, HelpPage page);

}  // namespace sinter::examples
