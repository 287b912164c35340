#include "class_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sinter/core/base/error.h>

#include "predict/picture_files.h"
#include "trainer/step_options.h"

namespace train_resnet {

namespace examples = sinter::examples;

using sinter::InvalidArgument;

namespace {

constexpr const char* kSpace = " \t\r";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// A class and its weight; the class is empty where the line has only a weight.
struct Line {
  std::string name;
  double weight = 0;
};

Line parse_line(const std::string& text, const std::string& where) {
  const size_t cut = text.find_last_of(", \t");
  const auto weight = examples::parse_numbers(cut == text.npos ? text : text.substr(cut + 1));
  if (!weight || weight->size() != 1) {
    throw InvalidArgument(fmt::format(
        "{}: expected a class and its weight from 0 on, as in 'cat,0.5', but got '{}'", where, text));
  }
  if (cut == text.npos) return {.name = {}, .weight = weight->front()};
  std::string name = trimmed(text.substr(0, cut));
  if (name.ends_with(',')) name = trimmed(name.substr(0, name.size() - 1));  // "cat, 0.5"
  return {.name = name, .weight = weight->front()};
}

std::vector<std::string> names_of(const sinter::nn::data::Dataset& train) {
  std::vector<std::string> names = train.class_names();
  for (int64_t i = static_cast<int64_t>(names.size()); i < train.num_classes(); ++i)
    names.push_back(fmt::format("{}", i));
  return names;
}

/// The weights in the order of the classes.
std::vector<double> ordered(const std::map<std::string, double>& weights,
                            const std::vector<std::string>& names, const std::string& file) {
  for (const auto& [name, weight] : weights) {
    if (std::ranges::count(names, name) == 0)
      throw InvalidArgument(fmt::format("{}: the data has no class '{}'", file, name));
  }
  std::vector<double> values;
  for (const std::string& name : names) {
    const auto found = weights.find(name);
    if (found == weights.end()) throw InvalidArgument(fmt::format("{}: class '{}' is missing", file, name));
    values.push_back(found->second);
  }
  return values;
}

}  // namespace

std::string read_class_weights(const std::string& text, const sinter::nn::data::Dataset& train) {
  if (text.empty() || text == "balanced" || examples::parse_numbers(text)) return text;
  const std::string file_name = "--class-weights " + text;
  std::map<std::string, double> by_name;
  std::vector<double> alone;
  int number = 0;
  for (std::string line : examples::read_lines("--class-weights", text)) {
    ++number;
    line = trimmed(line);
    if (line.empty()) continue;
    const std::string where = fmt::format("{}, line {}", file_name, number);
    const Line parsed = parse_line(line, where);
    if (parsed.name.empty()) {
      alone.push_back(parsed.weight);
    } else if (!by_name.emplace(parsed.name, parsed.weight).second) {
      throw InvalidArgument(fmt::format("{}: class '{}' is there twice", where, parsed.name));
    }
    if (!alone.empty() && !by_name.empty())
      throw InvalidArgument(fmt::format("{}: expected a class on every line, or on none", where));
  }
  if (alone.empty() && by_name.empty()) throw InvalidArgument(file_name + ": the file is empty");
  return fmt::format("{}",
                     fmt::join(alone.empty() ? ordered(by_name, names_of(train), file_name) : alone, ","));
}

}  // namespace train_resnet
