// A program's options as a table: a row is an option of the command line, its line of --help, and what a
// recipe keeps of it.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "recipe/recipe.h"
#include "run/check.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sinter::examples {

/// An option, whose value lies in the program's own struct.
struct OptionRow {
  std::string names;  // as CLI11 takes them, the option's own first: "--flip,!--no-flip"
  std::string group;
  std::string help;
  std::optional<Check> check;
  std::function<CLI::Option*(CLI::App&, const OptionRow&)> attach;
  std::function<std::string()> text;  // the value in the words of the command line; empty: none
  std::string type_name;
  std::string needed, place;
  bool shows_default = true, is_kept = true, is_output = false;
  std::string not_kept_at;
  std::vector<std::string> optimizers;

  /// The option's own name: "--flip".
  std::string flag() const { return names.substr(0, names.find(',')); }

  /// What --help calls the value, where no check does.
  OptionRow& called(const char* name) { return type_name = name, *this; }
  /// Refused without another option.
  OptionRow& needs(const char* option) { return needed = option, *this; }
  /// Where --help shows it, if not where it was added.
  OptionRow& behind(const char* option) { return place = option, *this; }
  /// Its first value is none that a user would give.
  OptionRow& without_default() { return shows_default = false, *this; }
  /// The result of a run does not depend on it.
  OptionRow& not_kept() { return is_kept = false, *this; }
  /// The name of what is written.
  OptionRow& writes() { return is_output = true, *this; }
  /// Recipes do not hold this value, as those of earlier versions did not have the option.
  OptionRow& kept_unless(const char* value) { return not_kept_at = value, *this; }
  /// Used by these optimisers alone, each of which has good values of its own.
  OptionRow& of_optimizers(std::vector<std::string> names_) { return optimizers = std::move(names_), *this; }
};

/// What a program does in place of training: all that it reads is named, so that a new option is told of
/// until somebody says that it is used.
struct OtherMode {
  std::string option;          ///< that asks for it
  std::set<std::string> uses;  ///< options, beside that one
};

class OptionTable {
 public:
  /// Rows that follow are of this group of --help. Recipes keep those of kRecipeGroup.
  void group(const char* name) { group_ = name; }

  /// A row, whose value must outlive the table: a flag if it is a bool, else an option; without a default if
  /// it is optional. Of a list of words, each is given by the option once more.
  template <class T>
  OptionRow& add(const char* names, T& value, std::optional<Check> check, const char* help) {
    return add_row(
        names, [&value](CLI::App& app, const OptionRow& row) { return attach_value(app, row, value); },
        [&value] { return text_of(value); }, std::move(check), help);
  }
  template <class T>
  OptionRow& add(const char* names, T& value, const char* help) {
    return add(names, value, std::nullopt, help);
  }
  /// A value that `set` reads from a word which the check has let pass.
  template <class T>
  OptionRow& add(const char* names, T& value, std::function<void(const std::string&)> set, Check check,
                 const char* help) {
    return add_row(
        names,
        [set = std::move(set)](CLI::App& app, const OptionRow& row) { return attach_word(app, row, set); },
        [&value] { return text_of(value); }, std::move(check), help);
  }

  /// Adds all options to a command line.
  void attach(CLI::App& app) const;

  /// What a recipe keeps of the values; of the options of optimisers, those of the one in use.
  Recipe recipe(const std::string& optimizer = "sgd") const;

  /// Takes a recipe's values, but for options that `passed_over` names, and gives the options that it took.
  /// Throws InvalidArgument for words that the command line would not take.
  std::set<std::string> adopt(const Recipe& recipe,
                              const std::function<bool(const std::string& flag)>& passed_over) const;

  /// Whether an option has a good value of its own for each optimiser.
  bool is_of_optimizers(const std::string& flag) const;
  /// An option that was given but is of another optimiser, in words; empty if there is none.
  std::string misplaced(const std::string& optimizer, const std::set<std::string>& given) const;

  /// An option that was given and names what the mode does not write, in words; empty if there is none.
  std::string unwritten(const OtherMode& mode, const std::set<std::string>& given) const;

 private:
  template <class T>
  struct IsOptional : std::false_type {};
  template <class T>
  struct IsOptional<std::optional<T>> : std::true_type {};

  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (IsOptional<T>::value) {
      return value ? text_of(*value) : "";
    } else if constexpr (std::is_enum_v<T>) {
      return std::string(to_string(value));
    } else if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string>) {
      return fmt::format("{}", fmt::join(value, ","));
    } else {
      return fmt::format("{}", value);
    }
  }

  /// For the types of values that option_table.cpp names.
  template <class T>
  static CLI::Option* attach_value(CLI::App& app, const OptionRow& row, T& value);
  static CLI::Option* attach_word(CLI::App& app, const OptionRow& row,
                                  const std::function<void(const std::string&)>& set);

  OptionRow& add_row(const char* names, std::function<CLI::Option*(CLI::App&, const OptionRow&)> attach,
                     std::function<std::string()> text, std::optional<Check> check, const char* help);
  const OptionRow* find(const std::string& flag) const;

  std::string group_;
  std::list<OptionRow> rows_;
};

}  // namespace sinter::examples
