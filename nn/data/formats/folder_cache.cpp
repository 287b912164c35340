#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/folder_cache.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

// The file: this text, the number of classes; per class its name, its stamp, the number of images and their
// paths, the number of folders in it and the path and stamp of each, the number of other endings and each
// with how many files have it; CRC-32 of all before it. Numbers are little-endian; a text is its length in 16
// bits and its bytes.
constexpr std::string_view kMagic = "sinter image folder 2\n";
constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr uint64_t kChecksumBytes = 4;

class Writer {
 public:
  void text(std::string_view value) { bytes.insert(bytes.end(), value.begin(), value.end()); }
  void number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }
  void name(std::string_view value) {
    number(value.size(), 2);
    text(value);
  }
  void stamp(const FolderStamp& value) {
    for (const int64_t part : value.values) number(static_cast<uint64_t>(part), 8);
  }
  std::vector<uint8_t> bytes;
};

class Reader {
 public:
  static constexpr const char* kNoName = "a name is none, or out of order";

  Reader(std::span<const uint8_t> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  [[noreturn]] void fail(const char* what) const {
    throw_error<IoError>("[folder_cache] {}: byte {}: {}", name_, at_, what);
  }
  std::span<const uint8_t> take(uint64_t count) {
    if (bytes_.size() - at_ < count) fail("the file is cut short");
    const std::span<const uint8_t> piece = bytes_.subspan(at_, count);
    at_ += count;
    return piece;
  }
  uint64_t number(int width) {
    uint64_t value = 0;
    const std::span<const uint8_t> piece = take(static_cast<uint64_t>(width));
    for (int i = width; i-- > 0;) value = value << 8 | piece[static_cast<size_t>(i)];
    return value;
  }
  /// A count of things of at least `least` bytes each.
  uint64_t count(uint64_t least) {
    const uint64_t value = number(8);
    if (value > (bytes_.size() - at_) / least) fail("a number is larger than the file allows");
    return value;
  }
  /// The name of an entry that a listing would give: not hidden, and no path.
  std::string name(const std::string& before) {
    std::string value = path(before);
    if (value.find('/') != std::string::npos) fail(kNoName);
    return value;
  }
  /// A path below a folder, of such names.
  std::string path(const std::string& before) {
    std::string value = text(before);
    const std::string parts = '/' + value + '/';
    if (value.find('\0') != std::string::npos || parts.find("//") != std::string::npos ||
        parts.find("/.") != std::string::npos)
      fail(kNoName);
    return value;
  }
  /// A text behind `before` in the order of bytes.
  std::string text(const std::optional<std::string>& before) {
    const std::span<const uint8_t> piece = take(number(2));
    std::string value(piece.begin(), piece.end());
    if (before && value <= *before) fail(kNoName);
    return value;
  }
  FolderStamp stamp() {
    FolderStamp stamp;
    for (int64_t& value : stamp.values) value = static_cast<int64_t>(number(8));
    return stamp;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
  const std::string& name_;
  size_t at_ = 0;
};

uint32_t checksum(std::span<const uint8_t> bytes) {
  return extend_crc32(0, std::as_bytes(bytes));
}

/// Throws IoError if another user may have put there what lies at `path`: a symbolic link, which may lead
/// anywhere, or a file that another owns or may write. False if nothing is there.
bool check_own_file(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return false;
  const char* what = nullptr;
  if (!S_ISREG(info.st_mode)) {
    what = S_ISLNK(info.st_mode) ? "it is a symbolic link" : "it is no file";
  } else if (info.st_uid != ::geteuid()) {
    what = "another user owns it";
  } else if ((info.st_mode & S_IWOTH) != 0) {
    what = "everybody may write it";
  }
  if (what != nullptr) throw_error<IoError>("[folder_cache] {}: it is not believed: {}", path.string(), what);
  return true;
}

std::optional<std::vector<uint8_t>> read_own_file(const fs::path& path, uint64_t max_bytes) {
  if (!check_own_file(path)) return std::nullopt;
  return read_file(path, max_bytes);
}

int64_t nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// FNV-1a: the same text has the same number in every process.
uint64_t number_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::optional<FolderStamp> FolderStamp::of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return FolderStamp{{static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino),
                      nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)}};
}

bool FolderStamp::is_settled(int64_t now) const {
  constexpr int64_t kSettled = 2'000'000'000;
  return values[2] <= now - kSettled && values[3] <= now - kSettled;
}

std::vector<uint8_t> format_folder_cache(const ListedClasses& classes) {
  Writer writer;
  writer.text(kMagic);
  writer.number(classes.size(), 8);
  for (const auto& [name, listed] : classes) {
    writer.name(name);
    writer.stamp(listed.stamp);
    writer.number(listed.images.size(), 8);
    for (const std::string& image : listed.images) writer.name(image);
    writer.number(listed.folders.size(), 8);
    for (const auto& [path, stamp] : listed.folders) {
      writer.name(path);
      writer.stamp(stamp);
    }
    writer.number(listed.left_out.size(), 8);
    for (const auto& [ending, count] : listed.left_out) {
      writer.name(ending);
      writer.number(count, 8);
    }
  }
  writer.number(checksum(writer.bytes), kChecksumBytes);
  return std::move(writer.bytes);
}

ListedClasses parse_folder_cache(std::span<const uint8_t> bytes, const std::string& name) {
  constexpr uint64_t kLeastClass = 2 + 1 + 32 + 8 + 8 + 8, kLeastName = 2 + 1;
  Reader whole(bytes, name);
  if (bytes.size() < kMagic.size() + 8 + kChecksumBytes) whole.fail("the file is cut short");
  const std::span<const uint8_t> body = bytes.first(bytes.size() - kChecksumBytes);
  Reader end(bytes.last(kChecksumBytes), name);
  if (end.number(kChecksumBytes) != checksum(body)) whole.fail("the checksum is wrong");
  Reader reader(body, name);
  const std::span<const uint8_t> magic = reader.take(kMagic.size());
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin()))
    whole.fail("this is no list of an image folder");
  ListedClasses classes;
  std::string before;
  for (uint64_t left = reader.count(kLeastClass); left > 0; --left) {
    before = reader.name(before);
    ListedClass& listed = classes[before];
    listed.stamp = reader.stamp();
    const uint64_t images = reader.count(kLeastName);
    listed.images.reserve(images);
    std::string image;
    for (uint64_t i = 0; i < images; ++i) {
      image = reader.path(image);
      listed.images.push_back(image);
    }
    std::string folder;
    for (uint64_t i = reader.count(kLeastName + 32); i > 0; --i) {
      folder = reader.path(folder);
      listed.folders[folder] = reader.stamp();
    }
    std::optional<std::string> ending;  // one of them is empty
    for (uint64_t i = reader.count(2 + 8); i > 0; --i) {
      ending = reader.text(ending);
      listed.left_out[*ending] = reader.number(8);
    }
  }
  if (!reader.at_end()) reader.fail("expected the end");
  return classes;
}

FolderCache::FolderCache(const fs::path& root) {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) return;  // caches are turned off
  std::error_code error;
  const fs::path absolute = fs::canonical(root, error);
  if (error) return;
  place_ = *folder / fmt::format("images-{:016x}", number_of(absolute.string()));
}

ListedClasses FolderCache::load() const {
  if (place_.empty()) return {};
  try {
    const std::optional<std::vector<uint8_t>> bytes = read_own_file(place_, kMostBytes);
    return bytes ? parse_folder_cache(*bytes, place_.string()) : ListedClasses{};
  } catch (const Error& error) {
    log::warning("{}; the folder is listed again", error.what());
    return {};
  }
}

void FolderCache::store(const ListedClasses& classes) const {
  if (place_.empty()) return;
  const std::vector<uint8_t> bytes = format_folder_cache(classes);
  try {
    std::error_code ignored;
    fs::create_directories(place_.parent_path(), ignored);
    check_own_file(place_);  // a link would be followed
    AtomicOutputFile file(place_);
    file.write(std::as_bytes(std::span(bytes)));
    file.commit();
  } catch (const Error& error) {
    log::debug("[folder_cache] the list of an image folder is not kept: {}", error.what());
  }
}

}  // namespace sinter::nn::data
