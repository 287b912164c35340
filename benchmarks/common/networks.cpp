#include "common/networks.h"

#include <fstream>
#include <functional>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/concat/concat.h>

namespace sinter::bench {
namespace {

using Json = nlohmann::json;

class Classifier : public TrainNetwork {
 public:
  explicit Classifier(nn::AnyModule network) : network_(child("network", std::move(network))) {}
  Tensor forward(const Tensor& images, const Tensor& classes) const override {
    return nn::CrossEntropyLoss{.layout = layout()}(network_(images), classes);
  }

 private:
  nn::AnyModule network_;
};

class Faces : public TrainNetwork {
 public:
  Faces(nn::AnyModule backbone, int64_t people)
      : backbone_(child("backbone", std::move(backbone))),
        head_(child("head", nn::MarginHead(512, people))) {}
  Tensor forward(const Tensor& images, const Tensor& people) const override {
    return head_(backbone_(images), people);
  }

 private:
  nn::AnyModule backbone_;
  nn::MarginHead head_;
};

nn::Sequential conv_norm(int64_t in, int64_t out) {
  return nn::Sequential(nn::Conv2d(in, out, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(out));
}

/// The filters of VGG-16; `add(layers, in, out)` adds one with what stands behind it. Gives the last width.
int64_t add_vgg16(nn::Sequential& layers, const std::function<void(nn::Sequential&, int64_t, int64_t)>& add) {
  constexpr int64_t kPool = 0;
  int64_t channels = 3;
  for (const int64_t width : {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0}) {
    if (width == kPool) {
      layers.add(nn::MaxPool2d(2));
      continue;
    }
    add(layers, channels, width);
    channels = width;
  }
  return channels;
}

/// Source: K. Simonyan, A. Zisserman, "Very deep convolutional networks for large-scale image recognition",
/// ICLR 2015, configuration D.
nn::Sequential vgg16(const NetworkCase& problem) {
  nn::Sequential layers;
  const int64_t channels = add_vgg16(layers, [](nn::Sequential& to, int64_t in, int64_t out) {
    to.add(nn::Conv2d(in, out, 3, {.padding = 1}));
    to.add(nn::ReLU());
  });
  const int64_t side = problem.size / 32;
  layers.add(nn::Flatten());
  int64_t width = channels * side * side;
  for (int i = 0; i < 2; ++i) {
    layers.add(nn::Linear(width, 4096));
    layers.add(nn::ReLU());
    layers.add(nn::Dropout());
    width = 4096;
  }
  layers.add(nn::Linear(width, problem.classes));
  return layers;
}

/// The same filters as users write them today, with batch norm, PReLU and one linear layer.
nn::Sequential vgg16_prelu(const NetworkCase& problem) {
  nn::Sequential layers;
  const int64_t channels = add_vgg16(layers, [](nn::Sequential& to, int64_t in, int64_t out) {
    to.add(conv_norm(in, out));
    to.add(nn::PReLU(out));
  });
  layers.add(nn::GlobalAvgPool2d());
  layers.add(nn::Linear(channels, problem.classes));
  return layers;
}

/// Two filters of 3x3, each with batch norm and ReLU.
nn::Sequential twice(int64_t in, int64_t out) {
  return nn::Sequential(conv_norm(in, out), nn::ReLU(), conv_norm(out, out), nn::ReLU());
}

/// Source: O. Ronneberger et al., "U-Net: Convolutional networks for biomedical image segmentation", MICCAI
/// 2015; padded, so that maps keep their size, and with batch norm, as it is trained today.
class UNet : public nn::Module {
 public:
  explicit UNet(int64_t classes) : head_(child("head", nn::Conv2d(64, classes, 1))) {
    for (int64_t in = 3, out = 64; out <= 1024; in = out, out *= 2)
      down_.push_back(child(fmt::format("down{}", down_.size()), twice(in, out)));
    for (int64_t out = 512; out >= 64; out /= 2) {
      enlarge_.push_back(child(fmt::format("enlarge{}", enlarge_.size()),
                               nn::ConvTranspose2d(2 * out, out, 2, {.stride = 2})));
      up_.push_back(child(fmt::format("up{}", up_.size()), twice(2 * out, out)));
    }
  }
  Tensor forward(const Tensor& images) const override {
    std::vector<Tensor> maps;
    Tensor x = down_[0](images);
    for (size_t i = 1; i < down_.size(); ++i) {
      maps.push_back(x);
      x = down_[i](pool_(x));
    }
    for (size_t i = 0; i < up_.size(); ++i)
      x = up_[i](
          ops::concat({maps[maps.size() - 1 - i], enlarge_[i](x)}, layout() == Layout::kNCHW ? 1 : -1));
    return head_(x);
  }

 private:
  std::vector<nn::Sequential> down_, up_;
  std::vector<nn::ConvTranspose2d> enlarge_;
  nn::MaxPool2d pool_ = child("pool", nn::MaxPool2d(2));
  nn::Conv2d head_;
};

using Maker = nn::AnyModule (*)(const NetworkCase&);

const std::map<std::string, Maker> kMakers = {
    {"resnet18_cifar",
     [](const NetworkCase& p) -> nn::AnyModule {
       return nn::resnet18({.classes = p.classes, .small_stem = true});
     }},
    {"resnet18", [](const NetworkCase& p) -> nn::AnyModule { return nn::resnet18({.classes = p.classes}); }},
    {"resnet50", [](const NetworkCase& p) -> nn::AnyModule { return nn::resnet50({.classes = p.classes}); }},
    {"resnext50_32x4d",
     [](const NetworkCase& p) -> nn::AnyModule { return nn::resnext50_32x4d({.classes = p.classes}); }},
    {"vgg16", [](const NetworkCase& p) -> nn::AnyModule { return vgg16(p); }},
    {"vgg16_prelu", [](const NetworkCase& p) -> nn::AnyModule { return vgg16_prelu(p); }},
    {"iresnet18",
     [](const NetworkCase& p) -> nn::AnyModule { return nn::iresnet18({.image_size = p.size}); }},
    {"iresnet50",
     [](const NetworkCase& p) -> nn::AnyModule { return nn::iresnet50({.image_size = p.size}); }},
    {"iresnet100",
     [](const NetworkCase& p) -> nn::AnyModule { return nn::iresnet100({.image_size = p.size}); }},
    {"mobile_face_net",
     [](const NetworkCase& p) -> nn::AnyModule { return nn::mobile_face_net({.image_size = p.size}); }},
    {"unet", [](const NetworkCase& p) -> nn::AnyModule { return UNet(p.classes); }},
};

Json read_cases() {
  std::ifstream file(SINTER_BENCH_CASES);
  if (!file) throw_error<IoError>("[bench] cannot read {}", SINTER_BENCH_CASES);
  return Json::parse(file);
}

/// A case, which `listed` may say more of than its network does.
NetworkCase to_case(const Json& networks, const Json& listed) {
  const std::string network = listed.at("network");
  SINTER_CHECK(kMakers.contains(network), "[bench] no network '{}'", network);
  Json all = networks.at(network);
  all.update(listed);
  const std::string task = all.at("task");
  return {.name = all.at("case"),
          .network = network,
          .task = task == "faces"    ? Task::kFaces
                  : task == "pixels" ? Task::kPixels
                                     : Task::kClasses,
          .batch = all.at("batch"),
          .size = all.at("size"),
          .classes = all.at("classes"),
          .sample_rate = all.value("sample_rate", 1.0),
          .in_full = all.value("full", false)};
}

}  // namespace

std::vector<NetworkCase> network_cases(const std::string& suite) {
  const Json all = read_cases();
  std::vector<NetworkCase> cases;
  for (const Json& listed : all.at(suite)) cases.push_back(to_case(all.at("networks"), listed));
  return cases;
}

InferCases infer_cases() {
  const Json all = read_cases();
  const Json& infer = all.at("infer");
  InferCases result{.dtypes = infer.at("dtypes"), .cases = {}};
  for (const int64_t batch : infer.at("batches")) {
    for (const std::string network : infer.at("networks")) {
      const Json listed = {
          {"case", fmt::format("{} batch {}", network, batch)}, {"network", network}, {"batch", batch}};
      result.cases.push_back(to_case(all.at("networks"), listed));
    }
  }
  return result;
}

nn::AnyModule make_network(const NetworkCase& problem) {
  return kMakers.at(problem.network)(problem);
}

std::unique_ptr<TrainNetwork> make_trained(const NetworkCase& problem) {
  nn::AnyModule network = make_network(problem);
  if (problem.task == Task::kFaces) return std::make_unique<Faces>(std::move(network), problem.classes);
  return std::make_unique<Classifier>(std::move(network));
}

Tensor make_labels(const NetworkCase& problem, Device device, uint64_t seed) {
  const bool is_map = problem.task == Task::kPixels;
  const Shape shape = is_map ? Shape{problem.batch, problem.size, problem.size} : Shape{problem.batch};
  Generator generator(seed);
  std::vector<int64_t> labels(static_cast<size_t>(shape.numel()));
  for (int64_t& label : labels)
    label = static_cast<int64_t>(generator.below(static_cast<uint64_t>(problem.classes)));
  return Tensor::from_values(labels, shape, device);
}

}  // namespace sinter::bench
