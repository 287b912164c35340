// Classifier: a file of weights that names the classes of pictures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <sinter/nn/predict/picture_network.h>

namespace sinter::nn {

struct ClassifierOptions : PredictOptions {
  int64_t top_k = 5;  ///< classes that are told of each picture, or all if there are fewer
};

struct ClassScore {
  int64_t index = 0;  ///< of the class
  std::string name = {};
  float probability = 0;  ///< of all classes together 1
};

/// What a picture shows.
struct Prediction {
  std::vector<ClassScore> top = {};  ///< the likeliest first
  std::string error = {};            ///< why there is none, naming the picture; else empty
};

/// Reads, resizes and normalises pictures as the trainer did in its tests, and takes them through the network
/// as one program.
///
///   nn::Classifier classifier("run1/best.safetensors");
///   for (const nn::ClassScore& score : classifier("cat.jpg").top)
///     fmt::print("{:.1f} % {}\n", 100 * score.probability, score.name);
///
/// Weights that say nothing of themselves need their model's name:
/// `nn::Classifier("resnet50.pth", {{.unnamed = {.model = "resnet50"}}})`.
///
/// All members may be called from several threads at once. A picture's result depends neither on other
/// threads nor on the pictures beside it, but the number of those may change its last bits.
class Classifier {
 public:
  /// Throws as PictureNetwork does, InvalidArgument too for weights that give no classes.
  explicit Classifier(const std::filesystem::path& weights, const ClassifierOptions& options = {});
  Classifier(const Weights& weights, const std::string& source, const ClassifierOptions& options = {});

  /// One picture. Throws IoError, which names it, if it cannot be read or is damaged.
  Prediction operator()(const Picture& picture) const;
  /// Any number of them; those that cannot be read have an `error`, and cost the others nothing.
  std::vector<Prediction> operator()(const std::vector<Picture>& pictures) const;
  /// Images: pixels uint8 (N, H, W, C), as Picture takes them, or inputs of the network, floating-point
  /// (N, C, H, W), normalised, of the model's size.
  std::vector<Prediction> operator()(const Tensor& images) const;
  /// Very many: hands each prediction over as it comes, in order, until `take` gives false.
  void for_each(std::vector<Picture> pictures,
                const std::function<bool(int64_t index, Prediction prediction)>& take) const;

  const std::vector<std::string>& classes() const { return network_.metadata().classes; }
  const ModelMetadata& metadata() const { return network_.metadata(); }

 private:
  /// Of row `row` of probabilities and classes.
  Prediction prediction_of(const std::vector<Tensor>& outputs, int64_t row) const;

  PictureNetwork network_;
};

}  // namespace sinter::nn
