// Recipes as files: one flat JSON object whose keys are options, as {"optimizer": "sgd", "lr": 0.4}.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "recipe/recipe.h"

namespace CLI {
class App;
}

namespace sinter::examples {

/// The group of a command line's options that may stand in a recipe; --help shows it under this name.
inline constexpr const char* kRecipeGroup = "Recipe (with those above also in the file of --recipe)";

/// The file in the folder of a run's log that holds its recipe.
inline constexpr const char* kRecipeName = "recipe.json";

/// The recipe in a file. Throws Error with the path and, for a key that is no option of kRecipeGroup or has a
/// value of another kind, with the key.
Recipe read_recipe_file(const std::string& path, const CLI::App& app);

/// Writes a recipe that read_recipe_file reads. Throws IoError.
void write_recipe_file(const std::string& path, const Recipe& recipe);

/// Reads the file of --recipe, if it is given, or the one of that name that ships with Sinter (`path` is then
/// where it lies), and hands it to `adopt`, which gives the options that it
/// took: they count as given. For a mistake in it, tells it and gives the exit code.
std::optional<int> take_recipe(const CLI::App& app, std::string& path, std::set<std::string>& given,
                               const std::function<std::set<std::string>(const Recipe&)>& adopt);

}  // namespace sinter::examples
