#include "recipe/recipe.h"

#include <charconv>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/console.h"

namespace sinter::examples {
namespace {

constexpr std::string_view kPrefix = "recipe.";

int64_t to_number(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string value_or(const Recipe& recipe, const std::string& option, const std::string& other) {
  const auto found = recipe.find(option);
  return found == recipe.end() ? other : found->second;
}

void write_recipe(const Recipe& recipe, nn::CheckpointData& data) {
  for (const auto& [option, value] : recipe) data.values[std::string(kPrefix) + option.substr(2)] = value;
}

Recipe read_recipe(const nn::CheckpointData& data) {
  Recipe recipe;
  for (const auto& [key, value] : data.values) {
    if (key.starts_with(kPrefix)) recipe["--" + key.substr(kPrefix.size())] = data.value<std::string>(key);
  }
  return recipe;
}

std::vector<Change> changes(const Recipe& before, const Recipe& now, bool whole) {
  Recipe all = now;
  all.insert(before.begin(), before.end());
  std::vector<Change> found;
  for (const auto& [option, value] : all) {
    if (!whole && !before.contains(option)) continue;
    const std::string old_value = value_or(before, option, "none"), new_value = value_or(now, option, "none");
    if (old_value == new_value) continue;
    if (option == "--epochs" && to_number(new_value) > to_number(old_value)) continue;
    found.push_back({option, old_value, new_value});
  }
  return found;
}

std::string list_changes(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes)
    text += fmt::format("  {:<18} {} -> {}\n", change.option, change.before, change.now);
  return text;
}

void check_changes(const std::vector<Change>& changes, bool allowed, const std::string& folder) {
  if (changes.empty()) return;
  if (allowed) return say("changed recipe:\n{}", list_changes(changes));
  throw Error(
      fmt::format("the run in {} has another recipe:\n{}leave these options out to go on as before, or add "
                  "--change-recipe to "
                  "go on with the new values",
                  folder, list_changes(changes)));
}

}  // namespace sinter::examples
