#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/shards/tar.h>

namespace sinter::nn::data {
namespace {

constexpr uint64_t kBlock = kTarBlock;
constexpr uint64_t kMostName = 4096;
constexpr uint64_t kMostRecords = uint64_t{1} << 20;  // bytes of one pax header
using Block = std::array<uint8_t, kBlock>;
using BlockView = std::span<const uint8_t, kBlock>;

// A field of a header: its first byte and its length.
struct Field {
  size_t at, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 6}, kPrefix{345, 155};
constexpr size_t kType = 156;

std::string_view text_of(BlockView block, Field field) {
  const std::string_view all(reinterpret_cast<const char*>(block.data()) + field.at, field.length);
  return all.substr(0, all.find('\0'));
}

// Octal digits between blanks and zero bytes; none if there is anything else.
std::optional<uint64_t> octal(BlockView block, Field field) {
  size_t at = field.at;
  const size_t end = field.at + field.length;
  while (at < end && block[at] == ' ') ++at;
  const size_t first = at;
  uint64_t value = 0;
  for (; at < end && block[at] >= '0' && block[at] <= '7'; ++at) {
    if (value >> 61 != 0) return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(block[at] - '0');
  }
  if (at == first) return std::nullopt;
  for (; at < end; ++at) {
    if (block[at] != ' ' && block[at] != '\0') return std::nullopt;
  }
  return value;
}

// A number in octal digits or, if its first bit is set, as GNU's big-endian one; negative ones are none.
std::optional<uint64_t> number(BlockView block, Field field) {
  if ((block[field.at] & 0x80) == 0) return octal(block, field);
  uint64_t value = block[field.at] & 0x7f;
  for (size_t i = 1; i < field.length; ++i) {
    if (value >> 55 != 0) return std::nullopt;
    value = value << 8 | block[field.at + i];
  }
  return value;
}

// Some writers of old summed signed bytes.
bool checksum_fits(BlockView block) {
  const std::optional<uint64_t> stored = octal(block, kChecksum);
  if (!stored) return false;
  int64_t sum = 0, signed_sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool blank = i >= kChecksum.at && i < kChecksum.at + kChecksum.length;
    const uint8_t byte = blank ? ' ' : block[i];
    sum += byte;
    signed_sum += static_cast<int8_t>(byte);
  }
  return *stored == static_cast<uint64_t>(sum) || static_cast<int64_t>(*stored) == signed_sum;
}

bool is_zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// For messages: a name may hold anything.
std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 120)) text += c >= ' ' && c <= '~' ? c : '?';
  return name.size() > 120 ? text + "..." : text;
}

// GNU's headers have times where ustar has the first part of a long name.
std::string header_name(BlockView block) {
  const std::string_view name = text_of(block, kName);
  const std::string_view magic(reinterpret_cast<const char*>(block.data()) + kMagic.at, kMagic.length);
  const std::string_view prefix =
      magic == std::string_view("ustar\0", 6) ? text_of(block, kPrefix) : std::string_view();
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

class TarReader {
 public:
  TarReader(uint64_t size, const TarReadAt& read_at, const std::string& name)
      : size_(size), read_at_(read_at), name_(name) {}

  void run(const std::function<void(const TarMember&)>& visit) {
    for (;;) {
      header_ = at_;
      if (size_ - at_ < kBlock) fail("expected another member or two blocks of zeros");
      read_at_(at_, block_);
      if (is_zero(block_)) return check_end();
      at_ += kBlock;
      read_member(visit);
    }
  }

 private:
  // What an 'L' or 'x' header says of the member behind it.
  struct Said {
    std::optional<std::string> name;
    bool name_is_of_pax = false;  // which then counts before a GNU long name
    std::optional<uint64_t> size;
  };

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> expected, Args&&... args) const {
    const std::string member = member_.empty() ? "" : fmt::format("member \"{}\" ", shown(member_));
    throw_error<IoError>("[tar] {}: {}at byte {}: {}", name_, member, header_,
                         fmt::format(expected, std::forward<Args>(args)...));
  }

  void read_member(const std::function<void(const TarMember&)>& visit) {
    if (!checksum_fits(block_)) fail("the checksum of the header is wrong");
    member_ = said_.name ? *said_.name : header_name(block_);
    const char type = static_cast<char>(block_[kType]);
    std::optional<uint64_t> stored = number(block_, kSize);
    if (!stored) fail("the size is no number");
    if (said_.size && type != 'L' && type != 'x' && type != 'g') stored = said_.size;
    // No bytes follow a folder, whatever its header says: some writers put there what it takes on a disk.
    const uint64_t size = type == '5' ? 0 : *stored;
    const uint64_t left = size_ - at_;
    if (size > left) fail("expected {} bytes but the archive has {} more", size, left);
    switch (type) {
      case 'L':
      case 'x':
      case 'g':
        take_said(type, size);
        break;
      case '\0':
      case '0':
      case '7':
        // Archives from before ustar tell folders by their names.
        if (!member_.ends_with('/')) visit({member_, header_, at_, size});
        said_ = {};
        break;
      case '5':
        said_ = {};
        break;
      case '1':
      case '2':
        fail("expected a file or a folder but it is a link; `tar --hard-dereference -h` packs the files");
      default:
        fail("expected a file or a folder but got type '{}'", shown({&type, 1}));
    }
    // The last block is filled up.
    const uint64_t padded = (size + kBlock - 1) / kBlock * kBlock;
    if (padded > left) fail("the archive ends before the member's last block");
    at_ += padded;
    member_.clear();
  }

  void take_said(char type, uint64_t size) {
    const uint64_t most = type == 'L' ? kMostName + 1 : kMostRecords;
    if (size > most) fail("expected at most {} bytes of name or header but got {}", most, size);
    std::vector<uint8_t> bytes(size);
    read_at_(at_, bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (type == 'L') {
      if (!said_.name_is_of_pax) set_name(text.substr(0, text.find('\0')));
    } else {
      take_records(text, type == 'g');
    }
  }

  void set_name(std::string_view name) {
    if (name.empty() || name.size() > kMostName || name.find('\0') != std::string_view::npos)
      fail("expected a name of 1 to {} bytes", kMostName);
    said_.name = name;
  }

  // Records "<length> <key>=<value>\n", whose length counts all of it.
  void take_records(std::string_view text, bool global) {
    while (!text.empty()) {
      uint64_t length = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<uint64_t>(end - text.data());
      if (error != std::errc{} || length > text.size() || length < digits + 3 || *end != ' ' ||
          text[length - 1] != '\n')
        fail("a record of the pax header is damaged");
      const std::string_view record = text.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail("a record of the pax header is damaged");
      take_record(record.substr(0, equals), record.substr(equals + 1), global);
      text.remove_prefix(length);
    }
  }

  void take_record(std::string_view key, std::string_view value, bool global) {
    if (key.starts_with("GNU.sparse.")) fail("sparse files are not read");
    if (key != "path" && key != "size") return;
    if (global) fail("expected no {} for all members", key);
    if (key == "path") {
      said_.name_is_of_pax = true;
      return set_name(value);
    }
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc{} || end != value.data() + value.size())
      fail("the size in the pax header is no number");
    said_.size = size;
  }

  // An archive that was appended to another would be lost without a word.
  void check_end() {
    if (said_.name || said_.size) fail("a long name or a pax header has no member");
    for (at_ += kBlock; at_ < size_;) {
      const uint64_t count = std::min(kBlock, size_ - at_);
      header_ = at_;
      const std::span<uint8_t> rest = std::span(block_).first(count);
      read_at_(at_, rest);
      if (!is_zero(rest)) fail("expected nothing but zeros behind the archive's end");
      at_ += count;
    }
  }

  const uint64_t size_;
  const TarReadAt& read_at_;
  const std::string& name_;
  uint64_t at_ = 0, header_ = 0;
  std::string member_;
  Said said_;
  Block block_{};
};

}  // namespace

std::optional<std::string> tar_header_name(std::span<const uint8_t, kTarBlock> block) {
  if (!checksum_fits(block)) return std::nullopt;
  return shown(header_name(block));
}

void read_tar(uint64_t size, const TarReadAt& read_at, const std::string& name,
              const std::function<void(const TarMember&)>& visit) {
  TarReader(size, read_at, name).run(visit);
}

}  // namespace sinter::nn::data
