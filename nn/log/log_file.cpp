#include <cerrno>
#include <span>
#include <utility>

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

void LogFile::write() {
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
