// The picture of curves: numbers at the right places, whatever they are.
#include <cmath>
#include <limits>

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
  size_t at = svg.find("d=\"M") + 3;
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
