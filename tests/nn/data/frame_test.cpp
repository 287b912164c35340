// Geometry: images, masks and boxes go through one frame, and stay on top of each other.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/make_dataset.h>
#include <sinter/nn/data/transforms.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes, testing::message_of;

Image gray(int64_t height, int64_t width, const std::function<int64_t(int64_t y, int64_t x)>& value) {
  Image image;
  image.reshape(height, width, 1);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) image.row(y)[x] = static_cast<uint8_t>(value(y, x));
  }
  return image;
}

Image numbered(int64_t height, int64_t width) {
  return gray(height, width, [width](int64_t y, int64_t x) { return y * width + x + 1; });
}

Bytes shown(const Frame& frame, const Image& image) {
  Image out;
  show(frame, image, out);
  EXPECT_EQ(out.height, frame.height());
  EXPECT_EQ(out.width, frame.width());
  return out.pixels;
}

Bytes shown_mask(const Frame& frame, const Image& mask) {
  Bytes out(static_cast<size_t>(frame.height() * frame.width()));
  show_mask(frame, mask, out.data());
  return out;
}

// Against what the frame's map says of each pixel. Columns are taken four at a time where they lie close
// together, in rows that are aligned.
TEST(Frame, MasksHoldThePixelThatIsThere) {
  std::mt19937 random(6);
  const auto below = [&random](double bound) { return std::uniform_real_distribution(0.0, bound)(random); };
  for (int i = 0; i < 300; ++i) {
    const auto height = static_cast<int64_t>(1 + random() % 40),
               width = static_cast<int64_t>(1 + random() % 90);
    const Image mask = gray(height, width, [&](int64_t, int64_t) { return random() % 256; });
    Frame frame(height, width);
    const double reach = i % 3 == 0 ? 5 : 0;  // over the edges
    const double top = below(static_cast<double>(height) / 2) - reach,
                 left = below(static_cast<double>(width) / 2) - reach;
    const Box box{top, left, 0.1 + below(static_cast<double>(height) - top + reach - 0.1),
                  0.1 + below(static_cast<double>(width) - left + reach - 0.1)};
    const int64_t columns =
        i % 2 == 0 ? static_cast<int64_t>(4 + random() % 30 * 4) : static_cast<int64_t>(1 + random() % 50);
    frame.crop(box, {static_cast<int64_t>(1 + random() % 30), columns});
    if (random() % 2 == 0) frame.flip_horizontal();
    if (random() % 2 == 0) frame.flip_vertical();
    std::vector<int64_t> expected;
    const auto [a, b, c, d, e, f] = frame.affine();
    for (int64_t y = 0; y < frame.height(); ++y) {
      for (int64_t x = 0; x < frame.width(); ++x) {
        const double column = std::floor(a * (static_cast<double>(x) + 0.5) + c);
        const double row = std::floor(e * (static_cast<double>(y) + 0.5) + f);
        const bool is_there = column >= 0 && column < static_cast<double>(width) && row >= 0 &&
                              row < static_cast<double>(height);
        expected.push_back(is_there ? mask.row(static_cast<int64_t>(row))[static_cast<int64_t>(column)]
                                    : kMaskIgnore);
      }
    }
    const Bytes bytes = shown_mask(frame, mask);
    ASSERT_TRUE(std::ranges::equal(bytes, expected)) << i;
    for (const size_t offset : {size_t{0}, size_t{1}}) {
      const Tensor classes = Tensor::empty({static_cast<int64_t>(offset + expected.size())}, DType::kInt64);
      int64_t* const out = classes.data<int64_t>() + offset;
      show_mask(frame, mask, out);
      ASSERT_TRUE(std::ranges::equal(std::span(out, expected.size()), expected)) << i;
    }
  }
}

TEST(Frame, ShowsExactWindowsOfImageAndMaskAlike) {
  const Image image = numbered(3, 4);
  Frame frame(3, 4);
  EXPECT_EQ(shown(frame, image), image.pixels);
  frame.crop(1, -1, {2, 3});
  EXPECT_TRUE(frame.is_exact());
  EXPECT_EQ(shown(frame, image), (Bytes{0, 5, 6, 0, 9, 10}));
  EXPECT_EQ(shown_mask(frame, image), (Bytes{255, 5, 6, 255, 9, 10}));
  frame.flip_horizontal();
  EXPECT_EQ(shown(frame, image), (Bytes{6, 5, 0, 10, 9, 0}));
  EXPECT_EQ(shown_mask(frame, image), (Bytes{6, 5, 255, 10, 9, 255}));
  frame.flip_vertical();
  EXPECT_EQ(shown(frame, image), (Bytes{10, 9, 0, 6, 5, 0}));
  frame.crop(0, 1, {2, 1});  // of what is shown
  EXPECT_EQ(shown(frame, image), (Bytes{9, 5}));
  EXPECT_EQ(shown_mask(frame, image), (Bytes{9, 5}));
  Frame reflected(3, 4);
  reflected.set_border(ops::PadMode::kReflect);
  reflected.crop(-1, -1, {2, 3});
  EXPECT_EQ(shown(reflected, image), (Bytes{6, 5, 6, 2, 1, 2}));
  EXPECT_EQ(shown_mask(reflected, image), (Bytes{6, 5, 6, 2, 1, 2}));
}

TEST(Frame, TakesTheNearestOfAMaskAndBlendsAnImage) {
  const Image halves = gray(4, 4, [](int64_t, int64_t x) { return x < 2 ? 10 : 20; });
  Frame frame(4, 4);
  frame.resize({2, 8});
  EXPECT_EQ(shown_mask(frame, halves),
            (Bytes{10, 10, 10, 10, 20, 20, 20, 20, 10, 10, 10, 10, 20, 20, 20, 20}));
  const Bytes image = shown(frame, halves);
  EXPECT_EQ(image[0], 10);
  EXPECT_GT(image[3], 10);  // a blend
  EXPECT_LT(image[3], 15);
  // Beyond the edges and resampled at once.
  Frame beyond(4, 4);
  beyond.crop(Box{-2, -2, 8, 8}, {4, 4});
  EXPECT_EQ(shown_mask(beyond, halves),
            (Bytes{255, 255, 255, 255, 255, 10, 20, 255, 255, 10, 20, 255, 255, 255, 255, 255}));
  EXPECT_EQ(shown(beyond, halves)[0], 0);
}

TEST(Frame, TurnsByQuartersAsThePixelsDo) {
  const Image image = numbered(3, 3);
  Frame frame(3, 3);
  frame.rotate(90);
  EXPECT_FALSE(frame.is_upright());
  EXPECT_EQ(shown(frame, image), (Bytes{3, 6, 9, 2, 5, 8, 1, 4, 7}));
  EXPECT_EQ(shown_mask(frame, image), shown(frame, image));
  std::vector<ObjectBox> boxes = {{0, 2, 1, 1, 7}};  // value 3, which comes to the top left
  show_boxes(frame, boxes);
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_NEAR(boxes[0].top, 0, 1e-9);
  EXPECT_NEAR(boxes[0].left, 0, 1e-9);
  EXPECT_NEAR(boxes[0].height, 1, 1e-9);
  EXPECT_EQ(boxes[0].label, 7);
  frame.rotate(-90);
  frame.rotate(0);
  EXPECT_EQ(shown(frame, image), image.pixels);
}

TEST(Frame, CutsBoxesAndDropsThoseOutside) {
  Frame frame(10, 10);
  frame.crop(2, 2, {4, 4});
  frame.resize({8, 8});
  std::vector<ObjectBox> boxes = {
      {3, 3, 1, 2, 0}, {0, 0, 3, 3, 1}, {0, 0, 2, 10, 2}, {7, 7, 2, 2, 3}, {4, 4, 0, 1, 4}};
  show_boxes(frame, boxes);
  EXPECT_EQ(boxes, (std::vector<ObjectBox>{{2, 2, 2, 4, 0}, {0, 0, 2, 2, 1}}));
}

TEST(Frame, RefusesWhatCannotBe) {
  Frame frame(3, 4);
  EXPECT_EQ(message_of<InvalidArgument>([&] { shown(frame, numbered(4, 3)); }),
            "[frame] expected an image of 3 x 4, which the frame is of, but got 4 x 3");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              frame.crop(0, 0, {0, 3});
            }),
            "[frame] expected a window with an area but got 0 x 3 as 0 x 3 pixels");
  EXPECT_EQ(message_of<InvalidArgument>([] { Frame(0, 4); }),
            "[frame] expected a picture of at least 1 x 1 but got 0 x 4");
  EXPECT_EQ(message_of<InvalidArgument>([] {
              Sample sample;
              SampleRandom random;
              resize(4)->apply(sample, random);
            }),
            "[transform] expected a sample with an image or a mask for geometry but got neither");
  class Neither final : public Transform {};
  EXPECT_EQ(message_of<InvalidArgument>([] {
              Sample sample{.image = numbered(2, 2)};
              SampleRandom random;
              Neither().apply(sample, random);
            }),
            "[transform] expected a transform with a move() or an apply() of its own");
}

/// A bright rectangle, which is class 1 of the mask and the only box.
Sample scene(int64_t index) {
  const int64_t height = 60 + index % 3, width = 70 - index % 4;
  const int64_t top = 17 + index % 5, left = 22, rows = 19, columns = 27 + index % 3;
  const auto inside = [=](int64_t y, int64_t x) {
    return y >= top && y < top + rows && x >= left && x < left + columns;
  };
  return {.image = gray(height, width, [&](int64_t y, int64_t x) { return inside(y, x) ? 200 : 50; }),
          .label = index,
          .mask = gray(height, width, [&](int64_t y, int64_t x) { return inside(y, x) ? 1 : 0; }),
          .boxes = {{static_cast<double>(top), static_cast<double>(left), static_cast<double>(rows),
                     static_cast<double>(columns), index}}};
}

/// A transform as a user writes one: geometry alone.
class Shrink final : public Transform {
 public:
  bool move(Frame& frame, SampleRandom& random) const override {
    const auto border = static_cast<int64_t>(random.below(5));
    frame.crop(border, border, {frame.height() - 2 * border, frame.width() - 2 * border});
    frame.flip_vertical();
    frame.resize({48, 50});
    frame.rotate(random.uniform(-5, 5));
    return true;
  }
};

struct Case {
  const char* name;
  Transforms transforms;
  bool upright = true;
};

std::vector<Case> cases() {
  const auto flip = random_horizontal_flip();
  const auto own = std::make_shared<Shrink>();
  return {
      {"resize", {resize({50, 40}), flip}},
      {"centre", {flip, resize_center_crop(60, 56)}},
      {"random resized", {random_resized_crop({44, 56}, {.min_area = 0.4}), flip}},
      {"two", {random_resized_crop(64, {.min_area = 0.6}), flip, random_crop(48, {.padding = 6})}},
      {"crop", {random_crop({50, 52}, {.padding = 8}), flip}},
      {"reflected", {random_crop({58, 60}, {.padding = 4, .mode = ops::PadMode::kReflect})}},
      {"padded", {center_crop(58), pad({1, 2, 3, 4}), random_vertical_flip()}},
      {"turned", {center_crop(58), random_rotation(40), flip}, false},
      {"turned and resized", {random_rotation(20), random_resized_crop(48, {.min_area = 0.5}), flip}, false},
      {"own", {own, flip}, false}};
}

/// Each of `steps` takes the nearest pixel of the mask, at most half a pixel off along the object's edges. A
/// box that was turned is the one around it, of which a later step may cut off corners.
void expect_on_top(const Sample& sample, size_t steps, bool upright) {
  const auto& [image, label, mask, boxes, values] = sample;
  int64_t top = mask.height, left = mask.width, bottom = 0, right = 0, apart = 0;
  for (int64_t y = 0; y < mask.height; ++y) {
    for (int64_t x = 0; x < mask.width; ++x) {
      const bool is_object = mask.row(y)[x] == 1;
      if (mask.row(y)[x] != kMaskIgnore && (image.row(y)[x] > 125) != is_object) ++apart;
      if (!is_object) continue;
      top = std::min(top, y);
      left = std::min(left, x);
      bottom = std::max(bottom, y + 1);
      right = std::max(right, x + 1);
    }
  }
  if (bottom == 0) {
    EXPECT_LE(apart, 40);
    return;
  }
  EXPECT_LE(apart, static_cast<int64_t>(steps) * (bottom - top + right - left));
  ASSERT_EQ(boxes.size(), 1u);
  const double edges[] = {boxes[0].top, boxes[0].left, -boxes[0].top - boxes[0].height,
                          -boxes[0].left - boxes[0].width};
  const int64_t seen[] = {top, left, -bottom, -right};
  for (size_t i = 0; i < 4; ++i) {
    const double outside = static_cast<double>(seen[i]) - edges[i];
    EXPECT_GE(outside, -1.01) << i;
    if (upright) {
      EXPECT_LE(outside, 1.01) << i;
    }
  }
}

TEST(Geometry, KeepsImageMaskAndBoxesOnTopOfEachOther) {
  for (const Case& test : cases()) {
    if (std::string_view(test.name) == "reflected") continue;  // shows parts of an object twice
    SCOPED_TRACE(test.name);
    for (int64_t index = 0; index < 40; ++index) {
      Sample sample = scene(index);
      SampleRandom random(3, 0, static_cast<uint64_t>(index));
      for (const auto& transform : test.transforms) transform->apply(sample, random);
      ASSERT_EQ(sample.mask.height, sample.image.height);
      ASSERT_EQ(sample.mask.width, sample.image.width);
      expect_on_top(sample, test.transforms.size(), test.upright);
    }
  }
}

// Whether the workers or the device move the images.
TEST(Geometry, OfALoaderIsThatOfItsTransforms) {
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    for (const Case& test : cases()) {
      for (const int workers : {0, 2}) {
        SCOPED_TRACE(test.name);
        DataLoader loader(make_dataset(12, scene), {.batch_size = 5,
                                                    .shuffle = true,
                                                    .seed = 4,
                                                    .workers = workers,
                                                    .device = device,
                                                    .transforms = test.transforms});
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          while (const std::optional<Batch> batch = loader.next()) {
            ASSERT_EQ(batch->masks.device(), device);
            ASSERT_EQ(batch->masks.dtype(), DType::kInt64);
            const auto masks = batch->masks.to_vector<int64_t>();
            const auto edges = batch->boxes.boxes.to_vector<float>();
            const auto labels = batch->boxes.labels.to_vector<int64_t>();
            const auto rows = batch->boxes.images.to_vector<int64_t>();
            size_t pixel = 0, box = 0;
            for (size_t row = 0; row < batch->indices.size(); ++row) {
              Sample sample = scene(batch->indices[row]);
              SampleRandom random(4, epoch, static_cast<uint64_t>(batch->indices[row]));
              for (const auto& transform : test.transforms) transform->apply(sample, random);
              ASSERT_EQ(batch->masks.shape().with(0, 1), (Shape{1, sample.mask.height, sample.mask.width}));
              for (const uint8_t expected : sample.mask.pixels) ASSERT_EQ(masks[pixel++], expected);
              for (const ObjectBox& expected : sample.boxes) {
                ASSERT_LT(box, labels.size());
                EXPECT_EQ(labels[box], expected.label);
                EXPECT_EQ(rows[box], static_cast<int64_t>(row));
                EXPECT_NEAR(edges[4 * box], expected.top, 1e-4);
                EXPECT_NEAR(edges[4 * box + 1], expected.left, 1e-4);
                EXPECT_NEAR(edges[4 * box + 2], expected.height, 1e-4);
                EXPECT_NEAR(edges[4 * box + 3], expected.width, 1e-4);
                ++box;
              }
            }
            EXPECT_EQ(box, labels.size());
          }
        }
      }
    }
  }
}

// A decoder that gives an image at a part of its size leaves mask and boxes at the whole one.
TEST(Geometry, FollowsImagesThatAreDecodedSmaller) {
  const auto half = make_dataset(6, [](int64_t index, const DecodeHintFunction& hint) {
    Sample sample = scene(index);
    Image whole;
    resize(sample.image, 240, 4 * sample.image.width, whole);  // larger, so that there is a choice
    Frame enlarged(sample.image.height, sample.image.width);
    enlarged.resize({240, 4 * sample.image.width});
    show(enlarged, sample);
    const DecodeHint chosen = hint ? hint(240, sample.mask.width) : DecodeHint(1);
    if (chosen.by == 1) return sample;
    Image reduced;
    resize(sample.image, (240 + chosen.by - 1) / chosen.by, (sample.mask.width + chosen.by - 1) / chosen.by,
           reduced);
    sample.image = reduced;
    return sample;
  });
  const auto nothing = make_transform([](Sample&, SampleRandom&) {});
  for (const Transforms& transforms : {Transforms{resize(56)}, Transforms{resize(56), nothing}}) {
    const Batch batch = *DataLoader(half, {.batch_size = 6, .transforms = transforms}).next();
    const auto masks = batch.masks.to_vector<int64_t>();
    const auto images = batch.images.to_vector<float>();
    const auto edges = batch.boxes.boxes.to_vector<float>();
    ASSERT_EQ(batch.masks.shape(), (Shape{6, 56, 56}));
    for (size_t n = 0; n < 6; ++n) {
      const auto pixel = [n](int64_t y, int64_t x) { return n * 56 * 56 + static_cast<size_t>(y * 56 + x); };
      const auto edge = [&](size_t i) { return double{edges[4 * n + i]}; };
      const Sample sample{
          .image = gray(56, 56, [&](int64_t y, int64_t x) { return std::lround(255 * images[pixel(y, x)]); }),
          .mask = gray(56, 56, [&](int64_t y, int64_t x) { return masks[pixel(y, x)]; }),
          .boxes = {{edge(0), edge(1), edge(2), edge(3), 0}}};
      expect_on_top(sample, transforms.size() + 1, true);
    }
  }
}

}  // namespace
}  // namespace sinter::nn::data
