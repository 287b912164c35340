#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <sys/stat.h>

#include <sinter/core/base/log.h>
#include <sinter/nn/log/log_file.h>

namespace sinter::nn {

LogFile::LogFile(std::filesystem::path path, FileSystem& files)
    : path_(std::move(path)),
      files_(files),
      file_(static_cast<int>(check_file_call(files.open(path_, FileSystem::Mode::kAppend), "open", path_))) {}

LogFile::~LogFile() {
  files_.close(file_);
}

void LogFile::add(std::string_view record) {
  if (waiting_.size() + record.size() > kMostWaiting) {
    ++dropped_;
    return;
  }
  waiting_ += record;
}

void LogFile::make_again_if_gone() {
  struct stat of {};
  std::error_code unknown;
  // A network drive keeps an open file under another name when it is removed.
  const bool is_gone = (::fstat(file_, &of) == 0 && of.st_nlink == 0) ||
                       (!std::filesystem::exists(path_, unknown) && !unknown);
  if (!is_gone) return;
  const auto again = check_file_call(files_.open(path_, FileSystem::Mode::kAppend), "open", path_);
  files_.close(std::exchange(file_, static_cast<int>(again)));
  log::warning("[file] {} was removed, and is made again; what was logged before is lost", path_.string());
}

void LogFile::write() {
  if (!waiting_.empty()) make_again_if_gone();
  size_t done = 0;
  int64_t count = 1;
  while (done < waiting_.size() && count > 0) {
    count = files_.write(file_, std::as_bytes(std::span(waiting_)).subspan(done));
    if (count > 0) done += static_cast<size_t>(count);
  }
  waiting_.erase(0, done);
  check_file_call(count, "write", path_);
  if (!waiting_.empty())
    throw_error<IoError>("[file] {}: cannot write: the system takes no more bytes", path_.string());
}

void LogFile::sync() {
  const int result = files_.sync(file_);
  if (result != -EINVAL) check_file_call(result, "sync", path_);  // devices and pipes have no disk
}

}  // namespace sinter::nn
