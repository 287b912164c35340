#include "common/train_networks.h"

#include <array>
#include <span>

#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/sequential.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/operators.h>

namespace sinter::bench {
namespace {

class Classifier : public TrainNetwork {
 public:
  explicit Classifier(nn::AnyModule network) : network_(child("network", std::move(network))) {}
  Tensor forward(const Tensor& images, const Tensor& classes) const override {
    return nn::CrossEntropyLoss{}(network_(images), classes);
  }

 private:
  nn::AnyModule network_;
};

class Faces : public TrainNetwork {
 public:
  explicit Faces(int64_t people) : head_(child("head", nn::MarginHead(512, people))) {}
  Tensor forward(const Tensor& images, const Tensor& people) const override {
    return head_(backbone_(images), people);
  }

 private:
  nn::IResNet backbone_ = child("backbone", nn::iresnet50());
  nn::MarginHead head_;
};

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv2d(in, out, kernel,
                    {.stride = stride, .padding = kernel / 2, .groups = groups, .bias = false});
}

nn::Sequential vgg16(int64_t classes) {
  constexpr int64_t kPool = 0;
  nn::Sequential layers;
  int64_t channels = 3;
  for (const int64_t width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == kPool) {
      layers.add(nn::MaxPool2d(2));
      continue;
    }
    layers.add(conv(channels, width, 3));
    layers.add(nn::BatchNorm2d(width));
    layers.add(nn::PReLU(width));
    channels = width;
  }
  layers.add(nn::GlobalAvgPool2d());
  layers.add(nn::Linear(channels, classes));
  return layers;
}

/// 32 groups of 4 channels in the first stage, twice as many in each that follows.
class ResNeXtBlock : public nn::Module {
 public:
  ResNeXtBlock(int64_t in, int64_t out, int64_t stride)
      : body_(child("body", nn::Sequential(conv(in, out / 2, 1), nn::BatchNorm2d(out / 2), nn::ReLU(),
                                           conv(out / 2, out / 2, 3, stride, 32), nn::BatchNorm2d(out / 2),
                                           nn::ReLU(), conv(out / 2, out, 1), nn::BatchNorm2d(out)))),
        shortcut_(child("shortcut", in == out ? nn::AnyModule(nn::Identity())
                                              : nn::AnyModule(nn::Sequential(conv(in, out, 1, stride),
                                                                             nn::BatchNorm2d(out))))) {}
  Tensor forward(const Tensor& x) const override { return ops::relu(shortcut_(x) + body_(x)); }

 private:
  nn::Sequential body_;
  nn::AnyModule shortcut_;
};

nn::Sequential resnext50(int64_t classes) {
  nn::Sequential layers(conv(3, 64, 7, 2), nn::BatchNorm2d(64), nn::ReLU(),
                        nn::MaxPool2d(3, {.stride = 2, .padding = 1}));
  int64_t channels = 64, stage = 0;
  for (const int blocks : {3, 4, 6, 3}) {
    const int64_t width = int64_t{256} << stage;
    for (int i = 0; i < blocks; ++i) {
      layers.add(ResNeXtBlock(channels, width, stage > 0 && i == 0 ? 2 : 1));
      channels = width;
    }
    ++stage;
  }
  layers.add(nn::GlobalAvgPool2d());
  layers.add(nn::Linear(channels, classes));
  return layers;
}

std::unique_ptr<TrainNetwork> classify(nn::AnyModule network) {
  return std::make_unique<Classifier>(std::move(network));
}

constexpr std::array kProblems = {
    TrainProblem{"resnet18_cifar batch 512", 512, 32, 10,
                 [](const TrainProblem& problem) {
                   return classify(nn::resnet18({.classes = problem.classes, .small_stem = true}));
                 },
                 true},
    TrainProblem{
        "resnet50 batch 256", 256, 224, 1000,
        [](const TrainProblem& problem) { return classify(nn::resnet50({.classes = problem.classes})); },
        true},
    TrainProblem{"iresnet50 arcface batch 128", 128, 112, 10'572,
                 [](const TrainProblem& problem) -> std::unique_ptr<TrainNetwork> {
                   return std::make_unique<Faces>(problem.classes);
                 },
                 false},
    TrainProblem{"vgg16_prelu batch 128", 128, 224, 1000,
                 [](const TrainProblem& problem) { return classify(vgg16(problem.classes)); }, false},
    TrainProblem{"resnext50_32x4d batch 256", 256, 224, 1000,
                 [](const TrainProblem& problem) { return classify(resnext50(problem.classes)); }, false},
};

}  // namespace

std::span<const TrainProblem> train_problems() {
  return kProblems;
}

}  // namespace sinter::bench
