#include "clean.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/text/lines.h>

#include "run/model_files.h"
#include "run/output_files.h"

namespace train_insightface {
namespace {

using sinter::nn::data::Dataset;

constexpr const char* kHead = "# sinter: images kept of";

class KeptFaces final : public Dataset {
 public:
  KeptFaces(std::shared_ptr<const Dataset> faces, const std::vector<KeptImage>& kept)
      : faces_(std::move(faces)), labels_(static_cast<size_t>(faces_->num_classes()), -1) {
    for (const KeptImage& image : kept) labels_[static_cast<size_t>(image.label)] = 0;
    for (size_t old = 0; old < labels_.size(); ++old) {
      if (labels_[old] < 0) continue;
      labels_[old] = static_cast<int64_t>(names_.size());
      names_.push_back(faces_->class_names()[old]);
    }
    for (const KeptImage& image : kept) {
      indices_.push_back(image.index);
      own_.push_back(labels_[static_cast<size_t>(image.label)]);
    }
  }

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::vector<int64_t> labels() const override { return own_; }
  uint64_t fingerprint() const override { return Dataset::fingerprint() ^ faces_->fingerprint(); }

  void read(int64_t index, sinter::nn::data::Sample& sample,
            const sinter::nn::data::DecodeHintFunction& reduction) const override {
    const size_t i = checked_index(index);
    faces_->read(indices_[i], sample, reduction);
    sample.label = own_[i];
  }

 private:
  std::shared_ptr<const Dataset> faces_;
  std::vector<int64_t> labels_;  // by that of all images; -1: no image is left
  std::vector<std::string> names_;
  std::vector<int64_t> indices_, own_;
};

std::string head_of(const Dataset& faces) {
  return fmt::format("{} {} images of {} identities, {}", kHead, faces.size(), faces.num_classes(),
                     sinter::examples::fingerprint_text(faces));
}

}  // namespace

std::vector<KeptImage> clean_images(const std::vector<int64_t>& labels, const std::vector<float>& cosines,
                                    int64_t sub_centres) {
  const auto each = static_cast<size_t>(sub_centres);
  const auto row = [&](size_t image) { return cosines.begin() + static_cast<std::ptrdiff_t>(image * each); };
  const int64_t classes = labels.empty() ? 0 : *std::ranges::max_element(labels) + 1;
  std::vector<int64_t> votes(static_cast<size_t>(classes) * each);
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto nearest = std::max_element(row(i), row(i + 1)) - row(i);
    ++votes[static_cast<size_t>(labels[i]) * each + static_cast<size_t>(nearest)];
  }
  const double least = std::cos(75.0 / 180.0 * std::numbers::pi);
  std::vector<KeptImage> kept;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto begin = votes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(labels[i]) * each);
    const auto dominant = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(each)) - begin;
    if (static_cast<double>(row(i)[dominant]) >= least) kept.push_back({static_cast<int64_t>(i), labels[i]});
  }
  return kept;
}

std::vector<int64_t> labels_of(const Dataset& faces) {
  std::vector<int64_t> labels = faces.labels();
  if (!labels.empty()) return labels;
  sinter::nn::data::Sample sample;
  const auto smallest = [](int64_t, int64_t) { return 8; };  // pixels are not looked at
  for (int64_t i = 0; i < faces.size(); ++i) {
    faces.read(i, sample, smallest);
    labels.push_back(sample.label);
  }
  return labels;
}

void write_kept(const std::filesystem::path& file, const Dataset& faces, const std::vector<KeptImage>& kept) {
  std::string text = head_of(faces) + "\n";
  for (const KeptImage& image : kept) text += fmt::format("{} {}\n", image.index, image.label);
  sinter::examples::write_text(file.string(), text);
}

std::shared_ptr<const Dataset> keep_images(std::shared_ptr<const Dataset> faces,
                                           const std::filesystem::path& file) {
  std::ifstream stream(file);
  const auto refuse = [&](const std::string& why) {
    throw sinter::IoError(fmt::format("--keep-images {}: {}", file.string(), why));
  };
  std::string head;
  if (!std::getline(stream, head)) refuse("expected a list that --clean wrote, but it cannot be read");
  std::string_view line = sinter::nn::data::without_byte_order_mark(head);
  if (sinter::nn::data::take_line(line) != head_of(*faces))
    refuse(fmt::format("expected '{}', the data that are given, but got '{}'", head_of(*faces),
                       head.substr(0, 120)));
  std::vector<KeptImage> kept;
  KeptImage image;
  while (stream >> image.index) {
    if (!(stream >> image.label)) refuse(fmt::format("line {} is damaged", kept.size() + 2));
    const bool rises = kept.empty() || image.index > kept.back().index;
    if (!rises || image.index < 0 || image.index >= faces->size() || image.label < 0 ||
        image.label >= faces->num_classes())
      refuse(fmt::format("line {} is damaged: {} {}", kept.size() + 2, image.index, image.label));
    kept.push_back(image);
  }
  if (!stream.eof()) refuse(fmt::format("line {} is damaged", kept.size() + 2));
  if (kept.empty()) refuse("no image is left");
  return std::make_shared<KeptFaces>(std::move(faces), kept);
}

}  // namespace train_insightface
