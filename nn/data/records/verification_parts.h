// What a verification set's file says, before images are decoded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sinter::nn::data {

/// Encoded images and the truths of a pickle; the images are views of its bytes, or of `owned`.
struct VerificationBins {
  std::vector<std::span<const uint8_t>> images;
  std::vector<uint8_t> same;
  std::vector<std::vector<uint8_t>> owned;
};

/// Throws IoError unless the bytes are a pickle of what open_verification_set says.
VerificationBins parse_verification_bins(std::span<const uint8_t> bytes, const std::string& name);

struct VerificationList {
  std::vector<std::string> paths;  ///< two a pair
  std::vector<uint8_t> same;
};

/// Throws IoError, with the line, unless every line (but empty ones) is "path path 0|1", divided by blanks or
/// by two tabs alone, with paths that stay in the list's folder, and there is one at least.
VerificationList parse_verification_list(std::span<const uint8_t> text, const std::string& name);

}  // namespace sinter::nn::data
