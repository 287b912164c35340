// Pairs of face images, each of one person or of two: what face recognition is tested with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

struct VerificationSet {
  /// Two images a pair: 2i and 2i + 1 are those of pair i, so a loader that does not shuffle delivers pairs
  /// side by side. An image's label is 1 ("same") or 0 ("different"), that of its pair.
  std::shared_ptr<const Dataset> images;
  std::vector<uint8_t> same;  ///< 1 where the images of a pair are of one person, else 0

  int64_t pairs() const { return static_cast<int64_t>(same.size()); }
};

/// Opens one of
/// - a file such as lfw.bin: a pickle (bins, issame) of protocol 2 to 5, from Python 2 or 3, where `bins`
/// lists
///   2N images as bytes or as numpy arrays of uint8 that hold the bytes, and `issame` N truths. The pickle is
///   read by a machine that can build such lists and nothing else: it calls nothing, whatever the file says;
/// - a list of pairs, a text file with lines "path path 0|1", blanks (or two tabs alone) between them, 1 for
///   the same person; paths lead from the list's folder to JPEGs, PNGs, PGMs or PPMs, and not out of it;
/// - a folder with such a list, named pairs.txt.
/// Images are read when they are asked for; a pickle's file is mapped, so it must not be changed while the
/// set lives. Throws IoError, naming file and byte or line, for everything else and for damage.
VerificationSet open_verification_set(const std::filesystem::path& path, const DecodeOptions& decode = {});

}  // namespace sinter::nn::data
