// Data cleaned by sub-centres: an identity's images gather around one of its centres, and those of somebody
// else's face around the others. Source: J. Deng et al., "Sub-center ArcFace", ECCV 2020.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>

namespace train_insightface {

/// An image that stays, by its number among all, and its label there.
struct KeptImage {
  int64_t index = 0;
  int64_t label = 0;

  bool operator==(const KeptImage&) const = default;
};

/// The images within 75 degrees of the sub-centre that is nearest to most images of their identity (of
/// several such, the first). `cosines`: of each image to the `sub_centres` centres of its own label, a row
/// each.
std::vector<KeptImage> clean_images(const std::vector<int64_t>& labels, const std::vector<float>& cosines,
                                    int64_t sub_centres);

/// The labels of all images, which are read if need be.
std::vector<int64_t> labels_of(const sinter::nn::data::Dataset& faces);

/// Writes a line of number and label for each, behind one that tells which data they are of.
void write_kept(const std::filesystem::path& file, const sinter::nn::data::Dataset& faces,
                const std::vector<KeptImage>& kept);

/// The images that a file of write_kept() names, and the identities that have any, numbered anew in their
/// order. Throws IoError that names the file if it is of other data, or none.
std::shared_ptr<const sinter::nn::data::Dataset> keep_images(
    std::shared_ptr<const sinter::nn::data::Dataset> faces, const std::filesystem::path& file);

}  // namespace train_insightface
