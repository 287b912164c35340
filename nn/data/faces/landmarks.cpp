#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/data/faces/landmarks.h>

namespace sinter::nn::data {
namespace {

constexpr const char* kExpected = "path,x1,y1,...,x5,y5[,score] (or 68 points)";

/// Takes the first field, and the comma behind it, from a line; none if its quotation marks do not end.
std::optional<std::string> take_path(std::string_view& line) {
  std::string path;
  if (!line.starts_with('"')) {
    path = line.substr(0, line.find(','));
    line.remove_prefix(path.size());
  } else {
    for (line.remove_prefix(1);; line.remove_prefix(1)) {
      const size_t end = line.find('"');
      if (end == std::string_view::npos) return std::nullopt;
      path += line.substr(0, end);
      line.remove_prefix(end + 1);
      if (!line.starts_with('"')) break;
      path += '"';
    }
  }
  if (!line.starts_with(',')) return std::nullopt;
  line.remove_prefix(1);
  return unescape_name(path);
}

/// The numbers of a line, at most 137; none if one is no number.
std::optional<std::vector<double>> numbers_of(std::string_view fields) {
  std::vector<double> numbers;
  for (const std::string_view field : split_fields(fields, 138)) {
    const std::optional<double> value = to_number(field);
    if (!value) return std::nullopt;
    numbers.push_back(*value);
  }
  return numbers;
}

FivePoints points_of(const std::vector<double>& numbers) {
  std::array<Point, 68> points;
  const size_t count = numbers.size() / 2;  // 5 or 68: a score is half a point
  for (size_t i = 0; i < count; ++i) points[i] = {numbers[2 * i], numbers[2 * i + 1]};
  if (count == 68) return five_of_68(points);
  return {points[0], points[1], points[2], points[3], points[4]};
}

/// Whether all fields behind the path's are names: a face with a slip, or one of nan, must not be taken for a
/// header.
bool names_columns(std::string_view line) {
  const auto fields = split_fields(line, 138);
  return fields.size() > 1 && std::all_of(fields.begin() + 1, fields.end(), [](std::string_view field) {
           double number = 0;
           const char* const last = field.data() + field.size();
           const auto [end, error] = std::from_chars(field.data(), last, number);
           return !field.empty() && (error == std::errc::invalid_argument || end != last);
         });
}

}  // namespace

bool stays_below(const std::string& text) {
  const std::filesystem::path path(text);
  return path.is_relative() && path.has_filename() && text.find('\0') == std::string::npos &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

std::vector<Landmarks> read_landmarks(TextLines& lines) {
  std::vector<Landmarks> faces;
  for (bool first = true; const std::optional<std::string_view> line = lines.next(); first = false) {
    if (first && !line->starts_with('"') && names_columns(*line)) continue;
    std::string_view rest = *line;
    std::optional<std::string> path = take_path(rest);
    const auto numbers = path ? numbers_of(rest) : std::nullopt;
    const size_t count = numbers ? numbers->size() : 0;
    if (count != 10 && count != 11 && count != 136 && count != 137) lines.fail(kExpected);
    if (!stays_below(*path)) lines.fail("a path inside the folder of the images");
    Landmarks face{
        .path = std::move(*path), .points = points_of(*numbers), .score = {}, .line = lines.number()};
    if (count % 2 == 1) face.score = numbers->back();
    faces.push_back(std::move(face));
  }
  if (faces.empty()) throw_error<IoError>("[faces] {}: there is no face in it", lines.name());
  return faces;
}

std::vector<Landmarks> read_landmarks(const std::filesystem::path& path) {
  TextLines lines(path);
  return read_landmarks(lines);
}

}  // namespace sinter::nn::data
