// Which members of a tar shard make a sample: WebDataset's convention.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <sinter/nn/data/shards/tar.h>

namespace sinter::nn::data {

/// An image in a shard: its bytes lie behind its header's block.
struct ShardSample {
  uint64_t header = 0;
  uint32_t size = 0;
  uint32_t label = 0;
};

/// The samples of a shard. Consecutive members with one name up to the first dot behind the last slash are a
/// sample; of their endings, in any case, one of .jpg, .jpeg, .png, .webp, .ppm and .pgm is the image and
/// .cls the label, a whole number in digits. Other endings are passed over, and counted in `passed_over`; so
/// are names that start with a dot, uncounted. Throws IoError with shard, member and byte for damage as
/// read_tar does, a sample without an image or a label or with two, and for one that is empty or larger than
/// 256 MiB.
std::vector<ShardSample> index_shard(uint64_t size, const TarReadAt& read_at, const std::string& name,
                                     std::map<std::string, uint64_t>* passed_over = nullptr);

/// The files that a pattern names, in order: `{000..099}` counts, with leading zeros if the first number has
/// them, `{a,b}` lists, and `*`, `?` and `[...]` match names in folders, sorted. A file whose name is the
/// pattern itself comes first of all. Throws IoError if there is none, or one of those that braces name is
/// missing, InvalidArgument for braces that are damaged or name over a million files.
std::vector<std::filesystem::path> expand_shards(const std::string& pattern);

}  // namespace sinter::nn::data
