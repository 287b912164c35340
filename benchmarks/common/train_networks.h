// The networks that training steps are measured on, each with its loss.
#pragma once

#include <memory>
#include <span>

#include <sinter/core/op/attributes.h>
#include <sinter/nn/module/module.h>

namespace sinter::bench {

/// Images and classes to the loss.
using TrainNetwork = nn::ModuleOf<Tensor(const Tensor&, const Tensor&)>;

struct TrainProblem {
  const char* name;
  int64_t batch, size, classes;
  /// Written in the layout that nn::default_layout() says.
  std::unique_ptr<TrainNetwork> (*make)(const TrainProblem&);
  /// Measured in every precision and layout; otherwise in mixed_f16 and NHWC only.
  bool in_full;
};

/// ResNet-18 for 32x32 images, ResNet-50, iResNet-50 with ArcFace over 10,572 people, and two as users write
/// them, of which no pass knows: VGG-16 with batch norm and PReLU, and ResNeXt-50 32x4d.
std::span<const TrainProblem> train_problems();

}  // namespace sinter::bench
