// The picture of curves: numbers at the right places, whatever they are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/nn/log/curves.h>

#include "common/failing_file_system.h"
#include "common/temporary_folder.h"

namespace sinter::nn {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Curves, PointsLieWhereTheAxesSay) {
  const Chart charts[] = {{.title = "Loss",
                           .x_label = "epoch",
                           .curves = {{"train", {{1, 0.0}, {2, 1.0}, {3, 0.5}}}, {"a<b&c", {{2, 0.5}}}}},
                          {.title = "Accuracy", .x_label = "epoch", .curves = {}, .percent = true}};
  const std::string svg = draw_charts(charts);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_TRUE(has(svg, ">Loss</text>") && has(svg, ">Accuracy</text>") && has(svg, ">epoch</text>"));
  EXPECT_TRUE(has(svg, ">a&lt;b&amp;c</text>"));
  EXPECT_TRUE(has(svg, "prefers-color-scheme: dark"));
  // The plot is from (70, 44) to (740, 272).
  EXPECT_TRUE(has(svg, "d=\"M70.0 272.0L405.0 44.0L740.0 158.0\"")) << svg;
  EXPECT_TRUE(has(svg, "cx=\"405.0\" cy=\"158.0\"")) << "a single point is seen too";
  for (const char* mark :
       {">0.0</text>", ">0.2</text>", ">1.0</text>", ">1</text>", ">2</text>", ">3</text>"})
    EXPECT_TRUE(has(svg, mark)) << mark;
  EXPECT_TRUE(has(svg, "20 %</text>"));
}

/// The y of the n-th point of the first curve.
double y_of_point(const std::string& svg, int n) {
  size_t at = svg.find("d=\"M", svg.find("<g clip-path")) + 3;  // behind the legend
  for (int i = 0; i < n; ++i) at = svg.find('L', at + 1);
  return std::stod(svg.substr(svg.find(' ', at) + 1));
}

TEST(Curves, OneEarlyLossDoesNotFlattenTheOthers) {
  Chart chart{.title = "Loss", .x_label = "epoch", .curves = {{"train", {{1, 148.0}}}, {"test", {{1, 3.0}}}}};
  for (int epoch = 2; epoch <= 30; ++epoch) {
    chart.curves[0].points.emplace_back(epoch, 2.0 - 0.05 * epoch);
    chart.curves[1].points.emplace_back(epoch, 2.2 - 0.05 * epoch);
  }
  const std::string svg = draw_charts({&chart, 1});
  // The plot is 228 pixels high: what is left of the curve takes more than half of it, and nothing is drawn
  // above.
  EXPECT_GT(y_of_point(svg, 29) - y_of_point(svg, 1), 100.0) << svg;
  EXPECT_LT(y_of_point(svg, 0), 44.0);
  EXPECT_TRUE(has(svg, "<g clip-path=\"url(#plot)\">") && has(svg, "<clipPath id=\"plot\">"));
  EXPECT_TRUE(has(svg, "&#9650; 148</text>"));
}

/// Whether every element of an XML text is closed, and no sign of it stands where text does.
bool is_well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const size_t end = text.find_first_of("<>", at + 1);
    if (end == std::string::npos || text[end] == '<') return false;
    const std::string tag = text.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find(' '));
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    if (open.empty()) return text.substr(end) == ">\n";
    if (text.substr(end + 1, text.find('<', end) - end - 1).find('>') != std::string::npos) return false;
  }
  return false;
}

TEST(Curves, ANameStandsOnceAndHasOneColour) {
  const Chart charts[] = {
      {.title = "Loss",
       .x_label = "epoch",
       .curves = {{"a", {{0, 1}, {1, 1}}}, {"b", {{0, 1}, {1, 2}}}, {"b", {{1, 3}}, true}}},
      {.title = "Rate", .x_label = "epoch", .curves = {{"b", {{3, 0}, {4, 1}}}}}};
  const std::string svg = draw_charts(charts);
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_EQ(count(svg, ">a</text>"), 1u);
  EXPECT_EQ(count(svg, ">b</text>"), 1u);
  EXPECT_EQ(count(svg, "<path class=\"curve c0\""), 2u) << "a curve and the legend";
  EXPECT_EQ(count(svg, "<path class=\"curve c1\""), 3u);
  EXPECT_EQ(count(svg, "<path class=\"curve c1 dashed\""), 1u);
  // From 0 to 4 in both charts: the second curve begins at three quarters of the width.
  EXPECT_TRUE(has(svg, "d=\"M572.5 ")) << svg;
}

TEST(Curves, WhatIsClippedIsSaid) {
  Chart chart{.title = "", .x_label = "", .curves = {{"a", {{1, 1.48}, {2, 0.9}}}}, .percent = true};
  for (int x = 3; x <= 30; ++x) chart.curves[0].points.emplace_back(x, 0.01 + 0.001 * x);
  const std::string svg = draw_charts({&chart, 1});
  EXPECT_TRUE(has(svg, ">clipped: 2 of 30 points, up to 148 %</text>")) << svg;
  EXPECT_TRUE(is_well_formed(svg));
  chart.curves[0].points.erase(chart.curves[0].points.begin(), chart.curves[0].points.begin() + 2);
  EXPECT_FALSE(has(draw_charts({&chart, 1}), "clipped"));
}

TEST(Curves, AnyNameMakesAWholePicture) {
  const std::string names[] = {
      "</text><script>alert(1)</script>", "a&b\"'", "\x01\x1b[2J", "\xff\xfe",          "\xEF\xBF\xBF",
      std::string(500, '/') + "run",      "",       "]]>",         std::string(1, '\0')};
  Chart chart{.title = names[0], .x_label = names[0], .curves = {}};
  for (const std::string& name : names) chart.curves.push_back({name, {{1, 0.0}, {2, 1.0}}});
  const std::string svg = draw_charts({&chart, 1});
  EXPECT_TRUE(is_well_formed(svg)) << svg;
  EXPECT_FALSE(has(svg, "<script"));
  EXPECT_TRUE(has(svg, ">a&amp;b\"'</text>") && has(svg, ">\\uffff</text>") && has(svg, ">]]&gt;</text>"));
  EXPECT_TRUE(has(svg, ">…/") && has(svg, "/run</text>")) << "of a long path the end is shown";
  EXPECT_TRUE(
      std::ranges::none_of(svg, [](char c) { return c != '\n' && static_cast<unsigned char>(c) < ' '; }));
  for (const char* outside : {"href", "url(http", "@import", "@font-face"}) EXPECT_FALSE(has(svg, outside));
}

TEST(Curves, WhatFallsSteadilyIsShownWhole) {
  Chart chart{.title = "Loss", .x_label = "epoch", .curves = {{"train", {}}}};
  for (int epoch = 1; epoch <= 30; ++epoch)
    chart.curves[0].points.emplace_back(epoch, 2.3 * std::exp(-0.25 * epoch));
  const std::string svg = draw_charts({&chart, 1});
  EXPECT_GE(y_of_point(svg, 0), 44.0);
  EXPECT_FALSE(has(svg, "&#9650;"));
  // Nor are two or three values told from outliers.
  const Chart few{.title = "", .x_label = "", .curves = {{"a", {{1, 148.0}, {2, 2.0}, {3, 1.0}}}}};
  EXPECT_FALSE(has(draw_charts({&few, 1}), "&#9650;"));
}

TEST(Curves, AFileIsReplacedAsAWhole) {
  const sinter::testing::TemporaryFolder folder;
  const Chart chart{.title = "Loss", .x_label = "epoch", .curves = {{"train", {{1, 0.0}, {2, 1.0}}}}};
  write_charts(folder / "curves.svg", {&chart, 1});
  EXPECT_EQ(sinter::testing::read_file(folder / "curves.svg"), draw_charts({&chart, 1}));
  for (int64_t call = 1; call <= 4; ++call) {
    sinter::testing::FailingFileSystem files(sinter::testing::FailingFileSystem::Failure::kDiskFull, call);
    EXPECT_THROW(write_charts(folder / "curves.svg", {}, files), IoError) << "call " << call;
    EXPECT_EQ(sinter::testing::read_file(folder / "curves.svg"), draw_charts({&chart, 1}));
  }
  EXPECT_THROW(write_charts(folder / "none" / "curves.svg", {}), IoError);
}

TEST(Curves, WhatIsNotFiniteBreaksACurve) {
  const double nan = std::nan("");
  const Chart chart{.title = "", .x_label = "", .curves = {{"a", {{1, 0.0}, {2, nan}, {3, 1.0}, {4, 0.5}}}}};
  const std::string svg = draw_charts(std::span(&chart, 1));
  EXPECT_TRUE(has(svg, "d=\"M70.0 272.0M516.7 44.0L740.0 158.0\"")) << svg;
  EXPECT_FALSE(has(svg, "nan"));
}

TEST(Curves, ManyPointsHaveNoDots) {
  Chart chart{.title = "", .x_label = "", .curves = {{"a", {}}}};
  for (int i = 0; i < 1000; ++i) chart.curves[0].points.emplace_back(i, i);
  EXPECT_EQ(count(draw_charts(std::span(&chart, 1)), "<circle"), 0u);
  // Nor more places than the plot has: a log of many steps makes no large file.
  for (int i = 1000; i < 100'000; ++i) chart.curves[0].points.emplace_back(i, i);
  const size_t places = count(draw_charts(std::span(&chart, 1)), "L");
  EXPECT_GT(places, 600u);
  EXPECT_LT(places, 1500u);
}

TEST(Curves, AnyNumbersMakeAFinitePicture) {
  const double values[] = {0.0,
                           -0.0,
                           5e-324,
                           1e-310,
                           1e-9,
                           0.1,
                           1.0,
                           1.0 + 1e-15,
                           -3.0,
                           1e15,
                           1e99,
                           -1e99,
                           1e300,
                           std::numeric_limits<double>::max(),
                           std::numeric_limits<double>::infinity(),
                           std::nan("")};
  for (const double a : values) {
    for (const double b : values) {
      for (const bool percent : {false, true}) {
        const Chart chart{
            .title = "t", .x_label = "x", .curves = {{"c", {{1, a}, {2, b}, {b, a}}}}, .percent = percent};
        const std::string svg = draw_charts(std::span(&chart, 1));
        ASSERT_LT(svg.size(), 20'000u) << a << " " << b;
        ASSERT_GT(count(svg, "<line"), 2u) << a << " " << b;
        ASSERT_FALSE(has(svg, "nan") || has(svg, "inf")) << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace sinter::nn
