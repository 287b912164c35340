// What a run is asked about before it begins: --plan, --for and --batch auto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/option_table.h"

namespace sinter::examples {

struct TrainerOptions;

struct PlanOptions {
  bool plan = false;     // tell what the run will take, and end
  size_t memory = 0;     // bytes that the device has for it; 0: those that are free
  std::string for_text;  // the same as it was given
};

/// --plan and --for.
void add_plan_rows(OptionTable& table, PlanOptions& options);
/// --batch, a number or "auto", which leaves `batch` empty and sets `is_auto`.
void add_batch_row(OptionTable& table, std::optional<int64_t>& batch, bool& is_auto, const char* help);

/// Mistakes in how these go with others; empty if there is none.
std::string check_plan(const TrainerOptions& options);

/// The bytes of "80GiB" or "512MiB"; none for another text.
std::optional<size_t> parse_bytes(const std::string& text);
/// "12.34 GiB", or "5.6 MiB" below one.
std::string bytes_text(size_t bytes);

}  // namespace sinter::examples
