#include <algorithm>
#include <filesystem>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/pickle.h>
#include <sinter/nn/data/records/verification_parts.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

using Kind = PickleValue::Kind;

std::span<const uint8_t> image_bytes(const ImagePickle& pickle, const PickleValue& value, size_t index,
                                     const std::string& name) {
  const std::span<const uint8_t> bytes = pickle.bytes_of(value);
  if (bytes.empty())
    throw_error<IoError>("[verification] {}: expected image {} to be bytes or an array of them", name, index);
  return bytes;
}

// A list of booleans or numbers, or an array of bytes.
std::vector<uint8_t> truths(const ImagePickle& pickle, const PickleValue& value, const std::string& name) {
  std::vector<uint8_t> same;
  if (pickle.is_array(value)) {
    const auto bytes = pickle.bytes_of(value);
    same.assign(bytes.begin(), bytes.end());
  } else if (const auto* items = pickle.items(value)) {
    same.reserve(items->size());
    for (const PickleValue& item : *items) {
      const bool truth =
          (item.kind == Kind::kBool || item.kind == Kind::kNumber) && (item.number == 0 || item.number == 1);
      same.push_back(truth ? static_cast<uint8_t>(item.number) : uint8_t{255});
    }
  } else {
    throw_error<IoError>("[verification] {}: expected a list of truths behind that of images", name);
  }
  const auto odd = std::find_if(same.begin(), same.end(), [](uint8_t truth) { return truth > 1; });
  if (odd != same.end()) {
    throw_error<IoError>("[verification] {}: expected True or False for pair {} but got something else", name,
                         odd - same.begin());
  }
  return same;
}

// The words between blanks; of more than three of them, what two tabs divide, for paths with blanks.
std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string_view> words;
  for (size_t at = 0;
       (at = line.find_first_not_of(kBlanks, at)) != std::string_view::npos && words.size() < 4;) {
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  if (words.size() > 3 && std::count(line.begin(), line.end(), '\t') == 2) {
    const size_t first = line.find('\t'), second = line.rfind('\t');
    return {line.substr(0, first), line.substr(first + 1, second - first - 1), line.substr(second + 1)};
  }
  return words;
}

bool stays_inside(std::string_view text) {
  const std::filesystem::path path(text);
  return path.is_relative() && text.find('\0') == std::string_view::npos &&
         std::find(path.begin(), path.end(), "..") == path.end();
}

}  // namespace

VerificationBins parse_verification_bins(std::span<const uint8_t> bytes, const std::string& name) {
  ImagePickle pickle(bytes, name);
  const auto* both = pickle.items(pickle.top());
  const auto* bins = both != nullptr && both->size() == 2 ? pickle.items(both->front()) : nullptr;
  if (bins == nullptr)
    throw_error<IoError>("[verification] {}: expected a pair of lists, images and truths", name);
  VerificationBins result;
  result.same = truths(pickle, both->back(), name);
  if (result.same.empty() || bins->size() != 2 * result.same.size()) {
    throw_error<IoError>("[verification] {}: expected two images a pair but got {} images and {} pairs", name,
                         bins->size(), result.same.size());
  }
  result.images.reserve(bins->size());
  for (size_t i = 0; i < bins->size(); ++i) result.images.push_back(image_bytes(pickle, (*bins)[i], i, name));
  // Vectors that are moved keep their bytes in place.
  result.owned = pickle.take_owned();
  return result;
}

VerificationList parse_verification_list(std::span<const uint8_t> text, const std::string& name) {
  VerificationList list;
  std::string_view rest = without_byte_order_mark({reinterpret_cast<const char*>(text.data()), text.size()});
  for (size_t number = 1; !rest.empty(); ++number) {
    const auto words = words_of(take_line(rest));
    if (words.empty()) continue;
    if (words.size() != 3 || (words[2] != "0" && words[2] != "1")) {
      throw_error<IoError>("[verification] {}: expected \"path path 0\" or \"path path 1\" in line {}", name,
                           number);
    }
    for (size_t i = 0; i < 2; ++i) {
      if (!stays_inside(words[i])) {
        throw_error<IoError>("[verification] {}: expected paths inside the list's folder in line {}", name,
                             number);
      }
      list.paths.emplace_back(words[i]);
    }
    list.same.push_back(words[2] == "1" ? 1 : 0);
  }
  if (list.same.empty()) throw_error<IoError>("[verification] {}: expected at least one pair", name);
  return list;
}

}  // namespace sinter::nn::data
