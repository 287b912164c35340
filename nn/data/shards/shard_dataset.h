// Data sets in tar shards, as WebDataset writes them: pairs such as 000123.jpg and 000123.cls, one after the
// other.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

struct ShardDatasetOptions {
  DecodeOptions decode = {};
  /// The classes in the order of their labels. Empty: the lines of classes.txt beside the first shard, or, if
  /// there is no such file, numbers up to the largest label.
  std::vector<std::string> class_names = {};
};

/// Opens the shards: their samples, in order, are one data set with random access. Consecutive members of one
/// name are a sample, its image .jpg, .jpeg, .png, .webp, .ppm or .pgm, its label .cls, a number; other
/// endings are passed over, which the log says in one line. Opening reads the header of every member, on the
/// CPU's worker threads; what is kept is 24 bytes a sample. Names are labels for messages, never paths; links
/// and devices are refused. Throws IoError with shard, member and byte for a damaged archive, a sample
/// without image or label, a label that is no class, and if there is no sample at all. A sample's image is
/// read and looked at when it is asked for; a shard that is no longer as it was is then an IoError. No file
/// stays open.
std::shared_ptr<const Dataset> open_shards(const std::vector<std::filesystem::path>& shards,
                                           const ShardDatasetOptions& options = {});

/// The same for a pattern: "train-{000000..000099}.tar", "{a,b}.tar" or "train-*.tar" (see expand_shards).
/// Braces name files that must exist; wildcards match in sorted order.
std::shared_ptr<const Dataset> open_shards(const std::string& pattern,
                                           const ShardDatasetOptions& options = {});

}  // namespace sinter::nn::data
