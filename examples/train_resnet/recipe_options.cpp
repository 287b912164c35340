#include "recipe_options.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "run/command_line.h"

namespace train_resnet {
namespace {

namespace examples = sinter::examples;
using examples::number;
using examples::one_of;
using examples::OptionTable;
using examples::whole;

/// Whole numbers from 1 on, each above the one before.
bool is_ascending(const std::vector<double>& numbers) {
  double before = 0.0;
  for (const double value : numbers) {
    if (value != std::floor(value) || value <= before || value > 1e6) return false;
    before = value;
  }
  return true;
}

CLI::Validator class_weights() {
  return CLI::Validator(
      [](const std::string& text) {
        std::error_code ignored;
        const bool known = text == "balanced" || text == "none" || parse_numbers(text) ||
                           std::filesystem::is_regular_file(text, ignored);
        return known ? std::string()
                     : fmt::format(
                           "expected balanced, none, numbers from 0 on as in 1,0.5,2, or the name of "
                           "a file but got '{}'",
                           text);
      },
      "WEIGHTS");
}

CLI::Validator milestones() {
  return CLI::Validator(
      [](const std::string& text) {
        const auto numbers = parse_numbers(text);
        return numbers && is_ascending(*numbers)
                   ? std::string()
                   : fmt::format("expected epochs in ascending order as in 30,60,80 but got '{}'", text);
      },
      "EPOCHS");
}

}  // namespace

std::optional<std::vector<double>> parse_numbers(std::string_view text) {
  std::vector<double> numbers;
  while (true) {
    double value = -1.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !std::isfinite(value) || value < 0.0) return std::nullopt;
    numbers.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return numbers;
    if (!text.starts_with(',')) return std::nullopt;
    text.remove_prefix(1);
  }
}

std::vector<double> numbers_of(const char* option, const std::string& text) {
  const std::optional<std::vector<double>> numbers = parse_numbers(text);
  if (!numbers) throw sinter::InvalidArgument(fmt::format("{} {}: expected numbers from 0 on", option, text));
  return *numbers;
}

void add_network_rows(OptionTable& table, NetworkOptions& options) {
  table
      .add("--drop-path", options.drop_path, number(0, 0.99),
           "Stochastic depth: the probability with which the last block drops its branch for an image; those "
           "before it do so less often, the first never")
      .kept_unless("0");
  table
      .add("--zero-init-residual", options.zero_init_residual,
           "Start blocks as the identity: the last norm of each begins at 0")
      .kept_unless("false");
}

void add_loss_rows(OptionTable& table, LossOptions& options) {
  table
      .add("--loss", options.kind, one_of({"cross-entropy", "bce"}),
           "What is made small: cross-entropy, or binary cross-entropy of each class by itself")
      .kept_unless("cross-entropy");
  table
      .add("--bce-threshold", options.bce_threshold, number(0, 1),
           "Under --loss bce, targets above this count as 1 and others as 0; 0: mixed and smoothed targets "
           "stay as they are")
      .kept_unless("0");
  table.add(
      "--class-weights", options.class_weights,
      [&options](const std::string& text) { options.class_weights = text == "none" ? "" : text; },
      class_weights(),
      "Weights of classes in the loss of training: balanced, by how few images they have; a number for each "
      "class, as in 1,0.5,2; a file with a line for each, as in cat,0.5; none");
}

void add_course_rows(OptionTable& table, CourseOptions& options) {
  table
      .add("--warmup-epochs", options.warmup_epochs, whole(0, 1'000'000),
           "Epochs in which the learning rate rises; 0: those of --warmup")
      .kept_unless("0");
  table.add(
      "--milestones", options.milestones, [&options](const std::string& text) { options.milestones = text; },
      milestones(),
      "Epochs after which --schedule multi-step multiplies the learning rate by --gamma, as in 30,60,80");
  table
      .add("--gamma", options.gamma, number(1e-9, 0.999999),
           "What a reduction of multi-step and plateau multiplies the learning rate by")
      .kept_unless("0.1");
  table
      .add("--plateau-patience", options.plateau_patience, whole(0, 1'000'000),
           "Epochs in a row without a smaller test loss that --schedule plateau puts up with before a "
           "reduction")
      .kept_unless("10");
  table
      .add("--patience", options.patience, whole(0, 1'000'000),
           "End the run after so many epochs in a row without a better test; 0: not")
      .kept_unless("0");
}

}  // namespace train_resnet
