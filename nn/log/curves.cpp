#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string_view>

#include <fmt/core.h>

#include <sinter/core/text/printable.h>
#include <sinter/nn/log/curves.h>

namespace sinter::nn {
namespace {

// Pixels of the picture's own system; browsers scale it.
constexpr double kWidth = 760, kHeight = 320, kLeft = 70, kRight = 20, kTop = 44, kBottom = 48;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr double kLetter = 7.2;  // about the width of one
constexpr double kLegendRow = 24;
constexpr size_t kLongestName = 80;  // letters in the legend
constexpr size_t kMostDots = 60;     // points of a curve that are marked one by one
constexpr size_t kColours = 10;

constexpr const char* kStyle = R"(<style>
svg { background: #ffffff; font: 13px sans-serif; }
text { fill: #24292f; } .title { font-weight: bold; font-size: 15px; }
.mark { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.grid { stroke: #d8dee4; } .axis { stroke: #57606a; } .curve { fill: none; stroke-width: 2; }
.dashed { stroke-width: 1.5; stroke-dasharray: 5 4; }
.c0 { stroke: #0969da; } .c1 { stroke: #cf5a00; } .c2 { stroke: #1a7f37; } .c3 { stroke: #8250df; }
.c4 { stroke: #d63384; } .c5 { stroke: #6e7781; } .c6 { stroke: #0a8a8a; } .c7 { stroke: #7a7a00; }
.c8 { stroke: #cf222e; } .c9 { stroke: #24292f; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; } text { fill: #e6edf3; } .mark { stroke: #0d1117; } .grid { stroke: #30363d; } .axis { stroke: #8d96a0; }
.c0 { stroke: #58a6ff; } .c1 { stroke: #ffa657; } .c2 { stroke: #3fb950; } .c3 { stroke: #bc8cff; }
.c4 { stroke: #ff7bc2; } .c5 { stroke: #9ea7b3; } .c6 { stroke: #39c5cf; } .c7 { stroke: #d9d04a; }
.c8 { stroke: #ff6b63; } .c9 { stroke: #f0f6fc; }
}
</style>
)";

/// Text for an XML file, in which some characters may not stand.
std::string escape(const std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\xEF\xBF\xBE", "\\ufffe"}, {"\xEF\xBF\xBF", "\\uffff"}};
  std::string escaped = printable(text);
  for (const auto& [from, to] : kReplaced) {
    for (size_t at = escaped.find(from); at != std::string::npos; at = escaped.find(from, at + to.size()))
      escaped.replace(at, from.size(), to);
  }
  return escaped;
}

/// Where the letters of a UTF-8 text begin.
std::vector<size_t> letters_of(const std::string& text) {
  std::vector<size_t> begins;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) begins.push_back(i);
  }
  return begins;
}

/// The names of all curves, each once; a curve's colour is its name's place.
std::vector<std::string> names_of(std::span<const Chart> charts) {
  std::vector<std::string> names;
  for (const Chart& chart : charts) {
    for (const Curve& curve : chart.curves) {
      if (std::ranges::find(names, curve.name) == names.end()) names.push_back(curve.name);
    }
  }
  return names;
}

/// A name for the legend: of a long one, as a path may be, the end.
std::string legend_name(const std::string& name) {
  std::string text = printable(name);
  const std::vector<size_t> letters = letters_of(text);
  return letters.size() <= kLongestName ? text
                                        : "…" + text.substr(letters[letters.size() - kLongestName + 1]);
}

/// Names beside their colours, in columns above all charts, and the height that they take.
std::pair<std::string, double> draw_legend(const std::vector<std::string>& names) {
  size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, letters_of(legend_name(name)).size());
  if (longest == 0) return {};
  const double width = kLetter * static_cast<double>(longest) + 36;
  const auto columns = static_cast<size_t>(std::max(1.0, kPlotWidth / width));
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const double x = kLeft + width * static_cast<double>(i % columns);
    const double y = kLegendRow * static_cast<double>(i / columns + 1);
    text += fmt::format("<path class=\"curve c{}\" d=\"M{:.1f} {:.1f}h20\"/>\n", i % kColours, x, y - 4);
    text +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 26, y, escape(legend_name(names[i])));
  }
  return {text, kLegendRow * static_cast<double>((names.size() + columns - 1) / columns) + kLegendRow / 2};
}

bool is_drawn(const std::pair<double, double>& point) {
  constexpr double kMost = 1e100;  // beyond it an axis cannot be divided
  return std::abs(point.first) < kMost && std::abs(point.second) < kMost;  // false for NaN
}

/// Where an axis begins and ends, and the distance of its marks: 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, step = 0.2;
};

/// An axis with at most `marks` steps, which holds all values; it ends on marks if `on_marks`.
Axis make_axis(double low, double high, double marks, bool on_marks) {
  if (!(low <= high)) return {};
  if (high - low <= std::max(1e-9 * std::max(std::abs(low), std::abs(high)), 1e-100)) {
    const double around = std::max(std::abs(low) * 0.1, 1e-6);
    low -= around;
    high += around;
  }
  const double wanted = (high - low) / marks;
  const double power = std::pow(10.0, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= wanted * (1 - 1e-9)) step = factor * power;
  }
  if (!on_marks) return {low, high, step};
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

using Range = std::pair<double, double>;
constexpr Range kNothing = {std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};

/// From the least to the greatest value of all curves along one coordinate, and of `range`.
template <class Get>
Range range_of(const Chart& chart, Get&& get, Range range = kNothing) {
  auto [low, high] = range;
  for (const Curve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (!is_drawn(point)) continue;
      low = std::min(low, get(point));
      high = std::max(high, get(point));
    }
  }
  return {low, high};
}

/// Where the axis may end: the largest value, unless leaving out a tenth of the values at most makes the
/// range of the others a tenth of the whole or less.
double top_of(const Chart& chart, double low, double high) {
  constexpr double kFlattened = 10;  // so many times higher than it has to be
  constexpr size_t kFewest = 3;      // values that an axis is made for
  std::vector<double> values;
  for (const Curve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (is_drawn(point)) values.push_back(point.second);
    }
  }
  std::ranges::sort(values, std::greater<>());
  const size_t most = std::max(values.size() / 10, chart.curves.size());
  for (size_t left_out = 1; left_out <= most && left_out + kFewest <= values.size(); ++left_out) {
    const double range = values[left_out] - low;
    if (range > 0 && range * kFlattened <= high - low) return values[left_out];
  }
  return high;
}

/// "0.25", "25 %" or "1e+06", with as many digits as the distance of marks asks for.
std::string mark_text(double value, double step, bool percent) {
  const double scale = percent ? 100 : 1;
  const double shown = std::abs(value) < step * 1e-6 ? 0.0 : value * scale;
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step * scale) - 1e-9)), 0, 6);
  const bool plain = std::abs(shown) < 1e6 && step * scale >= 1e-6;
  return plain ? fmt::format("{:.{}f}{}", shown, digits, percent ? " %" : "") : fmt::format("{:.3g}", shown);
}

/// Writes one chart whose upper left corner is (0, 0).
class ChartDrawer {
 public:
  ChartDrawer(const Chart& chart, Range along, const std::vector<std::string>& names)
      : chart_(chart), names_(names) {
    const auto [low, high] = range_of(chart, [](const auto& point) { return point.second; });
    x_ = make_axis(along.first, along.second, 10, false);
    const double width = along.second - along.first;
    if (width >= 1 || width == 0) x_.step = std::max(x_.step, 1.0);  // epochs and steps are whole
    y_ = make_axis(low, top_of(chart, low, high), 5, true);
  }

  std::string draw() const {
    std::string text =
        fmt::format("<text class=\"title\" x=\"{}\" y=\"20\">{}</text>\n", kLeft, escape(chart_.title));
    text += axes();
    text += "<g clip-path=\"url(#plot)\">\n";
    for (const Curve& each : chart_.curves) {
      const auto place = std::ranges::find(names_, each.name) - names_.begin();
      text += curve(each, static_cast<size_t>(place) % kColours);
    }
    return text + "</g>\n" + beyond();
  }

 private:
  double x_of(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * kPlotWidth; }
  /// Not so far above the plot that a viewer could not count it.
  double y_of(double y) const {
    return std::max(kTop + (y_.high - y) / (y_.high - y_.low) * kPlotHeight, -100 * kPlotHeight);
  }

  std::string axes() const {
    std::string text;
    const auto line = [&](const char* kind, double x1, double y1, double x2, double y2) {
      text += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                          kind, x1, y1, x2, y2);
    };
    constexpr double kEnd = kTop + kPlotHeight;
    for (int i = 0; y_.low + i * y_.step <= y_.high + y_.step / 2; ++i) {
      const double value = y_.low + i * y_.step, y = y_of(value);
      line("grid", kLeft, y, kLeft + kPlotWidth, y);
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 4,
                          mark_text(value, y_.step, chart_.percent));
    }
    const double first = std::ceil(x_.low / x_.step - 1e-9) * x_.step;
    for (int i = 0; first + i * x_.step <= x_.high + x_.step * 1e-6; ++i) {
      const double value = first + i * x_.step, x = x_of(value);
      line("axis", x, kEnd, x, kEnd + 5);
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x, kEnd + 19,
                          mark_text(value, x_.step, false));
    }
    line("axis", kLeft, kTop, kLeft, kEnd);
    line("axis", kLeft, kEnd, kLeft + kPlotWidth, kEnd);
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                        kLeft + kPlotWidth / 2, kHeight - 10, escape(chart_.x_label));
    return text;
  }

  /// A line through the points, broken where one is not finite, with a dot for each if they are few.
  std::string curve(const Curve& curve, size_t colour) const {
    constexpr double kSeen = 0.5;  // pixels; a point nearer to the one before cannot be told from it
    std::string path, dots;
    bool broken = true;
    double last_x = 0, last_y = 0;
    for (const auto& point : curve.points) {
      const bool was_broken = std::exchange(broken, !is_drawn(point));
      if (broken) continue;
      const double x = x_of(point.first), y = y_of(point.second);
      if (!was_broken && std::abs(x - last_x) < kSeen && std::abs(y - last_y) < kSeen) continue;
      last_x = x;
      last_y = y;
      path += fmt::format("{}{:.1f} {:.1f}", was_broken ? 'M' : 'L', x, y);
      if (curve.points.size() <= kMostDots)
        dots +=
            fmt::format("<circle class=\"curve c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"/>\n", colour, x, y);
    }
    if (path.empty()) return {};
    return fmt::format("<path class=\"curve c{}{}\" d=\"{}\"/>\n{}", colour, curve.dashed ? " dashed" : "",
                       path, dots);
  }

  /// Of the points above the plot, if there are any, how many they are, and an arrow where the highest is.
  std::string beyond() const {
    std::pair<double, double> highest = {0, y_.high};
    size_t above = 0, all = 0;
    for (const Curve& curve : chart_.curves) {
      for (const auto& point : curve.points) {
        if (!is_drawn(point)) continue;
        ++all;
        if (point.second <= y_.high + 1e-9 * std::abs(y_.high)) continue;
        ++above;
        if (point.second > highest.second) highest = point;
      }
    }
    if (above == 0) return {};
    const std::string value =
        fmt::format("{:.4g}{}", chart_.percent ? 100 * highest.second : highest.second, percent_sign());
    const double x = x_of(highest.first);
    const bool is_right = x > kLeft + kPlotWidth / 2;
    return fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">clipped: {} of {} points, up to {}</text>\n"
        "<text class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\"{}>&#9650; {}</text>\n",
        kLeft + kPlotWidth, 20.0, above, all, value, is_right ? x - 4 : x + 4, kTop + 12,
        is_right ? " text-anchor=\"end\"" : "", value);
  }

  const char* percent_sign() const { return chart_.percent ? " %" : ""; }

  const Chart& chart_;
  const std::vector<std::string>& names_;
  Axis x_, y_;
};

}  // namespace

std::string draw_charts(std::span<const Chart> charts) {
  const std::vector<std::string> names = names_of(charts);
  const auto [legend, top] = draw_legend(names);
  std::map<std::string, Range> along;
  for (const Chart& chart : charts) {
    Range& range = along.try_emplace(chart.x_label, kNothing).first->second;
    range = range_of(
        chart, [](const auto& point) { return point.first; }, range);
  }
  const double height = top + kHeight * static_cast<double>(std::max<size_t>(charts.size(), 1));
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\">\n{2}{3}",
      kWidth, height, kStyle, legend);
  // Curves stay within the plot, and the halves of dots on its edge are seen.
  text +=
      fmt::format("<clipPath id=\"plot\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n",
                  kLeft - 4, kTop - 4, kPlotWidth + 8, kPlotHeight + 8);
  for (size_t i = 0; i < charts.size(); ++i) {
    text += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", top + kHeight * static_cast<double>(i),
                        ChartDrawer(charts[i], along[charts[i].x_label], names).draw());
  }
  return text + "</svg>\n";
}

void write_charts(const std::filesystem::path& path, std::span<const Chart> charts, FileSystem& files) {
  const std::string text = draw_charts(charts);
  AtomicOutputFile file(path, files);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace sinter::nn
