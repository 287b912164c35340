#include "run/help.h"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/text.h"

namespace sinter::examples {
namespace {

constexpr size_t kDescriptions = 26;  // the column at which they begin

/// What the option's last check calls its value ("FOLDER", or "{a,b}"), else CLI11's own word.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // "TEXT:FOLDER"
  return type.substr(type.rfind(':') + 1);
}

bool is_choice(const std::string& value) {
  return value.starts_with('{');
}

/// "--flip, --no-flip", "--lr NUMBER", or for a word without a name "images".
std::string names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) return option.get_name(true);
  const std::string value = value_of(option);
  return fmt::format("{}{}{}", fmt::join(names, ", "), value.empty() ? "" : " ",
                     is_choice(value) ? "NAME" : value);
}

std::string description_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (const std::string value = value_of(option); is_choice(value)) {
    text += text.ends_with(')') ? ". One of " : "; one of ";
    for (const char c : value.substr(1, value.size() - 2))
      text += c == ',' ? std::string(", ") : std::string(1, c);
  }
  if (!option.get_default_str().empty()) text += fmt::format(" (default {})", option.get_default_str());
  return text;
}

std::string entry(const CLI::Option& option, size_t columns) {
  std::string line = "  " + names_of(option);
  line += line.size() + 2 > kDescriptions ? "\n" + std::string(kDescriptions, ' ')
                                          : std::string(kDescriptions - line.size(), ' ');
  return wrap(line + description_of(option), columns, kDescriptions) + "\n";
}

std::string usage_of(const std::string& program, const std::vector<const CLI::Option*>& options) {
  std::string text = fmt::format("Usage: {} [options]", program);
  for (const CLI::Option* option : options) {
    if (option->get_positional()) text += " " + option->get_name(true);
  }
  return text;
}

std::string show(const CLI::App& app, const std::string& program, const HelpPage& page) {
  const size_t columns = text_columns(stdout);
  const std::vector<const CLI::Option*> options = app.get_options();
  const auto is_first = [&](const CLI::Option* option) {
    return option->get_lnames().empty() ||
           std::ranges::any_of(page.first, [&](const std::string& name) { return option->check_name(name); });
  };
  std::string text = wrap(app.get_description() + "\n\n" + usage_of(program, options), columns, 0) + "\n\n";
  for (const CLI::Option* option : options) {
    if (option->get_lnames().empty()) text += entry(*option, columns);
  }
  for (const std::string& name : page.first) text += entry(*app.get_option(name), columns);
  text += "\nExamples:\n";
  for (const std::string& example : page.examples) text += wrap("  " + example, columns, 6) + "\n";

  std::vector<std::string> groups = app.get_groups();
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& group) { return group != kSystemGroup; });
  for (const std::string& group : groups) {
    std::string entries;
    for (const CLI::Option* option : options) {
      if (option->get_group() == group && !is_first(option)) entries += entry(*option, columns);
    }
    if (!entries.empty()) text += "\n" + wrap(group + ":", columns, 2) + "\n" + entries;
  }
  return text + "\n" + wrap(page.notes, columns, 0) + "\n";
}

}  // namespace

void set_help(CLI::App& app, HelpPage page) {
  app.set_help_flag("-h,--help", "Print this and exit")->group(kSystemGroup);
  app.formatter_fn([page = std::move(page), program = app.get_name()](
                       const CLI::App* shown, const std::string& /*name*/, CLI::AppFormatMode) {
    return show(*shown, program, page);
  });
}

void set_help_and_version(CLI::App& app, HelpPage page) {
  app.set_version_flag("--version", app.get_name() + " of Sinter " SINTER_VERSION,
                       "Print the version and exit")
      ->group(kSystemGroup);
  set_help(app, std::move(page));
}

}  // namespace sinter::examples
