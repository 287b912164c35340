#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/mapped_file.h>

namespace sinter::nn::data {
namespace {

[[noreturn]] void fail_system(const std::filesystem::path& path, const char* what, int error) {
  throw_error<IoError>("[file] {}: cannot {}: {}", path.string(), what,
                       std::generic_category().message(error));
}

uint64_t size_of(int file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) fail_system(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) throw_error<IoError>("[file] {}: expected a regular file", path.string());
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path)
    // Not blocking on open: a named pipe in a data folder must be refused, not waited for.
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_ < 0) fail_system(path_, "open", errno);
  try {
    size_ = size_of(file_, path_);
    if (size_ == 0) return;  // there is no empty mapping
    // Private, as some network drives and user-space file systems know no shared mappings.
    void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
    if (data == MAP_FAILED) fail_system(path_, "map", errno);
    data_ = static_cast<const uint8_t*>(data);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  ::close(file_);
}

void MappedFile::check_whole() const {
  const uint64_t now = size_of(file_, path_);
  if (now < size_) {
    throw_error<IoError>("[file] {}: expected {} bytes, as when it was opened, but it has {} now",
                         path_.string(), size_, now);
  }
}

}  // namespace sinter::nn::data
