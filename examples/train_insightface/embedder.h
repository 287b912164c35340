// Embeddings of whole data sets: those of images, or the sums of an image's and its mirror image's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/module/module.h>

#include "options.h"

namespace train_insightface {

struct Embeddings {
  int64_t dims = 0;
  std::vector<float> values;  // a row per image, of length one, or per folder
  double mean_norm = 0.0;  // XNorm: of what the network gives, mirror images too, before it is made that long

  int64_t count() const { return dims == 0 ? 0 : static_cast<int64_t>(values.size()) / dims; }
  std::span<const float> row(int64_t index) const {
    return {values.data() + index * dims, static_cast<size_t>(dims)};
  }
};

/// The squared L2 distance of two rows.
double squared_distance(std::span<const float> first, std::span<const float> second);
/// Makes a row of length one; zeros stay zeros.
void make_unit(std::span<float> row);

/// The mean length of what a network has given.
struct Norms {
  double sum = 0.0;
  double count = 0.0;

  double mean() const { return count > 0 ? sum / count : 0.0; }
};

/// Embeds images batch by batch, and hands the rows over in their order: with `flip` the sum of an image's
/// and its mirror image's, as the network gives them. No more than a batch is held. Resizes images and puts
/// the backbone into evaluation mode meanwhile. None if stop_signal() is set before the end.
std::optional<Norms> for_each_embedding(const sinter::nn::AnyModule& backbone, const Options& options,
                                        sinter::Device device,
                                        const std::shared_ptr<const sinter::nn::data::Dataset>& faces,
                                        bool flip, const std::function<void(std::span<float> row)>& take);

/// All of them, of length one: the sums with the mirror images', unless --verify-flip is off.
std::optional<Embeddings> embed(const sinter::nn::AnyModule& backbone, const Options& options,
                                sinter::Device device,
                                const std::shared_ptr<const sinter::nn::data::Dataset>& faces);

/// The mean of the embeddings of each folder's images, and of their mirror images unless --verify-flip is
/// off, as the network gives them, so that its length tells how alike these are. `paths` of the images become
/// those of the folders, "." for the images' own.
std::optional<Embeddings> embed_folders(const sinter::nn::AnyModule& backbone, const Options& options,
                                        sinter::Device device,
                                        const std::shared_ptr<const sinter::nn::data::Dataset>& faces,
                                        std::vector<std::string>& paths);

/// The images of a folder and of those in it, sorted by their paths below it, which `paths` gets. Says how
/// many other files there are. Throws Error that names the option if there is no image.
std::shared_ptr<const sinter::nn::data::Dataset> open_image_tree(const char* option,
                                                                 const std::filesystem::path& folder,
                                                                 std::vector<std::string>& paths);

/// Throws Error unless such a file can hold these paths: to be known before the work.
void check_embeddings_file(const std::filesystem::path& file, const std::vector<std::string>& paths);

/// Writes lines of path and numbers if `file` ends in .csv, else safetensors: "embeddings", and the paths,
/// one a line, as metadata "paths". Paths go through escape_name(), so that any name is one line of UTF-8.
void write_embeddings(const std::filesystem::path& file, const Embeddings& embeddings,
                      const std::vector<std::string>& paths);

}  // namespace train_insightface
