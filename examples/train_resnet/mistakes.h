// The test images that a network is most wrong about, and how well it tells each class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/metrics/metrics.h>

#include "run/run_folder.h"

namespace train_resnet {

/// An image that was taken for another class than its own.
struct Mistake {
  int64_t index = 0;  // in the data set
  int64_t target = 0, taken = 0;
  double probability = 0.0;  // of the class that it was taken for
};

/// Keeps the mistakes of which the network was surest.
class WorstMistakes {
 public:
  /// `first`: the number of the first image.
  explicit WorstMistakes(int64_t first = 0, size_t most = 16) : most_(most), images_(first) {}
  /// Logits (N, C) and labels (N) of the images that follow those of the calls before.
  void add(const sinter::Tensor& logits, const sinter::Tensor& labels);
  /// The surest first; of equal ones the first image.
  const std::vector<Mistake>& worst() const { return mistakes_; }
  /// Of all ranks, whose images follow one another.
  void join(const sinter::Communicator& ranks);

 private:
  void keep_worst();

  size_t most_;
  int64_t images_;
  std::vector<Mistake> mistakes_;
};

/// Adds the images to the log, each at most 256 pixels a side, under tags that say what they are.
void log_mistakes(const std::vector<Mistake>& mistakes, const sinter::nn::data::Dataset& images, int64_t step,
                  const std::vector<std::string>& names, sinter::examples::RunFolder& folder);

/// For a report: each class with its number of images, precision, recall and F1, null where it has none.
nlohmann::ordered_json per_class(const sinter::nn::ConfusionMatrix& confusion,
                                 const std::vector<std::string>& names);
nlohmann::ordered_json to_json(const std::vector<Mistake>& mistakes, const std::vector<std::string>& names);

/// The three classes with the lowest F1, as a line for the end of a run; empty if none is below 1.
std::string weakest_classes(const sinter::nn::ConfusionMatrix& confusion,
                            const std::vector<std::string>& names);

}  // namespace train_resnet
