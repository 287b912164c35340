// What an image folder held when it was listed last, in a file, so that a million names need not be asked of
// the file system at every start.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sinter::nn::data {

/// What changes when an entry of a folder is made, renamed or removed: the folder's device, inode, and times
/// of modification and change in nanoseconds.
struct FolderStamp {
  std::array<int64_t, 4> values{};
  bool operator==(const FolderStamp&) const = default;

  /// Of the folder that `path` leads to; none if it cannot be looked at.
  static std::optional<FolderStamp> of(const std::filesystem::path& path);
  /// Whether the folder has been left alone for two seconds at `now` (nanoseconds since 1970): what is listed
  /// sooner may change once more within the clock's tick, and the stamp would not tell.
  bool is_settled(int64_t now) const;
};

/// What one class folder and the folders in it hold.
struct ListedClass {
  FolderStamp stamp;
  std::vector<std::string> images;                  ///< paths below the folder, sorted
  std::map<std::string, FolderStamp> folders = {};  ///< those in it, by their paths below it
  std::map<std::string, uint64_t> left_out =
      {};  ///< how many files are no images, by ending_of() their names
};

/// By the class folder's name.
using ListedClasses = std::map<std::string, ListedClass>;

/// The bytes of a cache file, and back. Throws IoError with `name` and the byte unless the bytes are exactly
/// such a file, with its checksum right and every path one that a folder can hold.
std::vector<uint8_t> format_folder_cache(const ListedClasses& classes);
ListedClasses parse_folder_cache(std::span<const uint8_t> bytes, const std::string& name);

/// The cache of a folder: a file of its own in Sinter's cache folder (see cache_folder()). Not in the folder
/// itself, where other programs would take it for a class.
class FolderCache {
 public:
  explicit FolderCache(const std::filesystem::path& root);

  /// What was stored; empty if there is nothing, or, which the log says, if it is damaged, a symbolic link,
  /// or a file that another user owns or may write.
  ListedClasses load() const;
  /// Failures are logged; the next start then lists the folder again.
  void store(const ListedClasses& classes) const;

 private:
  std::filesystem::path place_;  // empty: nothing is kept
};

}  // namespace sinter::nn::data
