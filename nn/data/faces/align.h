// Alignment of faces: the similarity that brings five points of a face nearest to where networks expect them,
// and images through it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <sinter/nn/data/image/image.h>

namespace sinter::nn::data {

/// A place in an image, in pixels; (0, 0) is the centre of the first one.
struct Point {
  double x = 0.0;
  double y = 0.0;
};

/// Of a face, as the image shows it: the left eye, the right one, the nose, the left corner of the mouth, the
/// right one.
using FivePoints = std::array<Point, 5>;

/// x' = a x - b y + tx, y' = b x + a y + ty: turns, scales and moves.
struct Similarity {
  double a = 1.0;
  double b = 0.0;
  double tx = 0.0;
  double ty = 0.0;

  Point operator()(const Point& p) const { return {a * p.x - b * p.y + tx, b * p.x + a * p.y + ty}; }
};

/// Where InsightFace's networks expect the points in an image of `size` pixels a side: those for 112, times
/// k, in an image of 112 k; those moved by 8 to the right, times k, in one of 128 k that is no multiple of
/// 112. Throws InvalidArgument for other sizes.
FivePoints face_template(int64_t size);

/// Five points of the 68 of iBUG 300-W, numbered from 0: the middles of the eyes' corners (36 and 39, 42 and
/// 45), the tip of the nose (30), the corners of the mouth (48, 54).
FivePoints five_of_68(std::span<const Point, 68> points);

/// Why no face can be aligned by these points; null if one can: two of them are the same, or their order is
/// mirrored, as when left and right are the person's own: nearest to the template would be a reflection.
const char* refusal_of(const FivePoints& points);

/// The similarity without reflection that brings `from` nearest to `to` in the sum of squared distances:
/// Umeyama, "Least-squares estimation of transformation parameters between two point patterns", 1991, which
/// in two dimensions is closed. Throws InvalidArgument unless there are as many of both, and two of `from`
/// differ.
Similarity nearest_similarity(std::span<const Point> from, std::span<const Point> to);

/// The root of the mean squared distance of `from`, moved, to `to`, in pixels of `to`.
double rms_distance(const Similarity& move, std::span<const Point> from, std::span<const Point> to);

/// Fills `out`, height x width pixels, with the image as `move` moves it; what lies outside the image is 0.
/// The same bytes as OpenCV 4's warpAffine(image, [a -b tx; b a ty], INTER_LINEAR): bilinear between the four
/// pixels around the place that an output pixel came from, which is rounded to 1/32 of a pixel, in fixed
/// point; nothing is smoothed where the image shrinks. `out` must be another image. Throws InvalidArgument
/// for an empty image or output, or a similarity that has no inverse.
void move_image(const Image& image, const Similarity& move, int64_t height, int64_t width, Image& out);

/// A face of `size` pixels a side with its points near face_template(size), as InsightFace aligns it. Throws
/// InvalidArgument with refusal_of() the points, or for a size that face_template does not know.
void align_face(const Image& image, const FivePoints& points, int64_t size, Image& out);

}  // namespace sinter::nn::data
