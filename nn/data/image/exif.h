// The one thing that training needs of EXIF: which way up a photograph is.
#pragma once

#include <cstdint>
#include <span>

namespace sinter::nn::data {

/// The orientation (1 to 8) stated in the payload of a JPEG's APP1 marker, which starts with "Exif\0\0".
/// Returns 1, upright, if the payload is no EXIF, states none, or is damaged: cameras write many odd tags,
/// and pixels matter more. Source: CIPA DC-008 (EXIF 2.3), section 4.6: a TIFF header, then image file
/// directories of 12-byte entries.
int exif_orientation(std::span<const uint8_t> payload);

/// The same of what PNG's eXIf and WebP's EXIF chunks hold, which begins with the TIFF header; some writers
/// put the prefix of a JPEG's marker before it.
int tiff_orientation(std::span<const uint8_t> bytes);

}  // namespace sinter::nn::data
