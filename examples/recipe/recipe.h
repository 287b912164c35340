// The recipe of a run: every option that its result depends on. Checkpoints hold it, so that a run goes on as
// it began.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sinter/nn/checkpoint/checkpoint.h>

namespace sinter::examples {

/// Values by option, in the words of the command line: {"--lr", "0.1"}.
using Recipe = std::map<std::string, std::string>;

/// The value of `option`, or `other` where the recipe does not have it.
std::string value_or(const Recipe& recipe, const std::string& option, const std::string& other);

/// Puts a recipe among a checkpoint's values, and gets it back.
void write_recipe(const Recipe& recipe, nn::CheckpointData& data);
Recipe read_recipe(const nn::CheckpointData& data);

/// An option that a run would go on with, and its value before; "none" where one side does not use it.
struct Change {
  std::string option, before, now;
};

/// What differs, by option. More epochs than before are none: a run may be extended. Options that `before`
/// does not know are passed over if it is not `whole`.
std::vector<Change> changes(const Recipe& before, const Recipe& now, bool whole);

/// The changes as lines of text.
std::string list_changes(const std::vector<Change>& changes);

/// Refuses changes unless `allowed`; then it says them. Throws Error with the folder of the run.
void check_changes(const std::vector<Change>& changes, bool allowed, const std::string& folder);

}  // namespace sinter::examples
