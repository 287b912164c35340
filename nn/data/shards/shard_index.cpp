#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/shards/shard_index.h>

namespace sinter::nn::data {
namespace {

constexpr uint64_t kMostImageBytes = uint64_t{256} << 20;
constexpr uint64_t kMostLabelBytes = 32;
constexpr uint32_t kMostLabel = (uint32_t{1} << 24) - 1;  // as in record files

struct NameParts {
  std::string_view key, ending;
};

NameParts split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// For messages, as a name may hold anything.
std::string printable_name(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 120)) text += c >= ' ' && c <= '~' ? c : '?';
  return text;
}

class ShardIndexer {
 public:
  ShardIndexer(const TarReadAt& read_at, const std::string& name) : read_at_(read_at), name_(name) {}

  void add(const TarMember& member) {
    const auto [key, ending] = split_name(member.name);
    if (key.empty() || key.ends_with('/')) return;  // the name starts with a dot
    const std::string kind = ascii_lower(ending);
    const bool is_image = is_image_ending(kind);
    if (!is_image && kind != "cls") {
      ++passed_over[kind];
      return;
    }
    if (key != key_) finish_sample();
    key_ = key;
    last_ = member;
    if (is_image) {
      if (image_) fail(member, "the sample has another image already");
      if (member.size == 0 || member.size > kMostImageBytes)
        fail(member,
             fmt::format("expected an image of 1 to {} bytes but got {}", kMostImageBytes, member.size));
      image_ = ShardSample{.header = member.offset - kTarBlock, .size = static_cast<uint32_t>(member.size)};
    } else {
      if (label_) fail(member, "the sample has another label already");
      label_ = read_label(member);
    }
  }

  void finish_sample() {
    if (!image_ && !label_) return;
    if (!image_) fail(last_, fmt::format("the sample has no image ({})", kImageEndings));
    if (!label_) fail(last_, "the sample has no label (.cls)");
    image_->label = *label_;
    samples.push_back(*image_);
    image_.reset();
    label_.reset();
  }

  std::vector<ShardSample> samples;
  std::map<std::string, uint64_t> passed_over;

 private:
  [[noreturn]] void fail(const TarMember& member, const std::string& what) const {
    throw_error<IoError>("[shard] {}: member \"{}\" at byte {}: {}", name_, printable_name(member.name),
                         member.header, what);
  }

  uint32_t read_label(const TarMember& member) const {
    std::array<uint8_t, kMostLabelBytes> bytes{};
    const auto size = static_cast<size_t>(std::min(member.size, kMostLabelBytes));
    read_at_(member.offset, std::span(bytes).first(size));
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), size);
    text = text.substr(0, text.find_last_not_of(" \t\r\n\f\v") + 1);
    uint32_t label = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (member.size > kMostLabelBytes || error != std::errc{} || end != text.data() + text.size() ||
        label > kMostLabel)
      fail(member,
           fmt::format("expected a class from 0 to {} but got \"{}\"", kMostLabel, printable_name(text)));
    return label;
  }

  const TarReadAt& read_at_;
  const std::string& name_;
  std::string key_;
  std::optional<ShardSample> image_;
  std::optional<uint32_t> label_;
  TarMember last_;  // of the sample that has begun
};

}  // namespace

std::vector<ShardSample> index_shard(uint64_t size, const TarReadAt& read_at, const std::string& name,
                                     std::map<std::string, uint64_t>* passed_over) {
  ShardIndexer indexer(read_at, name);
  read_tar(size, read_at, name, [&](const TarMember& member) { indexer.add(member); });
  indexer.finish_sample();
  if (passed_over != nullptr) *passed_over = std::move(indexer.passed_over);
  return std::move(indexer.samples);
}

}  // namespace sinter::nn::data
