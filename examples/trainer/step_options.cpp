#include "trainer/step_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

#include "common/text.h"
#include "recipe/recipe_file.h"
#include "run/command_line.h"
#include "trainer/plan_options.h"

namespace sinter::examples {
namespace {

/// Whole numbers from 1 on, each above the one before.
bool is_ascending(const std::vector<double>& numbers) {
  double before = 0.0;
  for (const double value : numbers) {
    if (value != std::floor(value) || value <= before || value > 1e6) return false;
    before = value;
  }
  return true;
}

Check milestones() {
  return {[](const std::string& text) {
            const auto numbers = parse_numbers(text);
            return numbers && is_ascending(*numbers)
                       ? std::string()
                       : fmt::format("expected epochs in ascending order as in 30,60,80 but got '{}'", text);
          },
          "EPOCHS"};
}

void add_course_rows(OptionTable& table, CourseOptions& options, const StepHelp& help) {
  table
      .add("--warmup-epochs", options.warmup_epochs, whole(0, 1'000'000),
           "Epochs in which the learning rate rises; 0: those of --warmup")
      .kept_unless("0");
  table.add("--power", options.power, number(1e-3, 100), "Power of --schedule polynomial").kept_unless("2");
  table.add(
      "--milestones", options.milestones, [&options](const std::string& text) { options.milestones = text; },
      milestones(),
      "Epochs after which --schedule multi-step multiplies the learning rate by --gamma, as in 30,60,80");
  table
      .add("--gamma", options.gamma, number(1e-9, 0.999999),
           "What a reduction of multi-step and plateau multiplies the learning rate by")
      .kept_unless("0.1");
  table.add("--plateau-patience", options.plateau_patience, whole(0, 1'000'000), help.plateau)
      .kept_unless("10");
  table
      .add("--patience", options.patience, whole(0, 1'000'000),
           "End the run after so many epochs in a row without a better test; 0: not")
      .kept_unless("0");
}

}  // namespace

uint64_t StepOptions::weight_copies() const {
  if (!has_momentum()) return 3;
  return 1U + (momentum > 0 ? 1U : 0U) + (optimizer == "rmsprop" ? 1U : 0U);
}

int64_t StepOptions::shared_batch(int64_t images, int64_t processes) const {
  const int64_t taken = batch_of(images);
  if (taken % processes != 0) {
    throw InvalidArgument(fmt::format("--batch {}: {} processes cannot share {} equally", *batch, processes,
                                      taken < *batch ? "all " + counted(images, "image") : "it"));
  }
  return taken;
}

std::optional<size_t> StepOptions::memory_bytes() const {
  if (memory_limit <= 0) return std::nullopt;
  return static_cast<size_t>(memory_limit * 0x1p30);
}

nn::data::DecodeOn StepOptions::decode_on() const {
  if (decode == "cpu") return nn::data::DecodeOn::kCpu;
  return decode == "gpu" ? nn::data::DecodeOn::kGpu : nn::data::DecodeOn::kAuto;
}

void add_length_rows(OptionTable& table, StepOptions& options, const StepHelp& help) {
  table.add("--epochs", options.epochs, whole(1, 1'000'000), help.epochs);
  add_batch_row(table, options.batch, options.batch_auto, help.batch);
  table
      .add("--accumulate", options.accumulate, whole(1, 1'000'000),
           "Batches whose gradients make one step; those left over at the end of an epoch are passed over")
      .kept_unless("1");
}

std::vector<std::string> optimizer_names() {
  return {"sgd", "adamw", "adam", "rmsprop", "lars", "lamb"};
}

void add_optimizer_rows(OptionTable& table, StepOptions& options, const StepHelp& help) {
  table.add("--optimizer", options.optimizer, one_of(optimizer_names()), "What changes the weights");
  table.add("--lr", options.lr, number(1e-9, 1e3), help.lr).of_optimizers(optimizer_names());
  table.add("--schedule", options.schedule,
            one_of({"one-cycle", "cosine", "step", "multi-step", "polynomial", "plateau", "constant"}),
            "Learning rate over the run, step by step");
  table.add("--warmup", options.warmup, number(0, 1), help.warmup);
  add_course_rows(table, options.course, help);
  table.add("--momentum", options.momentum, number(0, 0.99999), "Momentum of sgd, rmsprop and lars")
      .of_optimizers({"sgd", "rmsprop", "lars"});
  table
      .add("--cycle-momentum", options.course.cycle_momentum,
           "Under one-cycle, move the momentum from 0.95 down to 0.85 at the largest learning rate, and back")
      .kept_unless("false")
      .of_optimizers({"sgd"});
  table.add("--nesterov,!--no-nesterov", options.nesterov, help.nesterov).of_optimizers({"sgd", "lars"});
  table
      .add("--trust-coefficient", options.trust_coefficient, number(1e-9, 1e3),
           "Length of a step of lars in units of a weight's norm, times the learning rate")
      .of_optimizers({"lars"});
  table
      .add("--beta1", options.beta1, number(0, 0.99999),
           "What adamw, adam and lamb keep of their mean of gradients at each step")
      .of_optimizers({"adamw", "adam", "lamb"});
  table.add("--beta2", options.beta2, number(0, 0.9999999), "The same for their squares")
      .of_optimizers({"adamw", "adam", "lamb"});
  table.add("--weight-decay", options.weight_decay, number(0, 1e3), help.weight_decay)
      .of_optimizers(optimizer_names());
  table.add("--decay-norms,!--no-decay-norms", options.decay_norms, help.decay_norms);
  table.add("--ema", options.ema, number(0, 0.9999999), help.ema).kept_unless("0");
  table.add("--clip", options.clip, number(0, 1e9), "Largest norm of the gradients; 0: no limit");
}

std::string check_course(const StepOptions& options, const std::set<std::string>& given) {
  struct Owner {
    const char *option, *schedule;
  };
  for (const Owner& owner :
       {Owner{"--milestones", "multi-step"}, Owner{"--power", "polynomial"},
        Owner{"--plateau-patience", "plateau"}, Owner{"--cycle-momentum", "one-cycle"}}) {
    const bool is_off = owner.schedule == std::string_view("one-cycle") && !options.course.cycle_momentum;
    if (given.contains(owner.option) && !is_off && options.schedule != owner.schedule)
      return fmt::format("{} is of --schedule {}, not {}", owner.option, owner.schedule, options.schedule);
  }
  if (given.contains("--gamma") && options.schedule != "multi-step" && options.schedule != "plateau")
    return fmt::format("--gamma is of --schedule multi-step and plateau, not {}", options.schedule);
  if (options.schedule == "multi-step" && options.course.milestones.empty())
    return "--schedule multi-step needs --milestones, as in 30,60,80";
  return {};
}

std::string describe_optimizer(const StepOptions& options) {
  std::string text =
      fmt::format("learning rate {} ({}, warm-up {}), ", *options.lr, options.schedule,
                  options.course.warmup_epochs > 0 ? counted(options.course.warmup_epochs, "epoch")
                                                   : fmt::format("{:.0f} %", 100 * *options.warmup));
  if (options.course.cycle_momentum) {
    text += "momentum 0.95 to 0.85 and back";
  } else if (options.has_momentum()) {
    text += fmt::format("momentum {}{}", options.momentum, *options.nesterov ? " (Nesterov)" : "");
  } else {
    text += fmt::format("betas {} and {}", options.beta1, options.beta2);
  }
  if (options.optimizer == "lars") text += fmt::format(", trust coefficient {}", options.trust_coefficient);
  if (options.ema > 0) text += fmt::format(", averages keep {}", options.ema);
  return text + fmt::format(", weight decay {}", *options.weight_decay);
}

std::string describe_length(const StepOptions& options, int64_t images, uint64_t seed) {
  const std::string series =
      options.accumulate > 1 ? fmt::format(" {} times a step", options.accumulate) : "";
  const std::string fewer =
      *options.batch > images ? fmt::format(" (all images, fewer than --batch {})", *options.batch) : "";
  return fmt::format("{}, batch {}{}{}, seed {}", counted(*options.epochs, "epoch"), options.batch_of(images),
                     fewer, series, seed);
}

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
  if (!numbers) throw InvalidArgument(fmt::format("{} {}: expected numbers from 0 on", option, text));
  return *numbers;
}

}  // namespace sinter::examples
