// What the program measures: descriptions that the other side reads, and calls.
#pragma once

#include <functional>
#include <optional>
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

/// The shapes that ops are measured at: a large one and an odd one.
struct OpDraw {
  enum class Scale {
    kGpu,    ///< beyond a GPU's caches, the large one in float16
    kCpu,    ///< of about as many bytes as a CPU's caches hold, in float32
    kSmall,  ///< for trying the program
  };
  Scale scale = Scale::kGpu;
  std::optional<uint64_t> seed = {};  ///< two random shapes instead, of a CPU's scale
  std::optional<DType> dtype = {};    ///< of both
};

/// Every registered op that runs a kernel. Throws InvalidArgument for an op that needs a case of its own and
/// has none.
std::vector<Item> op_items(const OpDraw& draw);

}  // namespace sinter::bench
