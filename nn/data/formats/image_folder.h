// A folder of classes: <root>/<class>/<image>, the layout that ImageNet and most collections come in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

struct ImageFolderOptions {
  DecodeOptions decode = {};
  /// The classes in the order of their labels, for a folder that must agree with another one (validation with
  /// training); empty: the sub-folders' names, sorted by their bytes.
  std::vector<std::string> class_names = {};
};

/// The images of a folder of classes, in the order of the data set.
struct ImageFolderFiles {
  struct File {
    size_t label = 0;
    std::string name;  ///< a path below `<root>/<class>/`
  };
  std::vector<std::string> class_names;
  std::vector<File> files;
  /// How many files are left out, by what they are: ".gif", ".jpg beside the folders of classes".
  std::map<std::string, uint64_t> left_out = {};

  /// "16 of 64 files are left out: 9 .gif, 7 .bmp"; empty if none is.
  std::string describe_left_out() const;

  std::filesystem::path path(const std::filesystem::path& root, const File& file) const {
    return root / class_names[file.label] / file.name;
  }
};

/// Lists what open_image_folder would open, and throws as it does. `class_names` as in ImageFolderOptions.
ImageFolderFiles list_image_folder(const std::filesystem::path& root,
                                   const std::vector<std::string>& class_names = {});

/// Lists all images of a folder and of those in it, as open_image_folder does those of one class. Throws
/// IoError if a folder cannot be listed.
ImageFolderFiles list_images(const std::filesystem::path& folder);

/// Opens the folder: every sub-folder is a class, and its files *.jpg, *.jpeg, *.png, *.webp, *.pgm and *.ppm
/// (in any case), with those of the folders in it, however deep and by links too, are its images, in the
/// order of their paths' bytes. (torchvision's ImageFolder takes the same files.) Names that start with a dot
/// are passed over. The log says, in a line each, how many files of which kinds are left out, and which of
/// options.class_names have no folder. Files are read when a sample is; an image is told by its content.
/// Throws IoError if the folder is missing, has no sub-folder, or one of them has no image or is no class of
/// options.class_names, and for an entry that cannot be looked at, such as a link that leads nowhere: leaving
/// a class out would change the labels of others. The names in folders of 10,000 images and more are kept in
/// the cache folder (SINTER_CACHE_DIR, else ~/.cache/sinter); the next start lists only class folders that
/// have changed since. SINTER_CACHE_DIR= turns that off.
std::shared_ptr<const Dataset> open_image_folder(const std::filesystem::path& root,
                                                 const ImageFolderOptions& options = {});

}  // namespace sinter::nn::data
