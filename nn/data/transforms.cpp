#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn::data {
namespace {

// The strongest reduction that leaves at least as many pixels in the window as the output has.
int reduction_for(const Box& box, int64_t height, int64_t width) {
  for (const int divisor : {8, 4, 2}) {
    if (box.height >= static_cast<double>(height * divisor) &&
        box.width >= static_cast<double>(width * divisor)) {
      return divisor;
    }
  }
  return 1;
}

// The box that shows `window` of what the frame of a whole image shows.
void show(Frame& frame, Box window, double image_width) {
  if (frame.mirrored) window.left = image_width - window.left - window.width;
  frame.box = window;
}

void resample(Image& image, const Box& box, int64_t height, int64_t width, TransformContext& context) {
  resize(image, box, height, width, context.scratch);
  std::swap(image, context.scratch);
}

class ResizeTo final : public Transform {
 public:
  ResizeTo(int64_t height, int64_t width) : height_(height), width_(width) {}
  void apply(Image& image, TransformContext& context) const override {
    if (image.height == height_ && image.width == width_) return;
    resample(image, all(image.height, image.width), height_, width_, context);
  }
  int reduction(int64_t height, int64_t width, SampleRandom) const override {
    return reduction_for(all(height, width), height_, width_);
  }
  FrameStep frame_step() const override {
    return {.kind = FrameStep::Kind::kResample, .height = height_, .width = width_};
  }
  void move(Frame&, int64_t, int64_t, SampleRandom&) const override {}

 private:
  static Box all(int64_t height, int64_t width) {
    return {0, 0, static_cast<double>(height), static_cast<double>(width)};
  }
  int64_t height_, width_;
};

class ResizeCenterCrop final : public Transform {
 public:
  ResizeCenterCrop(int64_t size, int64_t crop) : size_(size), crop_(crop) {}
  void apply(Image& image, TransformContext& context) const override {
    resample(image, window(image.height, image.width), crop_, crop_, context);
  }
  int reduction(int64_t height, int64_t width, SampleRandom) const override {
    return reduction_for(window(height, width), crop_, crop_);
  }
  FrameStep frame_step() const override {
    return {.kind = FrameStep::Kind::kResample, .height = crop_, .width = crop_};
  }
  void move(Frame& frame, int64_t height, int64_t width, SampleRandom&) const override {
    show(frame, window(height, width), static_cast<double>(width));
  }

 private:
  Box window(int64_t height, int64_t width) const {
    const double side = static_cast<double>(std::min(height, width)) * static_cast<double>(crop_) /
                        static_cast<double>(size_);
    return {(static_cast<double>(height) - side) / 2, (static_cast<double>(width) - side) / 2, side, side};
  }
  int64_t size_, crop_;
};

class CenterCrop final : public Transform {
 public:
  CenterCrop(int64_t height, int64_t width) : height_(height), width_(width) {}
  void apply(Image& image, TransformContext& context) const override {
    if (image.height == height_ && image.width == width_) return;
    SINTER_CHECK(image.height >= height_ && image.width >= width_,
                 "[center_crop] expected an image of at least {} x {} but got {} x {}", height_, width_,
                 image.height, image.width);
    crop(image, (image.height - height_) / 2, (image.width - width_) / 2, height_, width_, context.scratch);
    std::swap(image, context.scratch);
  }

 private:
  int64_t height_, width_;
};

class PadCrop final : public Transform {
 public:
  PadCrop(int64_t padding, PadMode mode) : padding_(padding), mode_(mode) {}
  void apply(Image& image, TransformContext& context) const override {
    const auto [dy, dx] = draw(image.height, image.width, context.random);
    if (dy == 0 && dx == 0) return;
    shift(image, dy, dx, context.scratch);
    std::swap(image, context.scratch);
  }
  FrameStep frame_step() const override { return {.kind = FrameStep::Kind::kShift, .border = mode_}; }
  void move(Frame& frame, int64_t height, int64_t width, SampleRandom& random) const override {
    const auto [dy, dx] = draw(height, width, random);
    frame.box.top += static_cast<double>(dy);
    frame.box.left += static_cast<double>(frame.mirrored ? -dx : dx);
  }

 private:
  struct Shift {
    int64_t dy, dx;
  };
  Shift draw(int64_t height, int64_t width, SampleRandom& random) const {
    SINTER_CHECK(mode_ == PadMode::kZero || (height > padding_ && width > padding_),
                 "[pad_crop] expected an image larger than the padding {} but got {} x {}", padding_, height,
                 width);
    const auto places = static_cast<uint64_t>(2 * padding_ + 1);
    const int64_t dy = static_cast<int64_t>(random.below(places)) - padding_;
    const int64_t dx = static_cast<int64_t>(random.below(places)) - padding_;
    return {dy, dx};
  }
  // The inside of a row is one copy; only pixels from beyond the border are looked up one by one.
  void shift(const Image& image, int64_t dy, int64_t dx, Image& out) const {
    const int64_t channels = image.channels, width = image.width;
    out.reshape(image.height, width, channels);
    const int64_t inside_begin = std::clamp<int64_t>(-dx, 0, width);
    const int64_t inside_end = std::clamp<int64_t>(width - dx, inside_begin, width);
    for (int64_t y = 0; y < image.height; ++y) {
      const int64_t from_y = source(y + dy, image.height);
      uint8_t* to = out.row(y);
      if (from_y < 0) {
        std::memset(to, 0, static_cast<size_t>(width * channels));
        continue;
      }
      const uint8_t* from = image.row(from_y);
      for (int64_t x = 0; x < inside_begin; ++x)
        copy_pixel(from, source(x + dx, width), channels, to + x * channels);
      if (inside_end > inside_begin) {
        std::memcpy(to + inside_begin * channels, from + (inside_begin + dx) * channels,
                    static_cast<size_t>((inside_end - inside_begin) * channels));
      }
      for (int64_t x = inside_end; x < width; ++x)
        copy_pixel(from, source(x + dx, width), channels, to + x * channels);
    }
  }
  // The position inside [0, extent) that stands for one beyond it, or -1 for black.
  int64_t source(int64_t at, int64_t extent) const {
    if (at >= 0 && at < extent) return at;
    if (mode_ == PadMode::kZero) return -1;
    return at < 0 ? -at : 2 * (extent - 1) - at;
  }
  static void copy_pixel(const uint8_t* row, int64_t x, int64_t channels, uint8_t* to) {
    if (x < 0) {
      std::memset(to, 0, static_cast<size_t>(channels));
    } else {
      std::memcpy(to, row + x * channels, static_cast<size_t>(channels));
    }
  }
  int64_t padding_;
  PadMode mode_;
};

class RandomHorizontalFlip final : public Transform {
 public:
  explicit RandomHorizontalFlip(double probability) : probability_(probability) {}
  void apply(Image& image, TransformContext& context) const override {
    if (draw(context.random)) flip_horizontal(image);
  }
  FrameStep frame_step() const override { return {.kind = FrameStep::Kind::kMirror}; }
  void move(Frame& frame, int64_t, int64_t, SampleRandom& random) const override {
    if (draw(random)) frame.mirrored = !frame.mirrored;
  }

 private:
  bool draw(SampleRandom& random) const { return static_cast<double>(random.uniform()) < probability_; }
  double probability_;
};

class RandomResizedCrop final : public Transform {
 public:
  RandomResizedCrop(int64_t height, int64_t width, const RandomResizedCropOptions& options)
      : height_(height), width_(width), options_(options) {}
  void apply(Image& image, TransformContext& context) const override {
    resample(image, window(image.height, image.width, context.random), height_, width_, context);
  }
  int reduction(int64_t height, int64_t width, SampleRandom random) const override {
    return reduction_for(window(height, width, random), height_, width_);
  }
  FrameStep frame_step() const override {
    return {.kind = FrameStep::Kind::kResample, .height = height_, .width = width_};
  }
  void move(Frame& frame, int64_t height, int64_t width, SampleRandom& random) const override {
    show(frame, window(height, width, random), static_cast<double>(width));
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
  int64_t height_, width_;
  RandomResizedCropOptions options_;
};

void check_size(const char* tag, int64_t height, int64_t width) {
  SINTER_CHECK(height > 0 && width > 0, "[{}] expected a size of at least 1 x 1 but got {} x {}", tag, height,
               width);
}

}  // namespace

int Transform::reduction(int64_t, int64_t, SampleRandom) const {
  return 1;
}

void Transform::move(Frame&, int64_t, int64_t, SampleRandom&) const {
  throw_error<InternalError>("[transform] a transform with a frame step must say how it moves a frame");
}

std::shared_ptr<const Transform> resize_to(int64_t height, int64_t width) {
  check_size("resize_to", height, width);
  return std::make_shared<ResizeTo>(height, width);
}

std::shared_ptr<const Transform> resize_center_crop(int64_t size, int64_t crop) {
  SINTER_CHECK(crop > 0 && crop <= size,
               "[resize_center_crop] expected 0 < crop <= size but got crop {} and size {}", crop, size);
  return std::make_shared<ResizeCenterCrop>(size, crop);
}

std::shared_ptr<const Transform> center_crop(int64_t height, int64_t width) {
  check_size("center_crop", height, width);
  return std::make_shared<CenterCrop>(height, width);
}

std::shared_ptr<const Transform> pad_crop(int64_t padding, PadMode mode) {
  SINTER_CHECK(padding >= 0 && padding <= 1'000'000,
               "[pad_crop] expected a padding from 0 to 1000000 but got {}", padding);
  return std::make_shared<PadCrop>(padding, mode);
}

std::shared_ptr<const Transform> random_horizontal_flip(double probability) {
  SINTER_CHECK(probability >= 0 && probability <= 1,
               "[random_horizontal_flip] expected a probability but got {}", probability);
  return std::make_shared<RandomHorizontalFlip>(probability);
}

std::shared_ptr<const Transform> random_resized_crop(int64_t height, int64_t width,
                                                     const RandomResizedCropOptions& options) {
  check_size("random_resized_crop", height, width);
  SINTER_CHECK(options.min_area > 0 && options.min_area <= options.max_area && options.max_area <= 1,
               "[random_resized_crop] expected 0 < min_area <= max_area <= 1 but got {} and {}",
               options.min_area, options.max_area);
  SINTER_CHECK(
      options.min_aspect > 0 && options.min_aspect <= options.max_aspect && options.max_aspect <= 1e6,
      "[random_resized_crop] expected 0 < min_aspect <= max_aspect <= 1e6 but got {} and {}",
      options.min_aspect, options.max_aspect);
  return std::make_shared<RandomResizedCrop>(height, width, options);
}

}  // namespace sinter::nn::data
