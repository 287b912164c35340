#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include <sinter/core/op/registry.h>
#include <sinter/nn/job/html/graph_drawing.h>
#include <sinter/nn/job/html/html_text.h>

namespace sinter::nn::html {
namespace {

using passes::GraphStage;
using passes::HistoryNode;

// Of the drawing, in pixels at its own size.
constexpr int kWidth = 372, kLanes = 50, kLane = 8, kMostLanes = 6;
constexpr int kBox = 36, kBoxWithWords = 51, kGap = 10;
constexpr size_t kLetters = 43;  // that a box has room for
constexpr double kLetterWidth = 6.95, kSmallLetterWidth = 6.35;
constexpr size_t kFar = 14;  // rows; lines of inputs from further away are left out
constexpr size_t kListedScopes = 6;

struct MarkStyle {
  const char *name, *sign, *words;
};
constexpr std::array<MarkStyle, 5> kMarks = {{{"same", "", "as it was"},
                                              {"changed", "~ ", "changed"},
                                              {"moved", "↕ ", "moved"},
                                              {"removed", "− ", "taken out"},
                                              {"added", "+ ", "put in"}}};

const MarkStyle& style_of(Mark mark) {
  return kMarks[static_cast<size_t>(mark)];
}

using Places = std::map<int64_t, size_t>;

Places places_of(const GraphStage& stage) {
  Places places;
  for (size_t i = 0; i < stage.nodes.size(); ++i) places[stage.nodes[i]->id] = i;
  return places;
}

/// "#3, conv1.weight"
std::string inputs_text(const HistoryNode& node, const Places& places) {
  std::string text;
  for (const HistoryNode::Input& input : node.inputs) {
    if (input.producer < 0 && input.name.empty()) continue;
    text += (text.empty() ? "" : ", ") +
            (input.producer >= 0 ? fmt::format("#{}", places.at(input.producer)) : input.name);
  }
  return text;
}

std::string type_of(const HistoryNode& node) {
  return node.outputs.empty() ? std::string() : type_text(node.outputs[0]);
}

/// One side of a block.
class Side {
 public:
  Side(const std::vector<DiffRow>& rows, const DiffBlock& block, bool is_after, const Places& places)
      : rows_(rows), block_(block), is_after_(is_after), places_(places) {
    int y = kGap;
    for (size_t i = block.first; i < block.end; ++i) {
      tops_.push_back(y);
      y += height_of(rows[i]) + kGap;
      if (cell(i).node != nullptr) rows_of_[cell(i).node->id] = i;
    }
    bottom_ = y;
  }

  std::string svg(const std::string& name) const {
    std::string boxes;
    for (size_t i = block_.first; i < block_.end; ++i) {
      if (cell(i).node != nullptr) boxes += box(i);
    }
    return fmt::format(
        "<svg viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" aria-label=\"{}\"><path "
        "class=\"e\" "
        "d=\"{}\"/>{}</svg>",
        kWidth, bottom_, kWidth, bottom_, escaped(label(name)), lines(), boxes);
  }

 private:
  const DiffCell& cell(size_t row) const { return is_after_ ? rows_[row].after : rows_[row].before; }
  int top(size_t row) const { return tops_[row - block_.first]; }
  static int height_of(const DiffRow& row) {
    return row.before.mark == Mark::kChanged ? kBoxWithWords : kBox;
  }

  std::string label(const std::string& name) const {
    std::string text = fmt::format("{} {}:", is_after_ ? "after" : "before", name);
    bool any = false;
    for (size_t i = block_.first; i < block_.end; ++i) {
      const DiffCell& here = cell(i);
      if (here.node == nullptr) continue;
      text += fmt::format("{} {}{}", any ? "," : "", here.node->op->name(),
                          here.mark == Mark::kSame ? "" : fmt::format(" ({})", style_of(here.mark).words));
      any = true;
    }
    return any ? text : text + " nothing";
  }

  std::string box(size_t row) const {
    const DiffCell& here = cell(row);
    const HistoryNode& node = *here.node;
    const MarkStyle& style = style_of(here.mark);
    const int y = top(row), x = kLanes, height = height_of(rows_[row]);
    const std::string head = fmt::format("{}#{} {}", style.sign, here.place, node.op->name());
    const std::string type = type_of(node);
    const auto width_of = [](const std::string& letters, double width) {
      return width * static_cast<double>(letters.size());
    };
    const bool type_fits =
        width_of(head, kLetterWidth) + width_of(type, kSmallLetterWidth) < kWidth - kLanes - 24;
    const std::string inputs = inputs_text(node, places_);
    const std::string attributes = to_string(node.attributes);
    std::string text = fmt::format(
        "<g class=\"n {}\"><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
        "rx=\"4\"/><text "
        "x=\"{}\" y=\"{}\">{}</text><text class=\"t\" x=\"{}\" y=\"{}\">{}</text><text class=\"s\" x=\"{}\" "
        "y=\"{}\">{}</text>",
        style.name,
        escaped(fmt::format("{}{}({}){}", node.op->name(),
                            node.scope.empty() ? "" : " in " + node.scope + " ", inputs,
                            attributes.empty() ? "" : " {" + attributes + "}")),
        x, y, kWidth - kLanes - 2, height, x + 7, y + 15, escaped(beginning(head, kLetters - 6)), kWidth - 8,
        y + 15, escaped(type_fits ? type : ""), x + 7, y + 29, escaped(where(node, inputs)));
    if (here.mark == Mark::kChanged) {
      text += fmt::format(
          "<text class=\"s w\" x=\"{}\" y=\"{}\">{}</text>", x + 7, y + 44,
          escaped(beginning(difference(*rows_[row].before.node, *rows_[row].after.node), kLetters + 4)));
    }
    return text + "</g>";
  }

  /// "layer1.0.conv1 ← #3, conv1.weight", as much as there is room for.
  static std::string where(const HistoryNode& node, const std::string& inputs) {
    constexpr size_t kRoom = kLetters + 4;
    const std::string scope = ending(node.scope, kRoom / 2);
    if (inputs.empty()) return scope;
    return beginning(fmt::format("{}{}← {}", scope, scope.empty() ? "" : " ", inputs), kRoom);
  }

  /// From the box of each input nearby: straight down where nothing is between, else in a lane on the left.
  std::string lines() const {
    std::string path;
    std::vector<size_t> lane_ends(kMostLanes, 0);  // the row up to which a lane is taken, plus one
    for (size_t row = block_.first; row < block_.end; ++row) {
      if (cell(row).node == nullptr) continue;
      std::set<size_t> from;
      for (const HistoryNode::Input& input : cell(row).node->inputs) {
        const auto found = rows_of_.find(input.producer);
        if (found != rows_of_.end() && found->second < row && row - found->second <= kFar)
          from.insert(found->second);
      }
      for (const size_t source : from) path += line(source, row, lane_ends);
    }
    return path;
  }

  std::string line(size_t source, size_t row, std::vector<size_t>& lane_ends) const {
    const int from = top(source) + height_of(rows_[source]), to = top(row);
    bool direct = true;
    for (size_t i = source + 1; i < row; ++i) direct = direct && cell(i).node == nullptr;
    if (direct) return fmt::format("M{} {}V{}", kLanes + 24, from, to);
    size_t lane = 0;
    while (lane + 1 < lane_ends.size() && lane_ends[lane] > source) ++lane;
    lane_ends[lane] = std::max(lane_ends[lane], row);
    const int x = kLanes - 6 - static_cast<int>(lane) * kLane;
    return fmt::format("M{} {}H{}V{}H{}", kLanes, from - 8, x, to + 8, kLanes);
  }

  const std::vector<DiffRow>& rows_;
  const DiffBlock& block_;
  bool is_after_;
  const Places& places_;
  std::vector<int> tops_;
  std::map<int64_t, size_t> rows_of_;
  int bottom_ = 0;
};

/// Blocks that are folded away together.
class Folded {
 public:
  bool empty() const { return inner_.empty(); }
  void add_same(size_t rows, const std::string& inner) {
    same_ += rows;
    inner_ += inner;
  }
  void add_alike(const std::string& scope, const std::string& inner) {
    ++alike_;
    if (!scope.empty() && std::ranges::find(scopes_, scope) == scopes_.end()) scopes_.push_back(scope);
    inner_ += inner;
  }

  std::string take() {
    if (empty()) return {};
    std::string words;
    if (alike_ > 0) {
      words = fmt::format("{} changed as one above is", counted(alike_, "more place"));
      if (!scopes_.empty()) {
        words += fmt::format(
            " ({}{})",
            fmt::join(scopes_.begin(),
                      scopes_.begin() + static_cast<std::ptrdiff_t>(std::min(scopes_.size(), kListedScopes)),
                      ", "),
            scopes_.size() > kListedScopes ? ", …" : "");
      }
    }
    if (same_ > 0) words += fmt::format("{}{} as before", words.empty() ? "" : "; ", counted(same_, "call"));
    std::string text =
        fmt::format("<details class=\"fold\"><summary>{}</summary>{}</details>\n", escaped(words), inner_);
    *this = {};
    return text;
  }

 private:
  size_t same_ = 0, alike_ = 0;
  std::vector<std::string> scopes_;
  std::string inner_;
};

std::string listed(const std::vector<DiffRow>& rows, const DiffBlock& block, const Places& places) {
  std::string text = "<ol class=\"run\">";
  for (size_t i = block.first; i < block.end; ++i) {
    const HistoryNode& node = *rows[i].after.node;
    text += fmt::format("<li><b>#{} {}</b> {} {}{}</li>", rows[i].after.place, escaped(node.op->name()),
                        escaped(node.scope), escaped(type_of(node)),
                        escaped(node.inputs.empty() ? "" : " ← " + inputs_text(node, places)));
  }
  return text + "</ol>";
}

/// Where in the model the first change of a block is.
std::string scope_of(const std::vector<DiffRow>& rows, const DiffBlock& block) {
  for (size_t i = block.first; i < block.end; ++i) {
    if (rows[i].is_same()) continue;
    const auto& [before, after] = rows[i];
    const std::string& scope = after.node != nullptr ? after.node->scope : before.node->scope;
    if (!scope.empty()) return scope;
  }
  return {};
}

}  // namespace

std::string draw_change(const GraphStage& before, const GraphStage& after, const std::string& name) {
  const std::vector<DiffRow> rows = diff(before, after);
  const Places old_places = places_of(before), new_places = places_of(after);
  std::string text;
  Folded folded;
  std::set<std::string> seen;
  for (const DiffBlock& block : blocks(rows)) {
    if (!block.changed) {
      folded.add_same(block.end - block.first, listed(rows, block, new_places));
      continue;
    }
    const std::string pair = fmt::format(
        "<div class=\"pair\"><figure><figcaption>before</figcaption>{}</figure><figure><figcaption>after"
        "</figcaption>{}</figure></div>\n",
        Side(rows, block, false, old_places).svg(name), Side(rows, block, true, new_places).svg(name));
    if (seen.insert(block.pattern).second) {
      text += folded.take() + pair;
    } else {
      folded.add_alike(scope_of(rows, block), pair);
    }
  }
  return text + folded.take();
}

}  // namespace sinter::nn::html
