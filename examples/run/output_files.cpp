#include "run/output_files.h"

#include <cerrno>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/checkpoint.h>

#include "common/console.h"

namespace sinter::examples {

namespace fs = std::filesystem;

namespace {

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

}  // namespace

FolderLock::FolderLock(const char* option, const fs::path& folder) {
  file_ = ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  if (file_ < 0 || errno != EWOULDBLOCK) {  // some network drives have no locks
    complain("warning: {} {}: cannot be locked: {}; another process that trains there would not be noticed",
             option, folder.string(), std::generic_category().message(errno));
    return;
  }
  ::close(std::exchange(file_, -1));
  throw Error(fmt::format("{} {}: another process is training there", option, folder.string()));
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);  // which unlocks it
}

void check_checkpoints(const fs::path& root, bool resume) {
  std::error_code ignored;
  if (fs::exists(root, ignored) && !fs::is_directory(root, ignored))
    throw Error(fmt::format("--checkpoints {} is no folder", root.string()));
  try {
    const nn::CheckpointFolder folder(root);
    const std::vector<fs::path> present = folder.list();
    if (!present.empty() && !resume) {
      throw Error(
          fmt::format("--checkpoints {} holds a run already, up to {}; add --resume to go on with it, or "
                      "name another folder "
                      "to begin anew",
                      root.string(), present.back().filename().string()));
    }
    folder.check_writable();
  } catch (const IoError& error) {
    throw Error(fmt::format("--checkpoints {} cannot be written: {}", root.string(), error.what()));
  }
}

void check_room(const char* option, const fs::path& path, const fs::path& folder, uint64_t bytes) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder.empty() ? "." : folder, unknown);
  // Drives that do not know their size say 0.
  if (path.empty() || unknown || space.capacity == 0 || space.available >= bytes) return;
  throw Error(fmt::format("{} {}: the disk has {:.1f} MB left, but {:.1f} MB are needed", option,
                          path.string(), static_cast<double>(space.available) / 1e6,
                          static_cast<double>(bytes) / 1e6));
}

void check_file(const char* option, const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) throw Error(fmt::format("{} {} is a folder", option, path.string()));
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw Error(fmt::format("{} {} is a device or a pipe; a file is needed", option, path.string()));
  if (fs::exists(status) && ::access(path.c_str(), W_OK) != 0) {
    throw Error(fmt::format("{} {} cannot be written: {}", option, path.string(),
                            std::generic_category().message(errno)));
  }
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, ignored))
    throw Error(fmt::format("{} {}: there is no folder {}", option, path.string(), folder.string()));
  if (::access(path.c_str(), F_OK) != 0 && errno == ENAMETOOLONG) {
    throw Error(fmt::format("{} {} cannot be written: {}", option, path.string(),
                            std::generic_category().message(errno)));
  }
  try {
    OutputFile probe(folder / fmt::format(".{}.probe", ::getpid()));  // removed by its destructor
    probe.write(std::string(4096, '\n'));                             // a full disk still makes empty files
  } catch (const IoError& error) {
    throw Error(fmt::format("{} {} cannot be written: {}", option, path.string(), error.what()));
  }
}

namespace {

void escape_texts(nlohmann::ordered_json& json) {
  if (json.is_structured()) {
    for (nlohmann::ordered_json& member : json) escape_texts(member);
  } else if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    if (valid_utf8_prefix(text) != text.size()) text = escape_name(text);
  }
}

}  // namespace

std::string to_json_text(const nlohmann::ordered_json& json) {
  nlohmann::ordered_json escaped = json;
  escape_texts(escaped);
  return escaped.dump(2) + "\n";
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicOutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

std::string absolute_path(const fs::path& path) {
  return path.empty() ? "" : fs::absolute(path).string();
}

void append_line(const fs::path& path, const std::string& header, const std::string& line) {
  std::error_code missing;
  const bool is_new = fs::file_size(path, missing) == 0 || missing;
  std::ofstream file(path, std::ios::app);
  errno = 0;
  file << (is_new ? header + '\n' : "") << line << '\n';
  if (!file.flush()) {
    throw IoError(fmt::format("{}: cannot write: {}", path.string(), std::generic_category().message(errno)));
  }
}

}  // namespace sinter::examples
