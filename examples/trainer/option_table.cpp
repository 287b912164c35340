#include "trainer/option_table.h"

#include <algorithm>
#include <cstdint>

#include <CLI/CLI.hpp>

#include "recipe/recipe_file.h"
#include "run/command_line.h"

namespace sinter::examples {

template <class T>
CLI::Option* OptionTable::attach_value(CLI::App& app, const OptionRow& row, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return app.add_flag(row.names, value, row.help);
  } else if constexpr (std::is_same_v<T, std::optional<bool>>) {
    return app
        .add_flag_function(
            row.names, [&value](int64_t count) { value = count > 0; }, row.help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return app.add_option(row.names, value, row.help)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    CLI::Option* const option = app.add_option(row.names, value, row.help);
    if constexpr (!IsOptional<T>::value) {
      if (row.shows_default) option->capture_default_str();
    }
    return option;
  }
}

// The types of values that rows may have.
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, bool&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::optional<bool>&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, double&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::optional<double>&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, int64_t&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::optional<int64_t>&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, size_t&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, int&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::optional<int>&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::string&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::optional<std::string>&);
template CLI::Option* OptionTable::attach_value(CLI::App&, const OptionRow&, std::vector<std::string>&);

CLI::Option* OptionTable::attach_word(CLI::App& app, const OptionRow& row,
                                      const std::function<void(const std::string&)>& set) {
  return app.add_option_function<std::string>(row.names, set, row.help);
}

OptionRow& OptionTable::add_row(const char* names,
                                std::function<CLI::Option*(CLI::App&, const OptionRow&)> attach,
                                std::function<std::string()> text, std::optional<Check> check,
                                const char* help) {
  OptionRow& row = rows_.emplace_back();
  row.names = names;
  row.group = group_;
  row.help = help;
  row.check = std::move(check);
  row.attach = std::move(attach);
  row.text = std::move(text);
  row.is_kept = group_ == kRecipeGroup;
  return row;
}

const OptionRow* OptionTable::find(const std::string& flag) const {
  const auto found = std::ranges::find(rows_, flag, [](const OptionRow& row) { return row.flag(); });
  return found == rows_.end() ? nullptr : &*found;
}

void OptionTable::attach(CLI::App& app) const {
  std::list<const OptionRow*> order;
  for (const OptionRow& row : rows_) {
    const auto before =
        std::ranges::find(order, row.place, [](const OptionRow* other) { return other->flag(); });
    order.insert(before == order.end() ? before : std::next(before), &row);
  }
  // A script's, then the user's.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const OptionRow* row : order) {
    CLI::Option* const option = row->attach(app, *row)->group(row->group);
    if (row->check) option->check(*row->check);
    if (!row->type_name.empty()) option->type_name(row->type_name);
    if (!row->needed.empty()) option->needs(app.get_option(row->needed));
  }
}

Recipe OptionTable::recipe(const std::string& optimizer) const {
  Recipe recipe;
  for (const OptionRow& row : rows_) {
    const bool is_used = row.optimizers.empty() || std::ranges::count(row.optimizers, optimizer) > 0;
    if (!row.is_kept || !is_used) continue;
    const std::string text = row.text();
    if (!text.empty() && text != row.not_kept_at) recipe[row.flag()] = text;
  }
  return recipe;
}

std::set<std::string> OptionTable::adopt(
    const Recipe& recipe, const std::function<bool(const std::string& flag)>& passed_over) const {
  std::vector<std::string> words;
  std::set<std::string> taken;
  for (const auto& [flag, value] : recipe) {
    if (passed_over(flag)) continue;
    words.push_back(flag + "=" + value);
    taken.insert(flag);
  }
  CLI::App app;
  attach(app);
  examples::apply(app, words);
  return taken;
}

bool OptionTable::is_of_optimizers(const std::string& flag) const {
  const OptionRow* const row = find(flag);
  return row != nullptr && !row->optimizers.empty();
}

std::string OptionTable::misplaced(const std::string& optimizer, const std::set<std::string>& given) const {
  for (const OptionRow& row : rows_) {
    if (row.optimizers.empty() || !given.contains(row.flag())) continue;
    if (std::ranges::count(row.optimizers, optimizer) == 0)
      return fmt::format("{} is of --optimizer {}", row.flag(), fmt::join(row.optimizers, " and "));
  }
  return {};
}

std::string OptionTable::unwritten(const OtherMode& mode, const std::set<std::string>& given) const {
  for (const OptionRow& row : rows_) {
    const std::string flag = row.flag();
    if (!row.is_output || !given.contains(flag) || flag == mode.option || mode.uses.contains(flag)) continue;
    return fmt::format("{0} and {1} cannot go together: {0} does not write it", mode.option, flag);
  }
  return {};
}

}  // namespace sinter::examples
