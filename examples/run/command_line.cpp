#include "run/command_line.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/console.h"

namespace sinter::examples {
namespace {

/// How many letters have to be inserted, removed or exchanged to make one word of the other (Levenshtein).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, exchanged}));
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_option(const CLI::App& app, const std::string& word) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) {
      const bool begins = word.size() >= 3 && known.starts_with(word);
      const size_t distance = begins ? 1 : edit_distance(word, known);
      if (distance >= best_distance) continue;
      best = known;
      best_distance = distance;
    }
  }
  return best;
}

namespace {

/// What is wrong with words that no option takes, with the option that was perhaps meant.
std::string describe_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  const auto dashed =
      std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (dashed == words.end()) return fmt::format("'{}' belongs to no option", words.front());
  const std::string word = dashed->substr(0, dashed->find('='));
  const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::string best = nearest_option(app, bare);
  return fmt::format("there is no option {}{}", word,
                     best.empty() ? "" : fmt::format("; did you mean --{}?", best));
}

}  // namespace

CLI::Validator number(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
        return fmt::format("expected a number from {} to {} but got '{}'", low, high, text);
      },
      fmt::format("{}..{}", low, high));
}

CLI::Validator whole(uint64_t low, uint64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high)
          return {};
        return fmt::format("expected a whole number from {} to {} but got '{}'", low, high, text);
      },
      fmt::format("{}..{}", low, high));
}

CLI::Validator name() {
  return CLI::Validator(
      [](std::string& text) -> std::string { return text.empty() ? "expected a name but got nothing" : ""; },
      "");
}

int refuse(const std::string& program, const std::string& mistake) {
  complain("error: {}\n{} --help tells all options", mistake, program);
  return 2;
}

std::optional<int> parse(CLI::App& app, int argc, char** argv, std::set<std::string>& given) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream text;
      app.exit(error, text, text);
      say(std::string_view(text.str()));
      return output_failure().empty() ? 0 : 1;
    }
    const std::vector<std::string> unknown = app.remaining();
    if (!unknown.empty()) return refuse(app.get_name(), describe_unknown(app, unknown));
    std::string mistake = error.what();  // "--lr: 1 required FLOAT missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
      mistake = fmt::format("{} needs a value", mistake.substr(0, mistake.find(':')));
    return refuse(app.get_name(), mistake);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) given.insert("--" + option->get_lnames().front());
  }
  return std::nullopt;
}

void apply(CLI::App& app, const std::vector<std::string>& words) {
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
}

}  // namespace sinter::examples
