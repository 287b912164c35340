#include <algorithm>
#include <cmath>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/faces/align.h>

namespace sinter::nn::data {
namespace {

constexpr FivePoints kTemplate112 = {
    {{38.2946, 51.6963}, {73.5318, 51.5014}, {56.0252, 71.7366}, {41.5493, 92.3655}, {70.7299, 92.2041}}};

Point mean_of(std::span<const Point> points) {
  Point sum;
  for (const Point& point : points) sum = {sum.x + point.x, sum.y + point.y};
  const auto n = static_cast<double>(points.size());
  return {sum.x / n, sum.y / n};
}

Point middle(const Point& a, const Point& b) {
  return {(a.x + b.x) / 2.0, (a.y + b.y) / 2.0};
}

Similarity inverse(const Similarity& move) {
  const double squares = move.a * move.a + move.b * move.b;
  SINTER_CHECK(
      squares > 0.0 && std::isfinite(1.0 / squares) && std::isfinite(move.tx) && std::isfinite(move.ty),
      "[align] expected a similarity with an inverse but got a {}, b {}, tx {}, ty {}", move.a, move.b,
      move.tx, move.ty);
  const double factor = 1.0 / squares;  // in the order that OpenCV computes in
  const double a = move.a * factor, b = -move.b * factor;
  return {a, b, -a * move.tx + b * move.ty, -b * move.tx - a * move.ty};
}

// Places in OpenCV's fixed point: sums in 1/1024 of a pixel, rounded to 1/32.
constexpr double kSumUnits = 1024.0;
constexpr int64_t kHalfOfPlace = 16;
constexpr int kToPlaces = 5, kPlaceBits = 5;
constexpr int64_t kPlaces = int64_t{1} << kPlaceBits;

int64_t fixed(double pixels) {
  return std::llrint(std::clamp(pixels * kSumUnits, -0x1p40, 0x1p40));
}

/// The pixel's channels, or none outside the image.
const uint8_t* pixel_at(const Image& image, int64_t x, int64_t y) {
  const bool inside = x >= 0 && y >= 0 && x < image.width && y < image.height;
  return inside ? image.row(y) + x * image.channels : nullptr;
}

/// A pixel between four others, at (x, y) in 1/32.
void blend(const Image& image, int64_t x, int64_t y, uint8_t* to) {
  const int64_t left = x >> kPlaceBits, top = y >> kPlaceBits;
  const int64_t fx = x & (kPlaces - 1), fy = y & (kPlaces - 1);
  const uint8_t* const corners[4] = {pixel_at(image, left, top), pixel_at(image, left + 1, top),
                                     pixel_at(image, left, top + 1), pixel_at(image, left + 1, top + 1)};
  const int64_t weights[4] = {(kPlaces - fx) * (kPlaces - fy), fx * (kPlaces - fy), (kPlaces - fx) * fy,
                              fx * fy};
  for (int64_t c = 0; c < image.channels; ++c) {
    int64_t sum = kPlaces * kPlaces / 2;
    for (size_t i = 0; i < 4; ++i) sum += corners[i] != nullptr ? weights[i] * corners[i][c] : 0;
    to[c] = static_cast<uint8_t>(sum >> (2 * kPlaceBits));
  }
}

}  // namespace

FivePoints face_template(int64_t size) {
  const bool is_112 = size % 112 == 0;
  SINTER_CHECK(size > 0 && (is_112 || size % 128 == 0),
               "[align] expected a multiple of 112 or 128 pixels but got {}", size);
  const double scale = static_cast<double>(is_112 ? size / 112 : size / 128);
  FivePoints points = kTemplate112;
  for (Point& point : points) point = {(point.x + (is_112 ? 0.0 : 8.0)) * scale, point.y * scale};
  return points;
}

FivePoints five_of_68(std::span<const Point, 68> points) {
  return {middle(points[36], points[39]), middle(points[42], points[45]), points[30], points[48], points[54]};
}

const char* refusal_of(const FivePoints& points) {
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (points[i].x == points[j].x && points[i].y == points[j].y) return "two points are the same";
    }
  }
  // The sign of the determinant of the covariance of both, which Umeyama looks at.
  const Point centre = mean_of(points), centre_of_template = mean_of(kTemplate112);
  double xx = 0.0, xy = 0.0, yx = 0.0, yy = 0.0;
  for (size_t i = 0; i < points.size(); ++i) {
    const double px = points[i].x - centre.x, py = points[i].y - centre.y;
    const double qx = kTemplate112[i].x - centre_of_template.x, qy = kTemplate112[i].y - centre_of_template.y;
    xx += qx * px;
    xy += qx * py;
    yx += qy * px;
    yy += qy * py;
  }
  return xx * yy - xy * yx < 0.0 ? "left and right are mirrored" : nullptr;
}

Similarity nearest_similarity(std::span<const Point> from, std::span<const Point> to) {
  SINTER_CHECK(from.size() == to.size() && !from.empty(),
               "[align] expected as many points of both, at least one, but got {} and {}", from.size(),
               to.size());
  const Point p0 = mean_of(from), q0 = mean_of(to);
  double squares = 0.0, along = 0.0, across = 0.0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double px = from[i].x - p0.x, py = from[i].y - p0.y, qx = to[i].x - q0.x, qy = to[i].y - q0.y;
    squares += px * px + py * py;
    along += px * qx + py * qy;
    across += px * qy - py * qx;
  }
  SINTER_CHECK(squares > 0.0, "[align] expected points at different places but all {} are at ({}, {})",
               from.size(), p0.x, p0.y);
  const double a = along / squares, b = across / squares;
  return {a, b, q0.x - (a * p0.x - b * p0.y), q0.y - (b * p0.x + a * p0.y)};
}

double rms_distance(const Similarity& move, std::span<const Point> from, std::span<const Point> to) {
  SINTER_CHECK(from.size() == to.size() && !from.empty(),
               "[align] expected as many points of both, at least one, but got {} and {}", from.size(),
               to.size());
  double squares = 0.0;
  for (size_t i = 0; i < from.size(); ++i) {
    const Point moved = move(from[i]);
    squares += (moved.x - to[i].x) * (moved.x - to[i].x) + (moved.y - to[i].y) * (moved.y - to[i].y);
  }
  return std::sqrt(squares / static_cast<double>(from.size()));
}

void move_image(const Image& image, const Similarity& move, int64_t height, int64_t width, Image& out) {
  SINTER_CHECK(image.is_whole() && height > 0 && width > 0,
               "[align] expected images of a size > 0 but got {} x {} to {} x {}", image.height, image.width,
               height, width);
  const Similarity back = inverse(move);
  out.reshape(height, width, image.channels);
  std::vector<int64_t> across(static_cast<size_t>(width)), down(across);
  for (int64_t x = 0; x < width; ++x) {
    across[static_cast<size_t>(x)] = fixed(back.a * static_cast<double>(x));
    down[static_cast<size_t>(x)] = fixed(back.b * static_cast<double>(x));
  }
  for (int64_t y = 0; y < height; ++y) {
    const auto row = static_cast<double>(y);
    const int64_t from_x = fixed(-back.b * row + back.tx) + kHalfOfPlace;
    const int64_t from_y = fixed(back.a * row + back.ty) + kHalfOfPlace;
    uint8_t* to = out.row(y);
    for (size_t x = 0; x < across.size(); ++x, to += image.channels)
      blend(image, (from_x + across[x]) >> kToPlaces, (from_y + down[x]) >> kToPlaces, to);
  }
}

void align_face(const Image& image, const FivePoints& points, int64_t size, Image& out) {
  const char* const refusal = refusal_of(points);
  SINTER_CHECK(refusal == nullptr, "[align] {}", refusal);
  move_image(image, nearest_similarity(points, face_template(size)), size, size, out);
}

}  // namespace sinter::nn::data
