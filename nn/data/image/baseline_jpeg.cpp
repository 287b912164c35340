// Source of the format: ITU-T T.81, annex B; of the colour rules: JFIF 1.02 and Adobe's APP14 as libjpeg
// reads them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <sinter/nn/data/image/baseline_jpeg.h>
#include <sinter/nn/data/image/exif.h>

namespace sinter::nn::data {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint8_t kStartOfImage = 0xD8, kEndOfImage = 0xD9, kStartOfScan = 0xDA, kQuantTables = 0xDB;
constexpr uint8_t kRestartInterval = 0xDD, kBaselineFrame = 0xC0, kHuffmanTables = 0xC4, kComment = 0xFE;
constexpr uint8_t kApp0 = 0xE0, kApp1 = 0xE1, kApp14 = 0xEE, kApp15 = 0xEF;
constexpr uint8_t kFirstRestart = 0xD0, kLastRestart = 0xD7;

int64_t word(Bytes bytes, size_t at) {
  return bytes[at] << 8 | bytes[at + 1];
}

bool begins_with(Bytes payload, std::string_view text) {
  return payload.size() >= text.size() && std::memcmp(payload.data(), text.data(), text.size()) == 0;
}

/// One file, up to where it stops being a plain one.
class Walk {
 public:
  explicit Walk(Bytes file) : file_(file) {}

  std::optional<BaselineJpeg> run() {
    if (file_.size() < 2 || file_[0] != 0xFF || file_[1] != kStartOfImage) return std::nullopt;
    size_t at = 2;
    for (;;) {
      const std::optional<uint8_t> marker = next_marker(at);
      if (!marker || file_.size() - at < 2) return std::nullopt;
      const auto length = static_cast<size_t>(word(file_, at));
      if (length < 2 || file_.size() - at < length) return std::nullopt;
      const Bytes payload = file_.subspan(at + 2, length - 2);
      at += length;
      if (*marker == kStartOfScan) {
        if (!read_scan_header(payload) || !has_plain_colours() || !scan_is_whole(at)) return std::nullopt;
        return image_;
      }
      if (!read_segment(*marker, payload)) return std::nullopt;
    }
  }

 private:
  struct Component {
    uint8_t id = 0;
    uint8_t quant_table = 0;
  };

  // The code behind 0xff at `at`, which is moved behind it. Any number of 0xff may stand before a marker.
  std::optional<uint8_t> next_marker(size_t& at) const {
    if (at >= file_.size() || file_[at] != 0xFF) return std::nullopt;
    while (at < file_.size() && file_[at] == 0xFF) ++at;
    if (at >= file_.size()) return std::nullopt;
    return file_[at++];
  }

  // False: the file is of another kind.
  bool read_segment(uint8_t marker, Bytes payload) {
    switch (marker) {
      case kBaselineFrame:
        return read_frame(payload);
      case kHuffmanTables:
        return read_huffman_tables(payload);
      case kQuantTables:
        return read_quant_tables(payload);
      case kRestartInterval:
        if (payload.size() != 2) return false;
        restart_interval_ = word(payload, 0);
        return true;
      case kApp0:
        if (begins_with(payload, std::string_view("JFIF\0", 5)) && payload.size() >= 12) is_jfif_ = true;
        return true;
      case kApp1:
        if (image_.orientation == 1) image_.orientation = exif_orientation(payload);
        return true;
      case kApp14:
        if (begins_with(payload, "Adobe") && payload.size() >= 12) adobe_transform_ = payload[11];
        return true;
      default:
        return marker == kComment || (marker > kApp1 && marker <= kApp15);
    }
  }

  bool read_frame(Bytes payload) {
    if (has_frame_ || payload.size() < 6 || payload[0] != 8) return false;
    has_frame_ = true;
    image_.height = word(payload, 1);
    image_.width = word(payload, 3);
    image_.components = payload[5];
    count_ = payload[5];
    if (image_.height == 0 || image_.width == 0 || (count_ != 1 && count_ != 3)) return false;
    if (payload.size() != 6 + 3 * count_) return false;
    for (size_t i = 0; i < count_; ++i) {
      const uint8_t* component = payload.data() + 6 + 3 * i;
      const int across = component[1] >> 4, down = component[1] & 15;
      const int most = i == 0 && count_ == 3 ? 2 : 1;
      if (across < 1 || across > most || down < 1 || down > most || component[2] > 3) return false;
      if (i == 0) {
        block_width_ = 8 * across;
        block_height_ = 8 * down;
      }
      components_[i] = {component[0], component[2]};
    }
    return true;
  }

  bool read_quant_tables(Bytes payload) {
    while (!payload.empty()) {
      const int precision = payload[0] >> 4, table = payload[0] & 15;
      if (precision != 0 || table > 3 || payload.size() < 65) return false;
      quant_tables_[static_cast<size_t>(table)] = true;
      payload = payload.subspan(65);
    }
    return true;
  }

  bool read_huffman_tables(Bytes payload) {
    while (!payload.empty()) {
      const int kind = payload[0] >> 4, table = payload[0] & 15;
      if (kind > 1 || table > 1 || payload.size() < 17) return false;
      size_t codes = 0;
      for (size_t i = 1; i <= 16; ++i) codes += payload[i];
      if (codes == 0 || codes > 256 || payload.size() < 17 + codes) return false;
      huffman_tables_[static_cast<size_t>(2 * kind + table)] = true;
      payload = payload.subspan(17 + codes);
    }
    return true;
  }

  // All components, in their order, with tables that are there.
  bool read_scan_header(Bytes payload) const {
    if (!has_frame_ || payload.size() != 4 + 2 * count_ || payload[0] != count_) return false;
    for (size_t i = 0; i < count_; ++i) {
      const uint8_t id = payload[1 + 2 * i], tables = payload[2 + 2 * i];
      const size_t dc = tables >> 4, ac = tables & 15;
      if (id != components_[i].id || !quant_tables_[components_[i].quant_table]) return false;
      if (dc > 1 || ac > 1 || !huffman_tables_[dc] || !huffman_tables_[2 + ac]) return false;
    }
    const Bytes spectrum = payload.subspan(1 + 2 * count_);
    return spectrum[0] == 0 && spectrum[1] == 63 && spectrum[2] == 0;
  }

  // Where decoders might tell YCbCr from RGB differently, libjpeg decides.
  bool has_plain_colours() const {
    if (count_ == 1) return true;
    if (adobe_transform_) return *adobe_transform_ == 1;
    return is_jfif_ || (components_[0].id == 1 && components_[1].id == 2 && components_[2].id == 3);
  }

  bool scan_is_whole(size_t at) const {
    const int64_t across = (image_.width + block_width_ - 1) / block_width_;
    const int64_t down = (image_.height + block_height_ - 1) / block_height_;
    int64_t restarts = restart_interval_ > 0 ? (across * down - 1) / restart_interval_ : 0;
    uint8_t next_restart = kFirstRestart;
    while (at + 1 < file_.size()) {
      const void* found = std::memchr(file_.data() + at, 0xFF, file_.size() - 1 - at);
      if (found == nullptr) return false;
      at = static_cast<size_t>(static_cast<const uint8_t*>(found) - file_.data()) + 2;
      const uint8_t code = file_[at - 1];
      if (code == 0) continue;
      if (code == kEndOfImage) return restarts == 0;
      if (code != next_restart || restarts == 0) return false;
      --restarts;
      next_restart = code == kLastRestart ? kFirstRestart : static_cast<uint8_t>(code + 1);
    }
    return false;
  }

  Bytes file_;
  BaselineJpeg image_;
  bool has_frame_ = false, is_jfif_ = false;
  std::optional<uint8_t> adobe_transform_;
  int64_t restart_interval_ = 0;
  int64_t block_width_ = 8, block_height_ = 8;  // of what the scan codes at a time
  size_t count_ = 0;                            // of components
  std::array<Component, 3> components_;
  std::array<bool, 4> quant_tables_{};
  std::array<bool, 4> huffman_tables_{};  // two for DC, two for AC
};

}  // namespace

std::optional<BaselineJpeg> read_baseline_jpeg(std::span<const uint8_t> bytes) {
  return Walk(bytes).run();
}

}  // namespace sinter::nn::data
