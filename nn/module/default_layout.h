// The layout of images, said in one place.
#pragma once

#include <sinter/core/op/attributes.h>

namespace sinter::nn {

/// The layout that layers, models and loaders take when their options name none: NCHW unless a DefaultLayout
/// lives on this thread.
Layout default_layout();

/// Sets default_layout() for its lifetime, on this thread:
///
///   const nn::DefaultLayout nhwc(Layout::kNHWC);
///   nn::Sequential model(nn::Conv2d(3, 16, {.kernel = 3}), nn::BatchNorm2d(16), nn::GlobalAvgPool2d());
///   nn::data::DataLoader loader(dataset, {.batch_size = 128});
///
/// Options that name a layout keep it. What is made keeps its layout when the guard is gone.
class DefaultLayout {
 public:
  explicit DefaultLayout(Layout layout);
  ~DefaultLayout();
  DefaultLayout(const DefaultLayout&) = delete;
  DefaultLayout& operator=(const DefaultLayout&) = delete;

 private:
  Layout before_;
};

}  // namespace sinter::nn
