#include "mistakes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/core.h>

#include <sinter/core/op/node.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/data/image/resize.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/softmax/softmax.h>

namespace train_resnet {

using namespace sinter;
using nlohmann::ordered_json;

namespace {

const std::string& name_of(const std::vector<std::string>& names, int64_t index) {
  return names[static_cast<size_t>(index)];
}

/// JSON has no number for a share of nothing.
ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

/// At most `most` letters of a name in UTF-8.
std::string shortened(const std::string& name, size_t most) {
  const auto begins_letter = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  size_t letters = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (begins_letter(name[i]) && ++letters > most) return name.substr(0, i) + "..";
  }
  return name;
}

/// The same picture with at most `side` pixels a side.
nn::data::Image thumbnail(const nn::data::Image& image, int64_t side) {
  const int64_t longer = std::max(image.height, image.width);
  if (longer <= side) return image;
  const auto scaled = [&](int64_t extent) { return std::max<int64_t>(extent * side / longer, 1); };
  nn::data::Image small;
  nn::data::resize(image, scaled(image.height), scaled(image.width), small);
  return small;
}

}  // namespace

void WorstMistakes::add(const Tensor& logits, const Tensor& labels) {
  const NoGrad no_grad;
  const auto shares = ops::softmax(ops::cast(logits, DType::kFloat32), 1).to_vector<float>();
  const std::vector<int64_t> targets = labels.to_vector<int64_t>();
  const auto classes = static_cast<std::ptrdiff_t>(logits.size(1));
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto row = shares.begin() + static_cast<std::ptrdiff_t>(i) * classes;
    const auto largest = std::max_element(row, row + classes);
    if (largest - row == targets[i] || !std::isfinite(*largest)) continue;
    mistakes_.push_back({images_ + static_cast<int64_t>(i), targets[i], largest - row, *largest});
  }
  images_ += static_cast<int64_t>(targets.size());
  keep_worst();
}

void WorstMistakes::keep_worst() {
  std::ranges::stable_sort(mistakes_, std::greater{}, &Mistake::probability);
  if (mistakes_.size() > most_) mistakes_.resize(most_);
}

void WorstMistakes::join(const Communicator& ranks) {
  if (ranks.size() == 1) return;
  constexpr size_t kWords = 4;
  std::vector<int64_t> words;
  mistakes_.resize(most_, {.index = -1});
  for (const Mistake& mistake : mistakes_)
    words.insert(words.end(),
                 {mistake.index, mistake.target, mistake.taken, std::bit_cast<int64_t>(mistake.probability)});
  const Tensor all = ranks.all_gather(Tensor::from_values(words, {static_cast<int64_t>(words.size())}));
  const std::vector<int64_t> gathered = all.to_vector<int64_t>();
  mistakes_.clear();
  for (size_t i = 0; i < gathered.size(); i += kWords) {
    if (gathered[i] < 0) continue;
    mistakes_.push_back(
        {gathered[i], gathered[i + 1], gathered[i + 2], std::bit_cast<double>(gathered[i + 3])});
  }
  keep_worst();
}

void log_mistakes(const std::vector<Mistake>& mistakes, const nn::data::Dataset& images, int64_t step,
                  const std::vector<std::string>& names, examples::RunFolder& folder) {
  constexpr int64_t kSide = 256;
  constexpr size_t kMostLetters = 40;
  int number = 0;
  for (const Mistake& mistake : mistakes) {
    const auto name = [&](int64_t index) {
      return shortened(nn::to_utf8(name_of(names, index)), kMostLetters);
    };
    folder.picture(fmt::format("mistakes/{:02} {} taken for {} ({:.1f} %)", ++number, name(mistake.target),
                               name(mistake.taken), 100 * mistake.probability),
                   thumbnail(images.get(mistake.index).image, kSide), step);
  }
}

ordered_json per_class(const nn::ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  ordered_json rows = ordered_json::array();
  for (int64_t i = 0; i < confusion.classes(); ++i) {
    int64_t images = 0;
    for (int64_t taken = 0; taken < confusion.classes(); ++taken) images += confusion.count(i, taken);
    rows.push_back({{"class", name_of(names, i)},
                    {"images", images},
                    {"precision", number_or_null(confusion.precision(i))},
                    {"recall", number_or_null(confusion.accuracy(i))},
                    {"f1", number_or_null(confusion.f1(i))}});
  }
  return rows;
}

ordered_json to_json(const std::vector<Mistake>& mistakes, const std::vector<std::string>& names) {
  ordered_json rows = ordered_json::array();
  for (const Mistake& mistake : mistakes) {
    rows.push_back({{"index", mistake.index},
                    {"class", name_of(names, mistake.target)},
                    {"taken_for", name_of(names, mistake.taken)},
                    {"probability", mistake.probability}});
  }
  return rows;
}

std::string weakest_classes(const nn::ConfusionMatrix& confusion, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3, kMostLetters = 12;
  std::vector<std::pair<double, int64_t>> classes;
  for (int64_t i = 0; i < confusion.classes(); ++i) {
    if (const double f1 = confusion.f1(i); f1 < 1.0) classes.emplace_back(f1, i);
  }
  std::ranges::sort(classes);
  std::string text;
  for (size_t i = 0; i < std::min(classes.size(), kMost); ++i) {
    const std::string name = shortened(nn::to_utf8(name_of(names, classes[i].second)), kMostLetters);
    text += fmt::format("{}{} ({}{:.1f} %)", i == 0 ? "" : ", ", name, i == 0 ? "F1 " : "",
                        100 * classes[i].first);
  }
  return text.empty() ? text : fmt::format("{:<12} {}\n", "weakest", text);
}

}  // namespace train_resnet
