#include <algorithm>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/predict/classifier.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/topk/topk.h>

namespace sinter::nn {

namespace {

PictureNetwork::Function probabilities(int64_t top_k) {
  SINTER_CHECK(top_k > 0, "[classifier] expected top_k > 0 but got {}", top_k);
  return {
      .view = [](const AnyModule& model,
                 const Tensor& images) { return ops::softmax(ops::cast(model(images), DType::kFloat32), 1); },
      .finish =
          [top_k](const Tensor& mean) {
            const ops::TopK best = ops::topk(mean, std::min(top_k, mean.size(1)), 1);
            return std::vector<Tensor>{best.values, best.indices};
          }};
}

/// Pixels of a batch, picture by picture.
std::vector<Picture> pictures_of(const Tensor& pixels) {
  const Tensor host = pixels.to(Device::cpu());
  std::vector<Picture> pictures;
  for (int64_t i = 0; i < host.size(0); ++i) pictures.emplace_back(host[i]);
  return pictures;
}

}  // namespace

Classifier::Classifier(const std::filesystem::path& weights, const ClassifierOptions& options)
    : Classifier(read_weights(weights), weights.string(), options) {}

Classifier::Classifier(const Weights& weights, const std::string& source, const ClassifierOptions& options)
    : network_(weights, source, options, probabilities(options.top_k)) {
  SINTER_CHECK(metadata().task == "image-classification" && !classes().empty(),
               "[classifier] {}: expected weights of a model that tells classes apart but got those of a {} "
               "for {}",
               source, metadata().model, metadata().task);
  const auto outputs = metadata().options.find("classes");
  SINTER_CHECK(outputs != metadata().options.end() && outputs->second == fmt::format("{}", classes().size()),
               "[classifier] {}: expected a name for each of the model's {} classes but got {}", source,
               outputs == metadata().options.end() ? "unknown" : outputs->second, classes().size());
}

Prediction Classifier::prediction_of(const std::vector<Tensor>& outputs, int64_t row) const {
  const int64_t count = outputs[0].size(1);
  Prediction prediction;
  for (int64_t i = row * count; i < (row + 1) * count; ++i) {
    const int64_t index = outputs[1].data<int64_t>()[i];
    prediction.top.push_back({index, classes()[static_cast<size_t>(index)], outputs[0].data<float>()[i]});
  }
  return prediction;
}

Prediction Classifier::operator()(const Picture& picture) const {
  Prediction prediction = (*this)(std::vector<Picture>{picture}).front();
  if (!prediction.error.empty()) throw IoError(prediction.error);
  return prediction;
}

std::vector<Prediction> Classifier::operator()(const std::vector<Picture>& pictures) const {
  std::vector<Prediction> predictions;
  for_each(pictures, [&](int64_t, Prediction prediction) {
    predictions.push_back(std::move(prediction));
    return true;
  });
  return predictions;
}

std::vector<Prediction> Classifier::operator()(const Tensor& images) const {
  if (images.defined() && images.dtype() == DType::kUInt8 && images.rank() == 4)
    return (*this)(pictures_of(images));
  const std::vector<Tensor> outputs = network_.run(images);
  std::vector<Prediction> predictions;
  for (int64_t row = 0; row < outputs[0].size(0); ++row) predictions.push_back(prediction_of(outputs, row));
  return predictions;
}

void Classifier::for_each(std::vector<Picture> pictures,
                          const std::function<bool(int64_t index, Prediction prediction)>& take) const {
  network_.run(std::move(pictures), [&](int64_t first, const std::vector<Tensor>& outputs,
                                        const std::vector<std::string>& errors) {
    for (size_t row = 0; row < errors.size(); ++row) {
      const auto at = static_cast<int64_t>(row);
      Prediction prediction = errors[row].empty() ? prediction_of(outputs, at) : Prediction{{}, errors[row]};
      if (!take(first + at, std::move(prediction))) return false;
    }
    return true;
  });
}

}  // namespace sinter::nn
