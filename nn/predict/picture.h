// Pictures to predict, wherever they come from, as a data set in which damaged ones keep their places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/data/dataset.h>

namespace sinter::nn {

/// A JPEG, PNG, WebP, PGM or PPM file, the bytes of one, or its pixels.
class Picture {
 public:
  Picture(std::filesystem::path file) : source_(std::move(file)) {}
  Picture(const char* file) : source_(std::filesystem::path(file)) {}
  Picture(const std::string& file) : source_(std::filesystem::path(file)) {}
  /// A file's contents, which must stay where they are while the picture is used. `name` is for messages.
  Picture(std::span<const uint8_t> bytes, std::string name = "the picture")
      : source_(bytes), name_(std::move(name)) {}
  Picture(const std::vector<uint8_t>& bytes) : Picture(std::span(bytes)) {}
  /// Pixels, uint8 (H, W, C): C is 1 for grey or 3 for RGB, and one more with an alpha behind them. Throws
  /// InvalidArgument for another tensor.
  Picture(const Tensor& pixels);

  /// What messages call it.
  std::string name() const;
  /// Puts it into `image` with `options.channels` channels, as nn::data::decode_image does. A transparent one
  /// lies on white. Throws IoError, which names it, if it cannot be read or is damaged.
  void read(const data::DecodeOptions& options, const data::DecodeHintFunction& reduction,
            data::Image& image) const;
  /// As Dataset::read_encoded.
  bool read_encoded(data::EncodedSample& sample) const;

 private:
  std::variant<std::filesystem::path, std::span<const uint8_t>, Tensor> source_;
  std::string name_;
};

/// Pictures as a data set without classes, for a model of `metadata`. In place of one that cannot be read
/// stands a black image, and take_errors() has the reason. Where the model resizes nothing (resize "none"), a
/// picture of another size than its inputs' is resized to it, to whole pixel values.
class PictureSet final : public data::Dataset {
 public:
  PictureSet(std::vector<Picture> pictures, const ModelMetadata& metadata);

  int64_t size() const override { return static_cast<int64_t>(pictures_.size()); }
  void read(int64_t index, data::Sample& sample, const data::DecodeHintFunction& reduction) const override;
  bool read_encoded(int64_t index, data::EncodedSample& sample) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }

  /// Takes out what was wrong with pictures [begin, end), in their order: empty for a sound one.
  std::vector<std::string> take_errors(int64_t begin, int64_t end) const;

 private:
  const std::vector<Picture> pictures_;
  const int64_t height_, width_, channels_;
  const bool fits_;  // pictures to the inputs' size
  const std::vector<std::string> class_names_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> errors_;
};

}  // namespace sinter::nn
