#include "recipe/recipe.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>

#include "common/console.h"

namespace sinter::examples {
namespace {

constexpr std::string_view kPrefix = "recipe.";
// Behind the name of a value whose paths went through escape_name(). Those without it are of Sinter 0.1's
// first checkpoints, or need none.
constexpr const char* kEscaped = "_escaped";

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

void write_paths(const std::string& name, const std::vector<std::string>& paths, nn::CheckpointData& data) {
  std::string plain, escaped;
  for (const std::string& path : paths) {
    const std::string absolute = std::filesystem::absolute(path).string();
    plain += (plain.empty() ? "" : "\n") + absolute;
    escaped += (escaped.empty() ? "" : "\n") + escape_name(absolute);
  }
  const bool is_plain = valid_utf8_prefix(plain) == plain.size() &&
                        std::ranges::count(plain, '\n') == std::ranges::count(escaped, '\n');
  if (!paths.empty()) data.values[name + (is_plain ? "" : kEscaped)] = is_plain ? plain : escaped;
}

std::vector<std::string> read_paths(const std::string& name, const nn::CheckpointData& data) {
  const bool is_escaped = data.values.contains(name + kEscaped);
  std::vector<std::string> paths;
  if (!is_escaped && !data.values.contains(name)) return paths;
  const auto text = data.value<std::string>(name + (is_escaped ? kEscaped : ""));
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    paths.push_back(is_escaped ? unescape_name(line) : line);
    begin = end + 1;
  }
  return paths;
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
