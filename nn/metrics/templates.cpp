#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/metrics/templates.h>

namespace sinter::nn {
namespace {

double length_of(std::span<const double> row) {
  double squares = 0.0;
  for (const double value : row) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

float dot_product(std::span<const float> first, std::span<const float> second) {
  constexpr size_t kSums = 16;  // side by side, for vector units
  std::array<float, kSums> sums{};
  const size_t whole = first.size() / kSums * kSums;
  for (size_t i = 0; i < whole; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += first[i + j] * second[i + j];
  }
  double sum = 0.0;
  for (const float part : sums) sum += static_cast<double>(part);
  for (size_t i = whole; i < first.size(); ++i)
    sum += static_cast<double>(first[i]) * static_cast<double>(second[i]);
  return static_cast<float>(sum);
}

std::optional<size_t> Templates::find(int64_t id) const {
  const auto place = std::lower_bound(ids.begin(), ids.end(), id);
  if (place == ids.end() || *place != id) return std::nullopt;
  return static_cast<size_t>(place - ids.begin());
}

TemplatePool::TemplatePool(int64_t dims, bool unit_images) : unit_images_(unit_images) {
  SINTER_CHECK(dims > 0, "[templates] expected dimensions but got {}", dims);
  templates_.dims = dims;
  media_.resize(static_cast<size_t>(dims));
  template_.resize(static_cast<size_t>(dims));
}

void TemplatePool::add(int64_t template_id, int64_t media_id, std::span<const float> embedding,
                       double weight) {
  SINTER_CHECK(embedding.size() == media_.size(), "[templates] expected {} dimensions but got {}",
               media_.size(), embedding.size());
  if (images_ > 0) {
    const std::pair before(template_id_, media_id_), now(template_id, media_id);
    SINTER_CHECK(
        before <= now,
        "[templates] expected images in the order of templates and media but got template {}, medium "
        "{} behind template {}, medium {}",
        template_id, media_id, template_id_, media_id_);
    if (now != before) end_media();
    if (template_id != template_id_) end_template();
  }
  template_id_ = template_id;
  media_id_ = media_id;
  ++images_;
  double factor = weight;
  if (unit_images_) {
    double squares = 0.0;
    for (const float value : embedding) squares += static_cast<double>(value) * static_cast<double>(value);
    factor /= std::max(std::sqrt(squares), 1e-12);
  }
  for (size_t i = 0; i < media_.size(); ++i) media_[i] += factor * static_cast<double>(embedding[i]);
}

void TemplatePool::end_media() {
  for (size_t i = 0; i < media_.size(); ++i)
    template_[i] += std::exchange(media_[i], 0.0) / static_cast<double>(images_);
  images_ = 0;
}

void TemplatePool::end_template() {
  const double length = std::max(length_of(template_), 1e-12);
  templates_.ids.push_back(template_id_);
  for (double& value : template_)
    templates_.rows.push_back(static_cast<float>(std::exchange(value, 0.0) / length));
}

Templates TemplatePool::finish() {
  if (images_ > 0) {
    end_media();
    end_template();
  }
  Templates finished = std::exchange(templates_, {});
  templates_.dims = finished.dims;
  return finished;
}

}  // namespace sinter::nn
