// A file system that fails on demand: the machine's own, with the k-th call made to fail.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>

namespace sinter::testing {

/// Passes calls on to the machine's file system, records them, and fails those that it is told to. It syncs
/// nothing: tests kill processes, not power, and a sync is slow.
class FailingFileSystem : public FileSystem {
 public:
  enum class Failure {
    kOnce,      ///< the k-th call fails with EIO, the later ones work
    kDiskFull,  ///< from the k-th call on nothing can be made, written, synced or renamed; that write is cut
                ///< in half
    kGone,      ///< from the k-th call on nothing works, as if the process had died there
  };

  FailingFileSystem() = default;
  FailingFileSystem(Failure failure, int64_t call) : failure_(failure), failing_call_(call) {}

  /// True once a call has failed because it was told to.
  bool failed() const { return failed_; }
  /// Descriptors that were opened and not closed.
  int64_t open_files() const { return open_files_; }
  /// The calls so far, as "write .model.safetensors.saving".
  const std::vector<std::string>& calls() const { return calls_; }
  /// Writes take at most this many bytes each.
  void limit_write(size_t bytes) { write_limit_ = bytes; }

  int open(const std::filesystem::path& path, Mode mode) override {
    const bool makes = mode == Mode::kCreate || mode == Mode::kAppend;
    const char* names[] = {"open", "create", "append", "open folder"};
    if (fails(names[static_cast<int>(mode)], path, makes)) return -error();
    const int file = native().open(path, mode);
    if (file >= 0) {
      ++open_files_;
      if (paths_.size() <= static_cast<size_t>(file)) paths_.resize(static_cast<size_t>(file) + 1);
      paths_[static_cast<size_t>(file)] = path;
    }
    return file;
  }
  int64_t size(int file) override {
    return fails("size", path(file), false) ? -error() : native().size(file);
  }
  int64_t read(int file, std::span<std::byte> bytes, int64_t offset) override {
    return fails("read", path(file), false) ? -error() : native().read(file, bytes, offset);
  }
  int64_t write(int file, std::span<const std::byte> bytes) override {
    const bool failed_before = failed_;
    if (fails("write", path(file), true)) {
      if (failure_ != Failure::kDiskFull || failed_before || bytes.size() < 2) return -error();
      bytes = bytes.first(bytes.size() / 2);
    }
    return native().write(file, bytes.first(std::min(bytes.size(), write_limit_)));
  }
  int sync(int file) override { return fails("sync", path(file), true) ? -error() : 0; }
  int close(int file) override {
    const int result = native().close(file);
    --open_files_;
    return fails("close", path(file), false) ? -error() : result;
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return fails("rename", from, true) ? -error() : native().rename(from, to);
  }
  int remove(const std::filesystem::path& path) override {
    return fails("remove", path, false) ? -error() : native().remove(path);
  }
  int make_folder(const std::filesystem::path& path) override {
    return fails("make", path, true) ? -error() : native().make_folder(path);
  }
  int list(const std::filesystem::path& folder, std::vector<std::string>& names) override {
    return fails("list", folder, false) ? -error() : native().list(folder, names);
  }

 private:
  const std::filesystem::path& path(int file) const { return paths_[static_cast<size_t>(file)]; }
  int error() const { return failure_ == Failure::kDiskFull ? ENOSPC : EIO; }

  bool fails(const std::string& call, const std::filesystem::path& path, bool needs_space) {
    calls_.push_back(call + " " + path.filename().string());
    const int64_t number = static_cast<int64_t>(calls_.size());
    if (failing_call_ == 0 || number < failing_call_) return false;
    const bool hit = failure_ == Failure::kOnce   ? number == failing_call_
                     : failure_ == Failure::kGone ? true
                                                  : needs_space;
    failed_ = failed_ || hit;
    return hit;
  }

  Failure failure_ = Failure::kOnce;
  int64_t failing_call_ = 0;
  bool failed_ = false;
  int64_t open_files_ = 0;
  size_t write_limit_ = SIZE_MAX;
  std::vector<std::string> calls_;
  std::vector<std::filesystem::path> paths_;  // by descriptor
};

}  // namespace sinter::testing
