#include "trainer/plan_options.h"

#include <charconv>

#include <fmt/core.h>

#include "run/command_line.h"
#include "trainer/trainer_options.h"

namespace sinter::examples {
namespace {

constexpr double kMiB = 0x1p20, kGiB = 0x1p30;

Check bytes() {
  return {[](const std::string& text) {
            return parse_bytes(text) ? std::string()
                                     : fmt::format("expected bytes as in 80GiB or 512MiB but got '{}'", text);
          },
          "BYTES"};
}

Check batch_size() {
  return {[](const std::string& text) {
            return text == "auto" ? std::string() : whole(1, 1'000'000).mistake(text);
          },
          "INT|auto"};
}

}  // namespace

std::optional<size_t> parse_bytes(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !(number > 0) || number > 1e6) return std::nullopt;
  const std::string name(unit, end);
  if (name != "GiB" && name != "MiB") return std::nullopt;
  return static_cast<size_t>(number * (name == "GiB" ? kGiB : kMiB));
}

std::string bytes_text(size_t bytes) {
  const auto number = static_cast<double>(bytes);
  return number < kGiB ? fmt::format("{:.1f} MiB", number / kMiB) : fmt::format("{:.2f} GiB", number / kGiB);
}

void add_plan_rows(OptionTable& table, PlanOptions& options) {
  table.add(
      "--plan", options.plan,
      "Tell what the run will take of memory, time and energy, and end: nothing is written. Time is that "
      "of 20 steps and of a part of the tests");
  table.add(
      "--for", options.for_text,
      [&options](const std::string& text) {
        options.for_text = text;
        options.memory = parse_bytes(text).value_or(0);
      },
      bytes(),
      "Memory that --plan and --batch auto count on, as 80GiB, in place of what is free. --plan takes it for "
      "a GPU's unless --device says otherwise");
}

void add_batch_row(OptionTable& table, std::optional<int64_t>& batch, bool& is_auto, const char* help) {
  table.add(
      "--batch", batch,
      [&batch, &is_auto](const std::string& text) {
        is_auto = text == "auto";
        batch.reset();
        if (!is_auto) batch = std::stoll(text);
      },
      batch_size(), help);
}

std::string check_plan(const TrainerOptions& options) {
  const char* const asked = options.plan ? "--plan" : options.batch_auto ? "--batch auto" : nullptr;
  if (asked == nullptr) return options.memory > 0 ? "--for needs --plan or --batch auto" : std::string();
  if (!options.job) return fmt::format("{} is of jobs: leave --eager out", asked);
  if (options.plan && options.evaluate) return "--plan is of training: leave --evaluate out";
  return {};
}

}  // namespace sinter::examples
