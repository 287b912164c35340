// Curves as a picture: an SVG that a browser shows, on light and dark backgrounds alike.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/file_system/file_system.h>

namespace sinter::nn {

struct Curve {
  std::string name;                                    ///< in the legend; the same colour in all charts
  std::vector<std::pair<double, double>> points = {};  ///< (x, y) from left to right
  bool dashed = false;                                 ///< to tell apart two curves of one name
};

struct Chart {
  std::string title;
  std::string x_label;
  std::vector<Curve> curves;
  bool percent = false;  ///< y is a share: 0.25 is written as 25 %
};

/// The charts, one below the other, with axes and grid, and a legend of all names above them, as the text of
/// an SVG file. Charts with the same `x_label` share that axis. Points that are not finite are left out, and
/// their curve is broken there. A few that lie far above all others, as the first losses of a run may, would
/// flatten these: the axis ends below them, the chart says how many it leaves out, and a mark tells the
/// highest.
std::string draw_charts(std::span<const Chart> charts);

/// Puts that text in place of a file in one step, so that whoever looks sees a whole picture. Throws IoError.
void write_charts(const std::filesystem::path& path, std::span<const Chart> charts,
                  FileSystem& files = FileSystem::native());

}  // namespace sinter::nn
