#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <sinter/core/op/registry.h>
#include <sinter/nn/job/html/graph_diff.h>

namespace sinter::nn::html {
namespace {

using passes::GraphStage;
using passes::HistoryNode;

constexpr size_t kContext = 1;       // rows around changed ones
constexpr size_t kManyRows = 16;     // more are cut where a part of the model ends
constexpr size_t kSmallestPart = 4;  // rows, of what is cut

std::map<int64_t, size_t> indices_of(const GraphStage& stage) {
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < stage.nodes.size(); ++i) places[stage.nodes[i]->id] = i;
  return places;
}

/// The calls of both that need not be moved: a longest rising sequence of places behind, by place before.
std::vector<std::pair<size_t, size_t>> in_place(const GraphStage& before, const GraphStage& after) {
  const std::map<int64_t, size_t> places = indices_of(after);
  std::vector<std::pair<size_t, size_t>> common;
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    const auto found = places.find(before.nodes[i]->id);
    if (found != places.end()) common.emplace_back(i, found->second);
  }
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> tails, previous(common.size(), kNone);  // of the best sequence of each length: its end
  for (size_t i = 0; i < common.size(); ++i) {
    const auto place =
        std::ranges::lower_bound(tails, common[i].second, {}, [&](size_t k) { return common[k].second; });
    if (place != tails.begin()) previous[i] = *(place - 1);
    if (place == tails.end()) {
      tails.push_back(i);
    } else {
      *place = i;
    }
  }
  std::vector<std::pair<size_t, size_t>> kept;
  for (size_t i = tails.empty() ? kNone : tails.back(); i != kNone; i = previous[i])
    kept.push_back(common[i]);
  std::ranges::reverse(kept);
  return kept;
}

/// "layer1.0" of "layer1.0.conv1"
std::string_view part_of(std::string_view scope) {
  const size_t dot = scope.find('.');
  return dot == std::string_view::npos ? scope : scope.substr(0, scope.find('.', dot + 1));
}

const HistoryNode& node_of(const DiffRow& row) {
  return row.after.node != nullptr ? *row.after.node : *row.before.node;
}

std::string pattern_of(const std::vector<DiffRow>& rows, const DiffBlock& block) {
  std::string text;
  for (size_t i = block.first; i < block.end; ++i) {
    const auto& [before, after] = rows[i];
    for (const DiffCell& cell : {before, after}) {
      text += cell.node != nullptr
                  ? fmt::format("{} {}, ", static_cast<int>(cell.mark), cell.node->op->name())
                  : "none, ";
    }
    if (before.mark == Mark::kChanged) text += difference(*before.node, *after.node);
    text += "\n";
  }
  return text;
}

/// Cuts a block of many rows where the part of the model changes.
void cut(const std::vector<DiffRow>& rows, DiffBlock block, std::vector<DiffBlock>& parts) {
  size_t first = block.first;
  for (size_t i = block.first + 1; i < block.end && block.end - block.first > kManyRows; ++i) {
    const bool ends = part_of(node_of(rows[i]).scope) != part_of(node_of(rows[i - 1]).scope);
    if (!ends || i - first < kSmallestPart || block.end - i < kSmallestPart) continue;
    parts.push_back({first, i, true});
    first = i;
  }
  parts.push_back({first, block.end, true});
}

}  // namespace

std::vector<DiffRow> diff(const GraphStage& before, const GraphStage& after) {
  const std::map<int64_t, size_t> old_places = indices_of(before), new_places = indices_of(after);
  std::vector<DiffRow> rows;
  size_t i = 0, k = 0;
  const auto beside = [&](size_t old_end, size_t new_end) {
    while (i < old_end || k < new_end) {
      DiffRow row;
      if (i < old_end) {
        const HistoryNode* const node = before.nodes[i].get();
        row.before = {node, new_places.contains(node->id) ? Mark::kMoved : Mark::kRemoved, i};
        ++i;
      }
      if (k < new_end) {
        const HistoryNode* const node = after.nodes[k].get();
        row.after = {node, old_places.contains(node->id) ? Mark::kMoved : Mark::kAdded, k};
        ++k;
      }
      rows.push_back(row);
    }
  };
  for (const auto& [old_place, new_place] : in_place(before, after)) {
    beside(old_place, new_place);
    const auto &a = before.nodes[i], &b = after.nodes[k];
    const Mark mark = a == b ? Mark::kSame : Mark::kChanged;
    rows.push_back({{a.get(), mark, i++}, {b.get(), mark, k++}});
  }
  beside(before.nodes.size(), after.nodes.size());
  return rows;
}

std::vector<DiffBlock> blocks(const std::vector<DiffRow>& rows) {
  std::vector<bool> shown(rows.size(), false);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].is_same()) continue;
    for (size_t k = i - std::min(i, kContext); k < std::min(rows.size(), i + kContext + 1); ++k)
      shown[k] = true;
  }
  std::vector<DiffBlock> all;
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    for (end = first; end < rows.size() && shown[end] == shown[first]; ++end) {
    }
    if (shown[first]) {
      cut(rows, {first, end, true}, all);
    } else {
      all.push_back({first, end, false});
    }
  }
  for (DiffBlock& block : all) {
    if (block.changed) block.pattern = pattern_of(rows, block);
  }
  return all;
}

std::string difference(const HistoryNode& before, const HistoryNode& after) {
  std::vector<std::string> words;
  if (!(before.attributes == after.attributes)) {
    const std::string old_text = to_string(before.attributes), new_text = to_string(after.attributes);
    // From the first letter of the field in which they begin to differ to the end of that field.
    const auto differs =
        static_cast<size_t>(std::ranges::mismatch(old_text, new_text).in1 - old_text.begin());
    const size_t comma = old_text.rfind(", ", differs);
    const size_t begin = comma == std::string::npos ? 0 : comma + 2;
    const auto field = [begin, differs](const std::string& text) {
      return text.substr(begin, text.find(", ", std::max(begin, differs)) - begin);
    };
    const std::string old_field = field(old_text), new_field = field(new_text);
    const size_t equals = new_field.find('=');
    words.push_back(
        fmt::format("{} → {}", old_field,
                    equals != std::string::npos && old_field.starts_with(new_field.substr(0, equals + 1))
                        ? new_field.substr(equals + 1)
                        : new_field));
  }
  if (before.outputs != after.outputs) {
    const auto first = std::ranges::mismatch(before.outputs, after.outputs);
    if (first.in1 != before.outputs.end() && first.in2 != after.outputs.end()) {
      const std::string old_type = type_text(*first.in1), new_type = type_text(*first.in2);
      words.push_back(first.in1->dtype != first.in2->dtype
                          ? fmt::format("{} → {}", old_type.substr(0, old_type.find('(')),
                                        new_type.substr(0, new_type.find('(')))
                          : "shape of the result");
    }
  }
  if (before.inputs != after.inputs) words.emplace_back("reads other values");
  if (before.scope != after.scope) words.emplace_back("its place in the model");
  return fmt::format("{}", fmt::join(words, "; "));
}

std::string type_text(const TensorSpec& spec) {
  static const std::map<DType, std::string_view> names = {
      {DType::kFloat32, "f32"}, {DType::kFloat16, "f16"}, {DType::kBFloat16, "bf16"},
      {DType::kFloat64, "f64"}, {DType::kInt64, "i64"},   {DType::kInt32, "i32"},
      {DType::kUInt8, "u8"},    {DType::kBool, "bool"}};
  std::string text(names.at(spec.dtype));
  text += "(";
  for (int i = 0; i < spec.shape.rank(); ++i) text += (i > 0 ? "," : "") + std::to_string(spec.shape[i]);
  return text + ")";
}

}  // namespace sinter::nn::html
