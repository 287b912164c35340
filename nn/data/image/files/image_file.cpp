#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/image/files/png.h>
#include <sinter/nn/data/image/files/webp.h>
#include <sinter/nn/data/image/netpbm.h>

namespace sinter::nn::data {

std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

std::string describe_counts(const std::map<std::string, uint64_t>& counts) {
  constexpr size_t kMostKinds = 5;
  std::vector<std::pair<uint64_t, std::string_view>> kinds;
  for (const auto& [kind, count] : counts) kinds.emplace_back(count, kind);
  std::ranges::stable_sort(kinds, std::ranges::greater(), [](const auto& kind) { return kind.first; });
  std::string text;
  for (size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", kinds[i].first, kinds[i].second);
  return text + (kinds.size() > kMostKinds ? ", ..." : "");
}

std::string ending_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  return ascii_lower(name.substr(dot + 1));
}

bool is_image_ending(std::string_view ending) {
  constexpr std::string_view kKnown[] = {"jpg", "jpeg", "png", "webp", "pgm", "ppm"};
  return std::ranges::find(kKnown, ending) != std::end(kKnown);
}

void decode_image(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                  const DecodeHintFunction& reduction, Image& image) {
  if (options.stored_values && (is_jpeg(bytes) || is_webp(bytes))) {
    throw_error<IoError>(
        "[image] {}: expected a mask as a PNG or PGM but got a {}, which need not keep its values", name,
        is_jpeg(bytes) ? "JPEG" : "WebP");
  }
  if (is_jpeg(bytes)) return decode_jpeg(bytes, name, options, reduction, image);
  if (is_png(bytes)) return decode_png(bytes, name, options, image);
  if (is_webp(bytes)) return decode_webp(bytes, name, options, image);
  if (is_netpbm(bytes)) return decode_netpbm(bytes, name, options, image);
  throw_error<IoError>(
      "[image] {}: expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are of none",
      name);
}

}  // namespace sinter::nn::data
