#include "recipe/recipe_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/json/json.h>

#include "run/command_line.h"
#include "run/output_files.h"

namespace sinter::examples {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::uintmax_t kLargestFile = 1 << 20;  // bytes

/// The recipes lie at the same place beside the program where it is built and where it is installed.
fs::path shipped_recipes() {
  const fs::path program = fs::read_symlink("/proc/self/exe");
  return (program.parent_path() / SINTER_RECIPES).lexically_normal();
}

/// The file itself, or one of that name among the recipes that ship with Sinter.
std::string find_recipe(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  const fs::path folder = shipped_recipes();
  if (!path.empty() && fs::path(path).filename() == path && fs::is_regular_file(folder / path, ignored))
    return folder / path;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (entry->path().extension() == ".json") names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  throw IoError(
      fmt::format("--recipe {}: there is no such file{}", path,
                  names.empty() ? "" : fmt::format("; {} has {}", folder.string(), fmt::join(names, ", "))));
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) throw IoError(fmt::format("--recipe {}: {}", path, error.message()));
  if (bytes > kLargestFile)
    throw IoError(fmt::format("--recipe {}: expected a small JSON file but it has {} bytes", path, bytes));
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw IoError(fmt::format("--recipe {}: it cannot be read", path));
  return text;
}

/// Parses the text; a key that stands there twice is a mistake, of which JSON itself would take the last.
ordered_json parse_flat(const std::string& path, const std::string& text) {
  std::set<std::string> keys;
  std::string twice;
  const auto watch = [&](int depth, ordered_json::parse_event_t event, ordered_json& value) {
    if (event == ordered_json::parse_event_t::key && depth == 1) {
      const auto key = value.get<std::string>();
      if (!keys.insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  ordered_json object;
  try {
    object = parse_json(text, watch);
  } catch (const IoError& error) {
    throw IoError(fmt::format("--recipe {}: {}", path, error.what()));
  }
  if (!object.is_object())
    throw IoError(fmt::format("--recipe {}: expected an object, as {{\"lr\": 0.1}}", path));
  if (!twice.empty()) throw IoError(fmt::format("--recipe {}: the key '{}' stands there twice", path, twice));
  return object;
}

/// The value in the words of the command line.
std::string text_of(const std::string& path, const std::string& key, const ordered_json& value,
                    const CLI::Option& option) {
  const bool is_flag = option.get_expected_max() == 0;
  const bool fits = is_flag ? value.is_boolean() : value.is_number() || value.is_string();
  if (!fits) {
    throw InvalidArgument(fmt::format("--recipe {}: {}: expected {} but got {}", path, key,
                                      is_flag ? "true or false" : "a number or a text",
                                      value.is_structured() ? value.type_name() : value.dump()));
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// A value of the command line as JSON: true, false and numbers as such, all else as text.
ordered_json plain_value(const std::string& value) {
  try {
    ordered_json parsed = parse_json(value);
    if (parsed.is_boolean() || parsed.is_number()) return parsed;
  } catch (const IoError&) {  // a word
  }
  return value;
}

}  // namespace

Recipe read_recipe_file(const std::string& path, const CLI::App& app) {
  Recipe recipe;
  const ordered_json object = parse_flat(path, read_text(path));
  for (const auto& [key, value] : object.items()) {
    const CLI::Option* const option = app.get_option_no_throw("--" + key);
    if (option == nullptr || option->get_lnames().front() != key) {
      const std::string near = nearest_option(app, key);
      throw InvalidArgument(fmt::format("--recipe {}: there is no option '{}'{}", path, key,
                                        near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
    if (option->get_group() != kRecipeGroup) {
      throw InvalidArgument(
          fmt::format("--recipe {}: '{}' is no part of a recipe; it belongs on the command line", path, key));
    }
    recipe["--" + key] = text_of(path, key, value, *option);
  }
  return recipe;
}

void write_recipe_file(const std::string& path, const Recipe& recipe) {
  ordered_json object = ordered_json::object();
  for (const auto& [option, value] : recipe) {
    object[option.substr(2)] = plain_value(value);
  }
  write_text(path, object.dump(2) + "\n");
}

std::optional<int> take_recipe(const CLI::App& app, std::string& path, std::set<std::string>& given,
                               const std::function<std::set<std::string>(const Recipe&)>& adopt) {
  if (path.empty()) return std::nullopt;
  try {
    path = find_recipe(path);
    const Recipe recipe = read_recipe_file(path, app);
    try {
      given.merge(adopt(recipe));
    } catch (const InvalidArgument& error) {  // "--lr: expected a number ..."
      throw InvalidArgument(fmt::format("--recipe {}: {}", path, error.what()));
    }
  } catch (const Error& error) {
    return refuse(app, error.what());
  }
  return std::nullopt;
}

}  // namespace sinter::examples
