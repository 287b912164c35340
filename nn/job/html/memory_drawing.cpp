#include <algorithm>

#include <fmt/format.h>

#include <sinter/core/op/registry.h>
#include <sinter/core/plan/memory_plan.h>
#include <sinter/nn/job/html/graph_diff.h>
#include <sinter/nn/job/html/html_text.h>
#include <sinter/nn/job/html/memory_drawing.h>

namespace sinter::nn::html {
namespace {

constexpr double kDrawingWidth = 1000, kHeight = 340, kLeft = 70, kTop = 22, kBottom = 34;
constexpr size_t kListed = 20;  // of what makes the peak

size_t rounded_up(size_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

/// Bytes in use at each call.
std::vector<size_t> in_use(const Program& program) {
  std::vector<size_t> bytes(program.graph().node_count(), 0);
  for (const ProgramBuffer& buffer : program.buffers()) {
    for (auto i = static_cast<size_t>(buffer.first);
         i <= static_cast<size_t>(buffer.last) && i < bytes.size(); ++i)
      bytes[i] += rounded_up(buffer.bytes);
  }
  return bytes;
}

/// Where the first output of the graph, the loss of a training step, is computed.
size_t step_of_loss(const Program& program) {
  const std::vector<GraphNode*> nodes = program.graph().nodes();
  const auto& outputs = program.graph().outputs();
  const GraphNode* const loss = outputs.empty() ? nullptr : outputs[0].value->root().producer;
  const auto found = std::ranges::find(nodes, loss);
  return static_cast<size_t>(found - nodes.begin());
}

std::string made_by(const ProgramBuffer& buffer) {
  const GraphNode& node = *buffer.value->producer;
  return node.op->name() + (node.scope.empty() ? "" : " in " + node.scope);
}

struct Scale {
  double per_step, per_byte;
  double x(size_t step) const { return kLeft + static_cast<double>(step) * per_step; }
  double y(size_t bytes) const { return kHeight - kBottom - static_cast<double>(bytes) * per_byte; }
};

std::string rectangles(const Program& program, const Scale& scale, size_t loss, size_t steps) {
  std::string text;
  for (const ProgramBuffer& buffer : program.buffers()) {
    if (buffer.bytes == 0) continue;
    const auto first = static_cast<size_t>(buffer.first);
    const size_t end = std::min(steps, static_cast<size_t>(buffer.last) + 1);
    const char* const kind = first > loss ? "back" : end - 1 > loss ? "kept" : "fore";
    text += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{}</title></rect>",
        kind, scale.x(first), scale.y(buffer.offset + buffer.bytes),
        static_cast<double>(end - first) * scale.per_step, static_cast<double>(buffer.bytes) * scale.per_byte,
        escaped(fmt::format("{}, {}, {}, calls {} to {}", made_by(buffer), type_text(buffer.value->spec),
                            size_text(buffer.bytes), first, end - 1)));
  }
  return text;
}

std::string axes(const Scale& scale, size_t arena, size_t steps, const ArenaPeak& peak, size_t loss) {
  std::string text;
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const size_t bytes = arena * static_cast<size_t>(quarter) / 4,
                 step = steps * static_cast<size_t>(quarter) / 4;
    text += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{}\"/><text class=\"r\" x=\"{}\" "
        "y=\"{:.1f}\">{}</text><text "
        "class=\"{}\" x=\"{:.1f}\" y=\"{}\">{}</text>",
        kLeft, scale.y(bytes), kDrawingWidth, kLeft - 6, scale.y(bytes) + 4, size_text(bytes),
        quarter == 4 ? "r" : "m", scale.x(step), kHeight - kBottom + 14, step);
  }
  text += fmt::format("<text class=\"m\" x=\"{:.1f}\" y=\"{}\">calls of the step</text>",
                      (kLeft + kDrawingWidth) / 2, kHeight - 4);
  const double at = scale.x(peak.step) + scale.per_step / 2;
  text += fmt::format(
      "<path class=\"peak\" d=\"M{:.1f} {}V{}\"/><text class=\"{}\" x=\"{:.1f}\" y=\"14\">peak: {} at call "
      "{}</text>",
      at, kTop - 4, kHeight - kBottom, at > kDrawingWidth * 0.7 ? "r" : "",
      at > kDrawingWidth * 0.7 ? at - 4 : at + 4, size_text(peak.bytes), peak.step);
  if (loss < steps) {
    text +=
        fmt::format("<path class=\"loss\" d=\"M{:.1f} {}V{}\"/>", scale.x(loss + 1), kTop, kHeight - kBottom);
  }
  return text;
}

std::string usage_line(const Scale& scale, const std::vector<size_t>& bytes) {
  std::string path;
  for (size_t i = 0; i < bytes.size(); ++i)
    path += fmt::format("{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", scale.x(i), scale.y(bytes[i]),
                        scale.x(i + 1));
  return path;
}

std::string peak_table(const ArenaPeak& peak) {
  std::string rows;
  size_t others = 0;
  for (size_t i = 0; i < peak.alive.size(); ++i) {
    const ProgramBuffer& buffer = *peak.alive[i];
    if (i >= kListed) {
      others += buffer.bytes;
      continue;
    }
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"num\">{:.2f}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td></tr>\n",
        escaped(made_by(buffer)), escaped(type_text(buffer.value->spec)),
        static_cast<double>(buffer.bytes) / 1e6, buffer.first, buffer.last);
  }
  std::string text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"what makes the peak\"><table "
      "class=\"sortable\"><caption>What makes the peak: {} in use at call {}{}</caption><thead><tr><th>made "
      "by</th><th>type</th><th class=\"num\">MB</th><th class=\"num\">from call</th><th class=\"num\">to "
      "call</th></tr></thead><tbody>\n{}</tbody></table></div>\n",
      counted(peak.alive.size(), "buffer"), peak.step,
      peak.alive.size() > kListed ? fmt::format(", the {} largest of them here; the others have {} together",
                                                kListed, size_text(others))
                                  : "",
      rows);
  return text;
}

}  // namespace

ArenaPeak peak_of(const Program& program) {
  const std::vector<size_t> bytes = in_use(program);
  ArenaPeak peak;
  if (bytes.empty()) return peak;
  const auto largest = std::ranges::max_element(bytes);
  peak.bytes = *largest;
  peak.step = static_cast<size_t>(largest - bytes.begin());
  for (const ProgramBuffer& buffer : program.buffers()) {
    if (static_cast<size_t>(buffer.first) <= peak.step && peak.step <= static_cast<size_t>(buffer.last) &&
        buffer.bytes > 0)
      peak.alive.push_back(&buffer);
  }
  std::ranges::stable_sort(peak.alive, std::greater(), &ProgramBuffer::bytes);
  return peak;
}

std::string draw_memory(const Program& program) {
  const size_t steps = program.graph().node_count(), arena = program.stats().arena_bytes;
  const ArenaPeak peak = peak_of(program);
  if (peak.bytes == 0) return "<p>Nothing lies between the calls.</p>\n";
  const Scale scale{(kDrawingWidth - kLeft) / static_cast<double>(steps),
                    (kHeight - kTop - kBottom) / static_cast<double>(arena)};
  const size_t loss = step_of_loss(program);
  const std::string label =
      fmt::format("The arena over the step: {} buffers in {}; most is in use at call {}, {}",
                  program.buffers().size(), size_text(arena), peak.step, size_text(peak.bytes));
  return fmt::format(
             "<p class=\"legend\"><span><i class=\"kept\"></i> kept from the forward pass for "
             "gradients</span>"
             "<span><i class=\"fore\"></i> forward only</span><span><i class=\"back\"></i> gradients and "
             "update</span>"
             " The line shows how much is in use, dashes where the loss is there.</p>\n<div class=\"scroll\" "
             "tabindex=\"0\" "
             "role=\"region\" aria-label=\"the arena as a picture\"><svg class=\"memory\" viewBox=\"0 0 {} "
             "{}\" "
             "role=\"img\" aria-label=\"{}\">{}<g>{}</g><path class=\"use\" d=\"{}\"/></svg></div>\n",
             kDrawingWidth, kHeight, escaped(label), axes(scale, arena, steps, peak, loss),
             rectangles(program, scale, loss, steps), usage_line(scale, in_use(program))) +
         peak_table(peak);
}

}  // namespace sinter::nn::html
