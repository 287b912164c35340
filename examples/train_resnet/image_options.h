// How pictures become the images that are trained and tested on: sizes, crops, turns, and how often each is
// seen.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/option_table.h"

namespace train_resnet {

struct ImageOptions {
  int64_t repeats = 1;  // of an image in an epoch, each time augmented differently
  bool vertical_flip = false;
  double rotation = 0;                     // degrees, either way
  std::string crop_scale = "0.08,1";       // parts of the picture that a crop of --image-size takes
  std::string crop_ratio = "0.75,1.3333";  // and its width / height
  std::string interpolation = "bilinear";  // or bicubic; of those crops, and of test images
  std::string progressive;                 // sizes of crops in the first epochs; empty: none
};

/// A size of the crops to train on, and the last epoch, counted from 1, that has it.
struct ProgressiveSize {
  int64_t size, last_epoch;
};

void add_image_rows(sinter::examples::OptionTable& table, ImageOptions& options);

/// Of --progressive, in order.
std::vector<ProgressiveSize> progressive_sizes(const std::string& text);
/// Of the crops to train on in an epoch, counted from 0; `image_size` where --progressive says nothing.
int64_t train_size(const ImageOptions& options, int64_t image_size, int64_t epoch);
/// Two numbers: the least and the largest.
std::array<double, 2> range_of(const std::string& text);

/// Mistakes in how these go together with --image-size; empty if there is none.
std::string check_images(const ImageOptions& options, int64_t image_size);
/// What they do, for the start of a run, beside crops and flips; begins with a comma, or is empty.
std::string describe(const ImageOptions& options, int64_t image_size);

}  // namespace train_resnet
