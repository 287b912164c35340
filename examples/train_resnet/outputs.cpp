#include "outputs.h"

#include <cerrno>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/file_system.h>
#include <sinter/nn/checkpoint/checkpoint.h>

#include "run_folder.h"

namespace train_resnet {
namespace {

namespace fs = std::filesystem;
using sinter::Error;

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

void check_checkpoints(const Options& options) {
  std::error_code ignored;
  if (fs::exists(options.checkpoints, ignored) && !fs::is_directory(options.checkpoints, ignored))
    throw Error(fmt::format("--checkpoints {} is no folder", options.checkpoints));
  try {
    const sinter::nn::CheckpointFolder folder(options.checkpoints);
    const std::vector<fs::path> present = folder.list();
    if (!present.empty() && !options.resume) {
      throw Error(
          fmt::format("--checkpoints {} holds a run already, up to {}; add --resume to go on with it, or "
                      "name another folder "
                      "to begin anew",
                      options.checkpoints, present.back().filename().string()));
    }
    folder.check_writable();
  } catch (const sinter::IoError& error) {
    throw Error(fmt::format("--checkpoints {} cannot be written: {}", options.checkpoints, error.what()));
  }
}

void check_log(const Options& options) {
  check_file("--log", options.log);
  std::error_code missing;
  if (!options.resume && fs::file_size(options.log, missing) > 0 && !missing) {
    throw Error(
        fmt::format("--log {} holds another run's lines; name another file, or remove it", options.log));
  }
}

}  // namespace

Outputs::Outputs(const Options& options) {
  if (!options.save_weights.empty()) check_file("--save-weights", options.save_weights);
  if (!options.report.empty()) check_file("--report", options.report);
  if (options.evaluate) return;
  if (!options.trace.empty()) check_file("--trace", options.trace);
  if (!options.log.empty()) check_log(options);
  if (!options.checkpoints.empty()) {
    check_checkpoints(options);
    lock(options.checkpoints);
  }
  if (!options.log_folder().empty()) RunFolder::check(options);
}

Outputs::~Outputs() {
  if (lock_file_ >= 0) ::close(lock_file_);  // which unlocks it
}

void Outputs::check_room(const Options& options, uint64_t weight_bytes, uint64_t checkpoint_bytes) {
  const auto check = [](const char* option, const std::string& path, const fs::path& folder, uint64_t bytes) {
    std::error_code unknown;
    const fs::space_info space = fs::space(folder, unknown);
    if (path.empty() || unknown || space.available >= bytes) return;
    throw Error(fmt::format("{} {}: the disk has {:.1f} MB left, but {:.1f} MB are needed", option, path,
                            static_cast<double>(space.available) / 1e6, static_cast<double>(bytes) / 1e6));
  };
  check("--save-weights", options.save_weights, folder_of(options.save_weights), weight_bytes);
  if (!options.evaluate) check("--checkpoints", options.checkpoints, options.checkpoints, checkpoint_bytes);
}

void Outputs::lock(const fs::path& folder) {
  lock_file_ = ::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_file_ < 0) return;
  // Some network file systems have no locks; there, training goes on without.
  if (::flock(lock_file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(lock_file_, -1));
  throw Error(fmt::format("--checkpoints {}: another process is training there", folder.string()));
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
  try {
    sinter::OutputFile probe(folder /
                             ("." + path.filename().string() + ".probe"));  // removed by its destructor
    probe.write(std::string(4096, '\n'));  // a full disk still makes empty files
  } catch (const sinter::IoError& error) {
    throw Error(fmt::format("{} {} cannot be written: {}", option, path.string(), error.what()));
  }
}

void write_text(const fs::path& path, const std::string& text) {
  sinter::AtomicOutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void append_line(const fs::path& path, const std::string& header, const std::string& line) {
  std::error_code missing;
  const bool is_new = fs::file_size(path, missing) == 0 || missing;
  std::ofstream file(path, std::ios::app);
  errno = 0;
  file << (is_new ? header + '\n' : "") << line << '\n';
  if (!file.flush()) {
    throw sinter::IoError(
        fmt::format("{}: cannot write: {}", path.string(), std::generic_category().message(errno)));
  }
}

}  // namespace train_resnet
