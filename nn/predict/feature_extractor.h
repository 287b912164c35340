// FeatureExtractor: what a layer inside a network makes of pictures, as vectors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/predict/picture_network.h>

namespace sinter::nn {

/// Embeddings of pictures by any layer, which is named by its path in the model: "layer4", "layer3.1.conv2",
/// "fc". Of a layer that gives maps (N, C, H, W) they are the means over height and width, so that the last
/// stage's are what the classifying layer of a ResNet sees; "avgpool" and "flatten" are names for these too.
/// What lies behind the layer is not computed.
///
///   nn::FeatureExtractor features("run1/best.safetensors", "layer4");
///   Tensor rows = features({"cat.jpg", "dog.png"});  // float32 (2, 512)
class FeatureExtractor {
 public:
  /// Throws as PictureNetwork does, and InvalidArgument, which lists the layers, for one that is not there or
  /// gives no tensor of its own.
  FeatureExtractor(const std::filesystem::path& weights, const std::string& layer,
                   const PredictOptions& options = {});
  FeatureExtractor(const Weights& weights, const std::string& source, const std::string& layer,
                   const PredictOptions& options = {});

  /// float32 (N, dimensions()) on the CPU, a row for each picture. Throws IoError for the first that cannot
  /// be read. Safe to call from several threads at once.
  Tensor operator()(const std::vector<Picture>& pictures) const;
  /// Very many: hands each row over as it comes, in order, until `take` gives false. A picture that cannot be
  /// read has an `error`, and the row means nothing.
  void for_each(std::vector<Picture> pictures,
                const std::function<bool(int64_t index, std::span<const float> row,
                                         const std::string& error)>& take) const;

  int64_t dimensions() const { return dimensions_; }
  /// As it was asked for: "avgpool", though it is no module of its own.
  const std::string& layer() const { return layer_; }
  const ModelMetadata& metadata() const { return network_.metadata(); }

 private:
  /// The layer's output for images, as rows.
  Tensor rows_of(const AnyModule& model, const Tensor& images) const;

  PictureNetwork network_;
  std::string layer_;
  const void* layer_id_ = nullptr;
  int64_t dimensions_ = 0;
};

}  // namespace sinter::nn
