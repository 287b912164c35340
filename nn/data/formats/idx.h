// IDX files, the format of the MNIST family: an array of bytes behind a short header, plain or packed with
// gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>

namespace sinter::nn::data {

/// The most values that are taken from one file unless a call says otherwise: several times EMNIST, the
/// largest of the family. A small gzip file can promise, and hold, far more than memory has.
inline constexpr uint64_t kIdxMaxValues = uint64_t{2} << 30;

/// An array of uint8 values in row-major order; their number is the product of `dims`.
struct IdxArray {
  std::vector<int64_t> dims;
  std::vector<uint8_t> values;
};

/// Reads an IDX array of uint8 from the bytes of a file, plain or gzip (told apart by content). `name` is the
/// file's, for messages. Throws IoError, naming the byte, unless the header is right and the values fill the
/// rest exactly; Unsupported for other element types, and OutOfMemory. A header's sizes are checked, against
/// `max_values` too, before memory is taken for them. Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST
/// database of handwritten digits".
IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& name,
                   uint64_t max_values = kIdxMaxValues);

/// Reads an IDX file.
IdxArray read_idx(const std::filesystem::path& path, uint64_t max_values = kIdxMaxValues);

/// Pairs a file of images (N, height, width) or (N, height, width, channels) with one of labels (N). The
/// classes are named by their numbers, from 0 to `num_classes` - 1, or to the largest label if it is 0.
/// Throws IoError if the files do not fit together.
std::shared_ptr<const MemoryDataset> open_idx(const std::filesystem::path& images,
                                              const std::filesystem::path& labels, int64_t num_classes = 0,
                                              uint64_t max_values = kIdxMaxValues);

}  // namespace sinter::nn::data
