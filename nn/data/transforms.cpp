#include <algorithm>
#include <cmath>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn::data {
namespace {

using Kind = detail::FrameStep::Kind;

class Function final : public Transform {
 public:
  explicit Function(std::function<void(Sample&, SampleRandom&)> apply) : apply_(std::move(apply)) {}
  void apply(Sample& sample, SampleRandom& random) const override { apply_(sample, random); }

 private:
  std::function<void(Sample&, SampleRandom&)> apply_;
};

class Resize final : public Transform {
 public:
  Resize(Size2d size, ResizeFilter filter) : size_(size), filter_(filter) {}
  bool move(Frame& frame, SampleRandom&) const override {
    frame.set_filter(filter_);
    frame.resize(size_);
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = Kind::kResample, .filter = filter_}; }

 private:
  Size2d size_;
  ResizeFilter filter_;
};

class ResizeCenterCrop final : public Transform {
 public:
  ResizeCenterCrop(int64_t size, int64_t crop, ResizeFilter filter)
      : size_(size), crop_(crop), filter_(filter) {}
  bool move(Frame& frame, SampleRandom&) const override {
    const auto height = static_cast<double>(frame.height()), width = static_cast<double>(frame.width());
    const double side = std::min(height, width) * static_cast<double>(crop_) / static_cast<double>(size_);
    frame.set_filter(filter_);
    frame.crop({(height - side) / 2, (width - side) / 2, side, side}, crop_);
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = Kind::kResample, .filter = filter_}; }

 private:
  int64_t size_, crop_;
  ResizeFilter filter_;
};

class CenterCrop final : public Transform {
 public:
  explicit CenterCrop(Size2d size) : size_(size) {}
  bool move(Frame& frame, SampleRandom&) const override {
    SINTER_CHECK(frame.height() >= size_.height && frame.width() >= size_.width,
                 "[center_crop] expected an image of at least {} x {} but got {} x {}", size_.height,
                 size_.width, frame.height(), frame.width());
    frame.crop((frame.height() - size_.height) / 2, (frame.width() - size_.width) / 2, size_);
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = Kind::kShift}; }

 private:
  Size2d size_;
};

void check_padding(const char* tag, const Padding2d& padding) {
  for (const int64_t side : {padding.top, padding.bottom, padding.left, padding.right}) {
    SINTER_CHECK(side >= 0 && side <= 1'000'000, "[{}] expected a padding from 0 to 1000000 but got {}", tag,
                 side);
  }
}

void check_reflection(const char* tag, const Padding2d& padding, ops::PadMode mode, const Frame& frame) {
  const int64_t rows = std::max(padding.top, padding.bottom), columns = std::max(padding.left, padding.right);
  SINTER_CHECK(mode != ops::PadMode::kReflect || (frame.height() > rows && frame.width() > columns),
               "[{}] expected an image larger than the padding {} but got {} x {}", tag,
               std::max(rows, columns), frame.height(), frame.width());
}

class Pad final : public Transform {
 public:
  Pad(const Padding2d& padding, ops::PadMode mode) : padding_(padding), mode_(mode) {}
  bool move(Frame& frame, SampleRandom&) const override {
    check_reflection("pad", padding_, mode_, frame);
    frame.set_border(mode_);
    frame.crop(
        -padding_.top, -padding_.left,
        {frame.height() + padding_.top + padding_.bottom, frame.width() + padding_.left + padding_.right});
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = Kind::kShift, .border = mode_}; }

 private:
  Padding2d padding_;
  ops::PadMode mode_;
};

class RandomCrop final : public Transform {
 public:
  RandomCrop(Size2d size, const RandomCropOptions& options) : size_(size), options_(options) {}
  bool move(Frame& frame, SampleRandom& random) const override {
    const Padding2d& padding = options_.padding;
    check_reflection("random_crop", padding, options_.mode, frame);
    const int64_t rows = frame.height() + padding.top + padding.bottom - size_.height;
    const int64_t columns = frame.width() + padding.left + padding.right - size_.width;
    SINTER_CHECK(rows >= 0 && columns >= 0,
                 "[random_crop] expected an image of at least {} x {} with its padding but got {} x {}",
                 size_.height, size_.width, rows + size_.height, columns + size_.width);
    const int64_t top = place(rows, random) - padding.top;
    const int64_t left = place(columns, random) - padding.left;
    frame.set_border(options_.mode);
    frame.crop(top, left, size_);
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = Kind::kShift, .border = options_.mode}; }

 private:
  static int64_t place(int64_t last, SampleRandom& random) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(last) + 1));
  }
  Size2d size_;
  RandomCropOptions options_;
};

class RandomFlip final : public Transform {
 public:
  RandomFlip(double probability, bool horizontal) : probability_(probability), horizontal_(horizontal) {}
  bool move(Frame& frame, SampleRandom& random) const override {
    if (static_cast<double>(random.uniform()) >= probability_) return true;
    horizontal_ ? frame.flip_horizontal() : frame.flip_vertical();
    return true;
  }
  detail::FrameStep frame_step() const override {
    return {.kind = horizontal_ ? Kind::kMirror : Kind::kNone};
  }

 private:
  double probability_;
  bool horizontal_;
};

class RandomRotation final : public Transform {
 public:
  explicit RandomRotation(double degrees) : degrees_(degrees) {}
  bool move(Frame& frame, SampleRandom& random) const override {
    frame.rotate(random.uniform(-degrees_, degrees_));
    return true;
  }

 private:
  double degrees_;
};

class RandomResizedCrop final : public Transform {
 public:
  RandomResizedCrop(Size2d size, const RandomResizedCropOptions& options) : size_(size), options_(options) {}
  bool move(Frame& frame, SampleRandom& random) const override {
    frame.set_filter(options_.filter);
    frame.crop(window(frame.height(), frame.width(), random), size_);
    return true;
  }
  detail::FrameStep frame_step() const override {
    return {.kind = Kind::kResample, .filter = options_.filter};
  }

 private:
  Box window(int64_t image_height, int64_t image_width, SampleRandom& random) const {
    const auto height = static_cast<double>(image_height), width = static_cast<double>(image_width);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double area = height * width * random.uniform(options_.min_area, options_.max_area);
      const double aspect =
          std::exp(random.uniform(std::log(options_.min_aspect), std::log(options_.max_aspect)));
      const double h = std::sqrt(area / aspect), w = std::sqrt(area * aspect);
      const double y = random.uniform(0, 1), x = random.uniform(0, 1);
      if (h <= height && w <= width) return {y * (height - h), x * (width - w), h, w};
    }
    const double aspect = std::clamp(width / height, options_.min_aspect, options_.max_aspect);
    const double h = std::min(height, width / aspect), w = std::min(width, height * aspect);
    return {(height - h) / 2, (width - w) / 2, h, w};
  }
  Size2d size_;
  RandomResizedCropOptions options_;
};

void check_size(const char* tag, Size2d size) {
  SINTER_CHECK(size.height > 0 && size.width > 0, "[{}] expected a size of at least 1 x 1 but got {} x {}",
               tag, size.height, size.width);
}

TransformPtr flip(const char* tag, double probability, bool horizontal) {
  SINTER_CHECK(probability >= 0 && probability <= 1, "[{}] expected a probability but got {}", tag,
               probability);
  return std::make_shared<RandomFlip>(probability, horizontal);
}

}  // namespace

bool Transform::move(Frame&, SampleRandom&) const {
  return false;
}

void Transform::apply(Sample& sample, SampleRandom& random) const {
  const Image& picture = sample.image.height > 0 ? sample.image : sample.mask;
  SINTER_CHECK(picture.height > 0,
               "[transform] expected a sample with an image or a mask for geometry but got neither");
  Frame frame(picture.height, picture.width);
  SINTER_CHECK(move(frame, random),
               "[transform] expected a transform with a move() or an apply() of its own");
  show(frame, sample);
}

TransformPtr make_transform(std::function<void(Sample&, SampleRandom&)> apply) {
  SINTER_CHECK(apply != nullptr, "[make_transform] expected a function but got none");
  return std::make_shared<Function>(std::move(apply));
}

TransformPtr resize(Size2d size, ResizeFilter filter) {
  check_size("resize", size);
  return std::make_shared<Resize>(size, filter);
}

TransformPtr resize_center_crop(int64_t size, int64_t crop, ResizeFilter filter) {
  SINTER_CHECK(crop > 0 && crop <= size,
               "[resize_center_crop] expected 0 < crop <= size but got crop {} and size {}", crop, size);
  return std::make_shared<ResizeCenterCrop>(size, crop, filter);
}

TransformPtr center_crop(Size2d size) {
  check_size("center_crop", size);
  return std::make_shared<CenterCrop>(size);
}

TransformPtr pad(Padding2d padding, ops::PadMode mode) {
  check_padding("pad", padding);
  return std::make_shared<Pad>(padding, mode);
}

TransformPtr random_crop(Size2d size, const RandomCropOptions& options) {
  check_size("random_crop", size);
  check_padding("random_crop", options.padding);
  return std::make_shared<RandomCrop>(size, options);
}

TransformPtr random_horizontal_flip(double probability) {
  return flip("random_horizontal_flip", probability, true);
}

TransformPtr random_vertical_flip(double probability) {
  return flip("random_vertical_flip", probability, false);
}

TransformPtr random_rotation(double degrees) {
  SINTER_CHECK(degrees >= 0 && degrees <= 360, "[random_rotation] expected an angle from 0 to 360 but got {}",
               degrees);
  return std::make_shared<RandomRotation>(degrees);
}

TransformPtr random_resized_crop(Size2d size, const RandomResizedCropOptions& options) {
  check_size("random_resized_crop", size);
  SINTER_CHECK(options.min_area > 0 && options.min_area <= options.max_area && options.max_area <= 1,
               "[random_resized_crop] expected 0 < min_area <= max_area <= 1 but got {} and {}",
               options.min_area, options.max_area);
  SINTER_CHECK(
      options.min_aspect > 0 && options.min_aspect <= options.max_aspect && options.max_aspect <= 1e6,
      "[random_resized_crop] expected 0 < min_aspect <= max_aspect <= 1e6 but got {} and {}",
      options.min_aspect, options.max_aspect);
  return std::make_shared<RandomResizedCrop>(size, options);
}

}  // namespace sinter::nn::data
