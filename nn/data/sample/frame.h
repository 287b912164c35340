// Geometry of pictures: which part of one is shown, and how. Images, masks and boxes go through one frame.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <sinter/core/base/size2d.h>
#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/sample/sample.h>
#include <sinter/ops/pad/pad.h>

namespace sinter::nn::data {

/// Begins with all of a picture. Each step changes what is shown as it would change the shown picture itself,
/// so steps are in the pixels that the steps before have left; but nothing is resampled or lost in between:
/// a step may show again what an earlier one had left out.
class Frame {
 public:
  /// A picture of this size, as it is.
  Frame(int64_t height, int64_t width);

  /// Of what is shown, in pixels.
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

  /// A window of `size` pixels at (top, left), which may reach over the edges.
  void crop(int64_t top, int64_t left, Size2d size);
  /// The window, whose edges may lie between pixels, as `size` pixels. Throws InvalidArgument unless both
  /// have an area.
  void crop(const Box& window, Size2d size);
  /// The same, in `size` pixels.
  void resize(Size2d size);
  void flip_horizontal();  ///< left to right
  void flip_vertical();    ///< top to bottom
  /// Turned about its centre, counterclockwise, in a frame of the same size.
  void rotate(double degrees);
  /// What is seen beyond the picture's edges: by default black, and kMaskIgnore in masks.
  void set_border(ops::PadMode border) { border_ = border; }
  /// How pixels are weighed where the picture is resampled, bilinearly unless told otherwise; a frame that is
  /// turned is blended bilinearly.
  void set_filter(ResizeFilter filter) { filter_ = filter; }

  /// The size of the picture that the frame is of.
  double picture_height() const { return picture_height_; }
  double picture_width() const { return picture_width_; }
  ops::PadMode border() const { return border_; }
  ResizeFilter filter() const { return filter_; }
  /// Whether the frame is not turned: it shows box(), mirrored or not.
  bool is_upright() const { return !turned_; }
  /// The part of the picture that an upright frame shows, in the picture's pixels.
  const Box& box() const { return box_; }
  bool mirrored() const { return mirrored_; }  ///< left to right; of upright frames
  bool flipped() const { return flipped_; }    ///< top to bottom; of upright frames
  /// Whether shown pixels are pixels of the picture, or of what is beyond its edges, and nothing is blended.
  bool is_exact() const;
  /// {a, b, c, d, e, f}: at (x, y) of what is shown is (a x + b y + c, d x + e y + f) of the picture. The
  /// centre of the first pixel is (1/2, 1/2).
  std::array<double, 6> affine() const;

  /// The same of the picture at a part of its size, as decoders make it. Upright frames only.
  void divide(int by);

 private:
  void compose(const std::array<double, 6>& inner);

  double picture_height_, picture_width_;
  int64_t height_, width_;
  Box box_;
  bool mirrored_ = false, flipped_ = false;
  std::optional<std::array<double, 6>> turned_;  // the map, where a box cannot say it
  ops::PadMode border_ = ops::PadMode::kConstant;
  ResizeFilter filter_ = ResizeFilter::kBilinear;
};

/// Writes what an exact frame shows, not mirrored, of an image to `out`, row by row.
void copy_window(const detail::SampleView& image, const Frame& frame, uint8_t* out);
/// What the frame shows of an image of its picture's size, blended as resize() does, or where it is
/// turned from the four nearest pixels, as Pillow does. Throws InvalidArgument for another size, and for
/// other than 1 or 3 channels where pixels are blended. `out` must be another image.
void show(const Frame& frame, const Image& image, Image& out);
/// What it shows of a mask of that size, which is not blended: the pixel that is there, to the row-major
/// `out`, and kMaskIgnore beyond a constant border.
void show_mask(const Frame& frame, const Image& mask, uint8_t* out);
void show_mask(const Frame& frame, const Image& mask, int64_t* out);
/// The boxes in the pixels of what is shown, cut to it, in place; those outside disappear. A turned box is
/// the upright one around it.
void show_boxes(const Frame& frame, std::vector<ObjectBox>& boxes);
/// All of it, in place. The mask must have the image's size.
void show(const Frame& frame, Sample& sample);

}  // namespace sinter::nn::data
