// Templates: one vector for all images of a person in one place, as IJB-B and IJB-C compare them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sinter::nn {

/// The cosine of two vectors of length one: their dot product. Equal vectors give equal bits.
float dot_product(std::span<const float> first, std::span<const float> second);

/// Templates, each a row of length one (or zeros).
struct Templates {
  int64_t dims = 0;
  std::vector<int64_t> ids;  ///< from the lowest
  std::vector<float> rows;   ///< (N, dims)

  size_t size() const { return ids.size(); }
  std::span<const float> row(size_t index) const {
    return {rows.data() + index * static_cast<size_t>(dims), static_cast<size_t>(dims)};
  }
  /// The row of a template; none if there is none of this id.
  std::optional<size_t> find(int64_t id) const;
  /// The score of two rows.
  float compare(size_t first, size_t second) const { return dot_product(row(first), row(second)); }
};

/// Adds embeddings up to templates: a medium (an image, or the frames of a video) is the mean of its images
/// in the template, a template the sum of its media, brought to length one. Holds one medium, one template
/// and the finished ones, so embeddings need not be in memory together. Sums are float64, in the order of the
/// images.
class TemplatePool {
 public:
  /// `unit_images`: each embedding is brought to length one first; else its length is its weight. Throws
  /// InvalidArgument unless dims > 0.
  explicit TemplatePool(int64_t dims, bool unit_images = false);

  /// An image's embedding, times `weight`, such as the score that a detector gave it. The images of a medium
  /// come one after another, and so do the media of a template; templates come from the lowest id, and so do
  /// media in them. Throws InvalidArgument for another order or number of dimensions.
  void add(int64_t template_id, int64_t media_id, std::span<const float> embedding, double weight = 1.0);
  /// All templates; the pool is empty afterwards.
  Templates finish();

 private:
  void end_media();
  void end_template();

  bool unit_images_;
  Templates templates_;
  int64_t template_id_ = 0, media_id_ = 0;
  int64_t images_ = 0;  // of the present medium
  std::vector<double> media_, template_;
};

}  // namespace sinter::nn
