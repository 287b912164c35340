#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <sinter/core/base/log.h>
#include <sinter/core/file_system/file_system.h>

namespace sinter {
namespace {

/// Repeats a call that a signal interrupted, and turns its failure into -errno.
template <class F>
auto retry(F&& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

class NativeFileSystem final : public FileSystem {
 public:
  int open(const std::filesystem::path& path, Mode mode) override {
    int flags =
        O_CLOEXEC | O_RDONLY | O_NONBLOCK;  // a pipe under the name must not hang us; size() refuses it
    if (mode == Mode::kCreate) flags = O_CLOEXEC | O_WRONLY | O_CREAT | O_TRUNC;
    if (mode == Mode::kAppend) flags = O_CLOEXEC | O_WRONLY | O_CREAT | O_APPEND;
    if (mode == Mode::kFolder) flags = O_CLOEXEC | O_RDONLY | O_DIRECTORY;
    return retry([&] { return ::open(path.c_str(), flags, 0666); });
  }

  int64_t size(int file) override {
    struct stat status {};
    if (::fstat(file, &status) != 0) return -errno;
    if (S_ISREG(status.st_mode)) return int64_t{status.st_size};
    return S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL;  // a folder or a pipe has no contents to read
  }

  int64_t read(int file, std::span<std::byte> bytes, int64_t offset) override {
    return retry([&] { return int64_t{::pread(file, bytes.data(), bytes.size(), offset)}; });
  }

  int64_t write(int file, std::span<const std::byte> bytes) override {
    return retry([&] { return int64_t{::write(file, bytes.data(), bytes.size())}; });
  }

  int sync(int file) override {
    return retry([&] { return ::fsync(file); });
  }

  // Linux frees the descriptor even if close() is interrupted: trying again could close somebody else's.
  int close(int file) override { return ::close(file) == 0 || errno == EINTR ? 0 : -errno; }

  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : -errno;
  }

  int remove(const std::filesystem::path& path) override {
    return std::remove(path.c_str()) == 0 ? 0 : -errno;
  }

  int make_folder(const std::filesystem::path& path) override {
    return ::mkdir(path.c_str(), 0777) == 0 ? 0 : -errno;
  }

  int list(const std::filesystem::path& folder, std::vector<std::string>& names) override {
    names.clear();
    DIR* entries = ::opendir(folder.c_str());
    if (entries == nullptr) return -errno;
    errno = 0;
    while (const dirent* entry = ::readdir(entries)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int failure = errno;
    ::closedir(entries);
    std::sort(names.begin(), names.end());
    return -failure;
  }
};

/// Whether a file system says that it does not know the call, rather than that the call has failed.
bool is_unknown_call(int64_t result) {
  const int codes[] = {EINVAL, ENOTSUP, EOPNOTSUPP, ENOSYS, ENOTTY};
  return std::find(std::begin(codes), std::end(codes), -result) != std::end(codes);
}

/// Says, once, what the file system of a folder cannot do.
void pass_over(const char* action, const std::filesystem::path& folder, int64_t result, const char* effect) {
  static std::mutex mutex;
  static std::set<std::tuple<dev_t, std::string, int64_t>> said;
  struct stat info {};
  const std::filesystem::path path = folder.empty() ? "." : folder;
  if (::stat(path.c_str(), &info) != 0) info.st_dev = 0;
  {
    const std::lock_guard lock(mutex);
    if (!said.emplace(info.st_dev, action, result).second) return;
  }
  log::warning("[file] {}: this file system cannot {}: {}; {}", path.string(), action,
               std::generic_category().message(static_cast<int>(-result)), effect);
}

constexpr const char* kUnsynced = "a loss of power may take what was written last";

constexpr int kMaxLinks = 40;  // as the kernel

/// Where a new file for `path` goes: what links lead to, there or not. A device or a pipe is refused, as the
/// rename at the end would put a file in its place.
std::filesystem::path replaceable(std::filesystem::path path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw_error<IoError>("[file] {}: expected a regular file or a new name but it is {}", path.string(),
                         std::filesystem::is_directory(status) ? "a folder" : "a device or a pipe");
  }
  for (int links = 0; links < kMaxLinks && std::filesystem::is_symlink(path, ignored); ++links) {
    path = path.parent_path() / std::filesystem::read_symlink(path, ignored);
  }
  return path;
}

/// The size of an open file, as FileSystem::size() gave it. Throws IoError for what has no contents.
uint64_t checked_size(int64_t size, const std::filesystem::path& path) {
  if (size == -EISDIR || size == -EINVAL) {
    throw_error<IoError>("[file] {}: expected a regular file but it is {}", path.string(),
                         size == -EISDIR ? "a folder" : "a device or a pipe");
  }
  return static_cast<uint64_t>(check_file_call(size, "get the size", path));
}

/// The hidden file beside `path` that AtomicOutputFile writes. Its name is fixed, so that one left by a
/// killed process is overwritten and renamed by the next; a link that somebody has put there is not followed.
/// If it would be too long for a file system, its end gives way to a checksum; but not where the file's own
/// name is too long, which had better fail at once.
std::filesystem::path temporary_path(const std::filesystem::path& path) {
  constexpr size_t kLongestName = 255;  // bytes
  constexpr std::string_view kEnd = ".saving";
  std::string name = path.filename().string();
  if (name.size() <= kLongestName && 1 + name.size() + kEnd.size() > kLongestName) {
    const std::string sum = fmt::format("~{:08x}", extend_crc32(0, std::as_bytes(std::span(name))));
    size_t kept = kLongestName - 1 - sum.size() - kEnd.size();
    while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xc0) == 0x80) --kept;  // no half characters
    name.replace(kept, std::string::npos, sum);
  }
  std::filesystem::path temporary = path.parent_path() / fmt::format(".{}{}", name, kEnd);
  std::error_code ignored;
  if (std::filesystem::is_symlink(temporary, ignored)) std::filesystem::remove(temporary, ignored);
  return temporary;
}

}  // namespace

FileSystem& FileSystem::native() {
  static NativeFileSystem files;
  return files;
}

int64_t check_file_call(int64_t result, const char* action, const std::filesystem::path& path) {
  if (result < 0) {
    throw_error<IoError>("[file] {}: cannot {}: {}", path.string(), action,
                         std::generic_category().message(static_cast<int>(-result)));
  }
  return result;
}

uint32_t extend_crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

InputFile::InputFile(std::filesystem::path path, FileSystem& files)
    : path_(std::move(path)),
      files_(files),
      file_(static_cast<int>(check_file_call(files.open(path_, FileSystem::Mode::kRead), "open", path_))) {
  const int64_t size = files_.size(file_);
  if (size < 0) files_.close(file_);
  size_ = checked_size(size, path_);
}

InputFile::~InputFile() {
  files_.close(file_);
}

void InputFile::read(uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t count =
        check_file_call(files_.read(file_, bytes, static_cast<int64_t>(offset)), "read", path_);
    if (count == 0) {
      throw_error<IoError>("[file] {}: byte {}: expected {} more bytes but the file ends", path_.string(),
                           offset, bytes.size());
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

OutputFile::OutputFile(std::filesystem::path path, FileSystem& files)
    : path_(std::move(path)),
      files_(files),
      file_(
          static_cast<int>(check_file_call(files.open(path_, FileSystem::Mode::kCreate), "create", path_))) {}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  files_.close(file_);
  files_.remove(path_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t count = check_file_call(files_.write(file_, bytes), "write", path_);
    if (count == 0)
      throw_error<IoError>("[file] {}: cannot write: the system takes no more bytes", path_.string());
    const std::span<const std::byte> written = bytes.first(static_cast<size_t>(count));
    crc32_ = extend_crc32(crc32_, written);
    size_ += written.size();
    bytes = bytes.subspan(written.size());
  }
}

void OutputFile::sync_and_close() {
  check_sync(files_.sync(file_), path_);
  const int result = files_.close(std::exchange(file_, -1));
  if (result < 0) files_.remove(path_);
  check_file_call(result, "close", path_);
}

AtomicOutputFile::AtomicOutputFile(std::filesystem::path path, FileSystem& files)
    : path_(replaceable(std::move(path))),
      temporary_(temporary_path(path_)),
      files_(files),
      output_(temporary_, files) {}

AtomicOutputFile::~AtomicOutputFile() {
  if (pending_) files_.remove(temporary_);
}

void AtomicOutputFile::commit() {
  output_.sync_and_close();
  int renamed = files_.rename(temporary_, path_);
  if (renamed == -EEXIST) {
    pass_over("rename onto a file that exists", path_.parent_path(), renamed,
              "the old file is removed first, and if the process ends just then neither is there");
    if (files_.remove(path_) >= 0) renamed = files_.rename(temporary_, path_);
  }
  check_file_call(renamed, "rename the finished file to its name", path_);
  pending_ = false;
  try {
    sync_folder(path_.parent_path(), files_);
  } catch (const IoError& error) {
    log::warning("{}; {} is complete, but {}", error.what(), path_.string(), kUnsynced);
  }
}

void sync_folder(const std::filesystem::path& folder, FileSystem& files) {
  const std::filesystem::path path = folder.empty() ? "." : folder;
  const int file = files.open(path, FileSystem::Mode::kFolder);
  // A folder in which one may write, but which one may not list, cannot be opened either.
  if (is_unknown_call(file) || file == -EACCES || file == -EPERM)
    return pass_over("open a folder to sync it", path, file, kUnsynced);
  check_file_call(file, "open", path);
  const int sync_result = files.sync(file);
  const int close_result = files.close(file);
  if (is_unknown_call(sync_result) || sync_result == -EBADF || sync_result == -EISDIR) {
    pass_over("sync a folder", path, sync_result, kUnsynced);
  } else {
    check_file_call(sync_result, "sync", path);
  }
  check_file_call(close_result, "close", path);
}

void check_sync(int result, const std::filesystem::path& file) {
  if (is_unknown_call(result)) return pass_over("sync a file", file.parent_path(), result, kUnsynced);
  check_file_call(result, "sync", file);
}

void remove_folder(const std::filesystem::path& folder, FileSystem& files) {
  std::vector<std::string> names;
  check_file_call(files.list(folder, names), "list", folder);
  for (const std::string& name : names) {
    const std::filesystem::path path = folder / name;
    check_file_call(files.remove(path), "remove", path);
  }
  check_file_call(files.remove(folder), "remove", folder);
}

}  // namespace sinter
