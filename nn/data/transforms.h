// What happens to a sample between the data set and the batch. Random ones draw from a stream that belongs to
// the sample and the epoch, so results depend neither on threads nor on time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <sinter/nn/data/sample/frame.h>
#include <sinter/nn/data/sample/sample.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {

namespace detail {

/// What a transform of this library does to frames, so that the loader may leave it to the device. kShift
/// gives exact frames.
struct FrameStep {
  enum class Kind { kNone, kMirror, kShift, kResample };
  Kind kind = Kind::kNone;
  ops::PadMode border = ops::PadMode::kConstant;  ///< of a shift
  ResizeFilter filter = ResizeFilter::kBilinear;  ///< of a resampling
};

}  // namespace detail

/// Changes a sample in place. Geometry overrides move(), and image, mask and boxes follow; what changes
/// pixels or values overrides apply(). Safe to call from several threads at once.
class Transform {
 public:
  virtual ~Transform() = default;
  /// Moves the frame as the transform moves a picture, and gives true; false, the default: it is no geometry.
  virtual bool move(Frame& frame, SampleRandom& random) const;
  /// By default shows the sample in the frame that move() gives. Throws InvalidArgument for a sample without
  /// an image or a mask, which has no frame.
  virtual void apply(Sample& sample, SampleRandom& random) const;
  /// Kept as it is by transforms of one's own, which run on the workers.
  virtual detail::FrameStep frame_step() const { return {}; }
};

using TransformPtr = std::shared_ptr<const Transform>;
/// Steps in order.
using Transforms = std::vector<TransformPtr>;

/// A transform of a function, called from several threads at once: `make_transform([](Sample& sample,
/// SampleRandom& random) { sample.values["scale"] = Tensor::scalar(random.uniform()); })`.
TransformPtr make_transform(std::function<void(Sample&, SampleRandom&)> apply);

/// Resamples all of the image to one size (see nn::data::resize of images).
TransformPtr resize(Size2d size, ResizeFilter filter = ResizeFilter::kBilinear);

/// Resamples so that the shorter side gets `size` pixels, then cuts `crop` x `crop` from the middle; the
/// usual evaluation takes (256, 224). InvalidArgument unless 0 < crop <= size.
TransformPtr resize_center_crop(int64_t size, int64_t crop, ResizeFilter filter = ResizeFilter::kBilinear);

/// Cuts a window from the middle; InvalidArgument for a smaller image.
TransformPtr center_crop(Size2d size);

/// Adds pixels around the image, as `mode` says.
TransformPtr pad(Padding2d padding, ops::PadMode mode = ops::PadMode::kConstant);

struct RandomCropOptions {
  Padding2d padding = 0;                        ///< added around the image first
  ops::PadMode mode = ops::PadMode::kConstant;  ///< of the padding; kConstant: black
};

/// Cuts a window of `size` at a random place of the padded image. InvalidArgument for an image that is
/// smaller even so, or, under kReflect, not larger than the padding.
TransformPtr random_crop(Size2d size, const RandomCropOptions& options = {});

/// Mirrors left to right with a probability.
TransformPtr random_horizontal_flip(double probability = 0.5);

/// Turns upside down with a probability.
TransformPtr random_vertical_flip(double probability = 0.5);

/// Turns about the centre by an angle drawn evenly from [-degrees, degrees]; the size stays, and what comes
/// from beyond the edges is black. Blended bilinearly, as Pillow's rotate(resample=BILINEAR).
TransformPtr random_rotation(double degrees);

struct RandomResizedCropOptions {
  double min_area = 0.08, max_area = 1.0;                 ///< of the window, as a part of the image's
  double min_aspect = 3.0 / 4.0, max_aspect = 4.0 / 3.0;  ///< width / height, drawn evenly in the logarithm
  ResizeFilter filter = ResizeFilter::kBilinear;
};

/// Resamples a window of random area, aspect and place to `size`; after ten windows that do not fit, the
/// largest central one. Windows lie between pixels; otherwise as torchvision's. Source: C. Szegedy et al.,
/// "Going deeper with convolutions", CVPR 2015.
TransformPtr random_resized_crop(Size2d size, const RandomResizedCropOptions& options = {});

}  // namespace sinter::nn::data
