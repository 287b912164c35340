// What happens to an image between the data set and the batch. Random ones draw from a stream that belongs to
// the sample and the epoch, so results depend neither on threads nor on time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {

/// What a transform works with besides the image; reused from sample to sample.
struct TransformContext {
  SampleRandom random;
  Image scratch;  ///< a buffer of any contents to swap with the image
};

enum class PadMode {
  kZero,     ///< black
  kReflect,  ///< mirrored at the border pixel, which is not repeated; the image must be larger than the
             ///< padding
};

/// What transforms that only move or resample pixels come to: the part of an image that is shown.
struct Frame {
  Box box;                ///< may reach over the border after a shift
  bool mirrored = false;  ///< left to right
};

/// What a transform that only moves or resamples pixels does to a frame.
struct FrameStep {
  enum class Kind { kNone, kMirror, kShift, kResample };
  Kind kind = Kind::kNone;
  PadMode border = PadMode::kZero;  ///< of a shift
  int64_t height = 0, width = 0;    ///< of what a resampling gives
};

/// Changes an image in place. Safe to call from several threads at once.
class Transform {
 public:
  virtual ~Transform() = default;
  virtual void apply(Image& image, TransformContext& context) const = 0;
  /// For transforms that are the same as moving the frame of the image: the loader leaves those at the end of
  /// its list to the device. kNone: only apply knows.
  virtual FrameStep frame_step() const { return {}; }
  /// Does to the frame of an image of this size what apply would do to the image, with the same draws.
  virtual void move(Frame& frame, int64_t height, int64_t width, SampleRandom& random) const;
  /// By how much (1, 2, 4 or 8) a decoder may divide the sides of an image of this size if this transform
  /// comes first. `random` is at the draws that apply will see.
  virtual int reduction(int64_t height, int64_t width, SampleRandom random) const;
};

/// Steps in order.
using Transforms = std::vector<std::shared_ptr<const Transform>>;

/// Resamples all of the image to one size (see resize()).
std::shared_ptr<const Transform> resize_to(int64_t height, int64_t width);

/// Resamples so that the shorter side gets `size` pixels, then cuts `crop` x `crop` from the middle; the
/// usual evaluation takes (256, 224). InvalidArgument unless 0 < crop <= size.
std::shared_ptr<const Transform> resize_center_crop(int64_t size, int64_t crop);

/// Cuts a window from the middle; apply throws InvalidArgument if the image is smaller.
std::shared_ptr<const Transform> center_crop(int64_t height, int64_t width);

/// Pads every side by `padding` pixels, then cuts a window of the former size at a random place.
std::shared_ptr<const Transform> pad_crop(int64_t padding, PadMode mode = PadMode::kZero);

/// Mirrors left to right with a probability.
std::shared_ptr<const Transform> random_horizontal_flip(double probability = 0.5);

struct RandomResizedCropOptions {
  double min_area = 0.08, max_area = 1.0;                 ///< of the window, as a part of the image's
  double min_aspect = 3.0 / 4.0, max_aspect = 4.0 / 3.0;  ///< width / height, drawn evenly in the logarithm
};

/// Resamples a window of random area, aspect and place to `height` x `width`; after ten windows that do not
/// fit, the largest central one. Windows lie between pixels; otherwise as torchvision's. Source: C. Szegedy
/// et al., "Going deeper with convolutions", CVPR 2015.
std::shared_ptr<const Transform> random_resized_crop(int64_t height, int64_t width,
                                                     const RandomResizedCropOptions& options = {});

}  // namespace sinter::nn::data
