// Any text as a list of faces: landmarks, or IJB's pictures, pairs or subjects, as the first letter says;
// what was read is finite and stays in its folder, or it is an IoError. Faces that are not refused can be
// aligned.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/faces/align.h>
#include <sinter/nn/data/faces/ijb.h>
#include <sinter/nn/data/faces/landmarks.h>

namespace {

using namespace sinter::nn::data;

/// Pieces of seven bytes, so that lines are cut anywhere.
TextLines lines_of(std::string_view text) {
  return TextLines("list", [text, at = size_t{0}](std::span<char> bytes) mutable {
    const size_t count = std::min({bytes.size(), size_t{7}, text.size() - at});
    std::memcpy(bytes.data(), text.data() + at, count);
    at += count;
    return count;
  });
}

void check_face(const std::string& name, const FivePoints& points) {
  if (!stays_below(name)) std::abort();
  for (const Point& point : points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) std::abort();
  }
  if (refusal_of(points) != nullptr) return;
  static const Image image{.height = 2, .width = 2, .channels = 1, .pixels = {1, 2, 3, 4}};
  Image face;
  try {
    align_face(image, points, 112, face);
  } catch (const sinter::InvalidArgument&) {  // points so far apart that their similarity has no inverse
  }
}

void read(char kind, std::string_view text) {
  TextLines lines = lines_of(text);
  if (kind == 'l') {
    for (const Landmarks& face : read_landmarks(lines)) check_face(face.path, face.points);
  } else if (kind == 's') {
    int64_t previous = INT64_MIN;
    for (const IjbSubject& subject : read_ijb_subjects(lines)) {
      if (subject.template_id < previous) std::abort();
      previous = subject.template_id;
    }
  } else if (kind == 'p') {
    while (next_ijb_pair(lines)) {
    }
  } else {
    const size_t middle = std::min(text.find('|'), text.size());
    TextLines first = lines_of(text.substr(0, middle));
    TextLines second = lines_of(text.substr(std::min(middle + 1, text.size())));
    for (const IjbImage& image : read_ijb_images(first, second)) check_face(image.name, image.points);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    read(static_cast<char>(data[0]), {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const sinter::IoError&) {
  }
  return 0;
}
