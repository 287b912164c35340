// What a pass did to a graph, as rows of two columns: before and after.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sinter/passes/history/graph_history.h>

namespace sinter::nn::html {

enum class Mark : uint8_t { kSame, kChanged, kMoved, kRemoved, kAdded };

/// A call on one side; `place` is its number in the graph, in program order.
struct DiffCell {
  const passes::HistoryNode* node = nullptr;
  Mark mark = Mark::kSame;
  size_t place = 0;
};

/// A call that stayed stands on both sides of a row. One that was taken out, put in or moved stands on one
/// side, beside another or nothing.
struct DiffRow {
  DiffCell before, after;
  bool is_same() const { return before.mark == Mark::kSame && after.mark == Mark::kSame; }
};

/// Every call of both stages once.
std::vector<DiffRow> diff(const passes::GraphStage& before, const passes::GraphStage& after);

/// Rows in a row: with changes among them, or all as they were.
struct DiffBlock {
  size_t first = 0, end = 0;
  bool changed = false;
  /// Blocks with the same text changed in the same way.
  std::string pattern = {};
};

/// Changed rows with a row of what is around them, cut where a part of the model ends if they are many; and
/// what lies between.
std::vector<DiffBlock> blocks(const std::vector<DiffRow>& rows);

/// "layout: NCHW → NHWC; results: f32 → bf16; inputs": how a call that stayed differs; empty if it does not.
std::string difference(const passes::HistoryNode& before, const passes::HistoryNode& after);

/// "f32(8,3,3,8)"
std::string type_text(const TensorSpec& spec);

}  // namespace sinter::nn::html
