// What the program measures: descriptions that the other side reads, and calls.
#pragma once

#include <functional>
#include <vector>

#include <nlohmann/json.hpp>

#include "sweep_call.h"
#include "sweep_case.h"

namespace sinter::bench {

using Json = nlohmann::ordered_json;

struct Item {
  Json description;
  std::function<SweepCall(Device)> make;
};

std::vector<Item> sweep_items(const SweepDraw& draw);

/// Every registered op that runs a kernel, at one large and one odd shape; with `small` at sizes for trying
/// the program on a CPU. Throws InvalidArgument for an op that needs a case of its own and has none.
std::vector<Item> op_items(bool small);

}  // namespace sinter::bench
