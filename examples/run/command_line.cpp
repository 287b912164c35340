#include "run/command_line.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sinter/core/base/device.h>
#include <sinter/core/base/error.h>

#include "common/console.h"

namespace sinter::examples {
namespace {

/// How many letters have to be inserted, removed, exchanged or swapped with their neighbour to make one word
/// of the other (Damerau and Levenshtein, each letter touched once).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

/// Words of other programs, such as torchvision's and InsightFace's trainers, and ours.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"learning-rate", "lr"},
    {"lr-scheduler", "schedule"},
    {"lr-warmup-epochs", "warmup-epochs"},
    {"wd", "weight-decay"},
    {"b", "batch"},
    {"j", "workers"},
    {"arch", "model"},
    {"network", "backbone"},
    {"embedding-size", "dims"},
    {"dataset", "data"},
    {"rec", "data"},
    {"imgsz", "image-size"},
    {"train-crop-size", "image-size"},
    {"weights", "load-weights"},
    {"pretrained", "load-weights"},
    {"output-dir", "checkpoints"},
    {"model-ema", "ema"},
    {"sync-bn", "sync-batch-norm"},
    {"test-only", "evaluate"},
    {"dtype", "precision"},
    {"amp", "precision"},
    {"fp16", "precision"},
    {"bf16", "precision"},
    // of --device, --backbone and --precision
    {"gpu", "cuda"},
    {"r18", "iresnet18"},
    {"r34", "iresnet34"},
    {"r50", "iresnet50"},
    {"r100", "iresnet100"},
    {"r200", "iresnet200"},
    {"fp16", "mixed-f16"},
    {"float16", "mixed-f16"},
    {"half", "mixed-f16"},
    {"amp", "mixed-f16"},
    {"mixed", "mixed-f16"},
    {"bfloat16", "mixed-bf16"},
    {"bf16", "mixed-bf16"},
    {"fp32", "f32"},
    {"float32", "f32"},
    {"float", "f32"}};

/// The word that was perhaps meant; empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  for (const auto& [other, own] : kOtherWords) {
    if (word == other && std::ranges::find(known, own) != known.end()) return std::string(own);
  }
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& other : known) {
    const bool begins = word.size() >= 3 && other.starts_with(word);
    const bool holds = word.starts_with(other + "-") || word.ends_with("-" + other);  // "batch-size"
    const size_t distance = begins || holds ? 1 : edit_distance(word, other);
    if (distance >= best_distance) continue;
    best = other;
    best_distance = distance;
  }
  return best;
}

}  // namespace

std::string nearest_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  return nearest(word, known);
}

namespace {

/// The option that a folder or a file without one was perhaps meant for; empty if it is neither.
std::string option_for(const CLI::App& app, const std::string& word) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(word, ignored) && word.find('/') == std::string::npos) return {};
  const std::string ending = fs::path(word).extension();
  const bool is_weights = ending == ".safetensors" || ending == ".pth" || ending == ".pt";
  const bool is_run = fs::exists(fs::path(word) / "run.json", ignored);
  const std::string option = ending == ".json" ? "--recipe"
                             : is_weights      ? "--load-weights"
                             : is_run          ? "--checkpoints"
                                               : "--data";
  return app.get_option_no_throw(option) != nullptr ? option : "";
}

/// What is wrong with words that no option takes, with the option that was perhaps meant.
std::string describe_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  const auto dashed =
      std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (dashed == words.end()) {
    const std::string option = option_for(app, words.front());
    return fmt::format("'{}' belongs to no option{}", words.front(),
                       option.empty() ? "" : fmt::format("; did you mean {} {}?", option, words.front()));
  }
  const std::string word = dashed->substr(0, dashed->find('='));
  const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::string best = nearest_option(app, bare);
  return fmt::format("there is no option {}{}", word,
                     best.empty() ? "" : fmt::format("; did you mean --{}?", best));
}

/// The number that all of the text is, in decimal digits; none if it is not one.
template <class T>
std::optional<T> decimal(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// CLI11 by itself reads 010 as 8 and 0x10 as 16: it gets numbers without such beginnings. What is none is
/// left to the option's check.
void read_decimal_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();  // "INT:INT", the second word being its check's
    const bool is_whole = type.starts_with("INT") || type.starts_with("UINT");
    if (!is_whole && !type.starts_with("FLOAT")) continue;
    if (type.find(':') == std::string::npos)
      throw std::logic_error(option->get_name() + " is a number without whole() or number()");
    option->transform([is_whole](const std::string& text) {
      const auto count = decimal<uint64_t>(text);
      if (is_whole) return count ? fmt::format("{}", *count) : text;
      const auto value = decimal<double>(text);
      return value ? fmt::format("{}", *value) : text;
    });
  }
}

/// An empty name is a variable of the shell that was not set: nothing would be saved where it was meant to.
Check named(const char* kind) {
  return {[](const std::string& text) -> std::string {
            return text.empty() ? "expected a name but got nothing" : "";
          },
          kind};
}

}  // namespace

Check::operator CLI::Validator() const {
  return CLI::Validator([mistake = mistake](std::string& text) { return mistake(text); }, value);
}

Check number(double low, double high) {
  return {[low, high](const std::string& text) -> std::string {
            const auto value = decimal<double>(text);
            if (value && *value >= low && *value <= high) return {};
            return fmt::format("expected a number from {} to {} but got '{}'", low, high, text);
          },
          "NUMBER"};
}

Check whole(uint64_t low, uint64_t high) {
  return {[low, high](const std::string& text) -> std::string {
            const auto value = decimal<uint64_t>(text);
            if (value && *value >= low && *value <= high) return {};
            return fmt::format("expected a whole number from {} to {} but got '{}'", low, high, text);
          },
          "INT"};
}

Check one_of(const std::vector<std::string>& names) {
  return {[names](const std::string& text) -> std::string {
            if (std::ranges::find(names, text) != names.end()) return {};
            const std::string best = nearest(text, names);
            return fmt::format("expected one of {} but got '{}'{}", fmt::join(names, ", "), text,
                               best.empty() ? "" : fmt::format("; did you mean '{}'?", best));
          },
          fmt::format("{{{}}}", fmt::join(names, ","))};
}

Check device_name() {
  return {[](const std::string& text) -> std::string {
            if (text == "auto") return {};
            try {
              Device::parse(text);
              return {};
            } catch (const InvalidArgument&) {
              const std::string best = nearest(text, {"auto", "cpu", "cuda"});
              return fmt::format("expected auto, cpu, cuda or cuda:<index> but got '{}'{}", text,
                                 best.empty() ? "" : fmt::format("; did you mean '{}'?", best));
            }
          },
          "NAME"};
}

Check file() {
  return named("FILE");
}

Check folder() {
  return named("FOLDER");
}

Check path() {
  return named("PATH");
}

int refuse(const CLI::App& app, const std::string& mistake) {
  complain("error: {}\n{} --help tells all options", mistake, app.get_name());
  return 2;
}

std::optional<int> parse(CLI::App& app, int argc, char** argv, std::set<std::string>& given) {
  app.name(argv[0]);  // as it was called, for refuse(): by its path, or by a script that starts it
  read_decimal_numbers(app);
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
    if (!unknown.empty()) return refuse(app, describe_unknown(app, unknown));
    std::string mistake = error.what();  // "--lr: 1 required FLOAT missing"
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
      mistake = fmt::format("{} needs a value", mistake.substr(0, mistake.find(':')));
    return refuse(app, mistake);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty())
      given.insert("--" + option->get_lnames().front());
  }
  return std::nullopt;
}

void apply(CLI::App& app, const std::vector<std::string>& words) {
  read_decimal_numbers(app);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
}

}  // namespace sinter::examples
