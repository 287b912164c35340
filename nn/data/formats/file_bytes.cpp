#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/file_bytes.h>

namespace sinter::nn::data {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_system(const std::filesystem::path& path, const char* what) {
  throw_error<IoError>("[file] {}: cannot {}: {}", path.string(), what,
                       std::generic_category().message(errno));
}

}  // namespace

std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  std::vector<uint8_t> bytes;
  read_file(path, max_bytes, bytes);
  return bytes;
}

void read_file(const std::filesystem::path& path, uint64_t max_bytes, std::vector<uint8_t>& bytes) {
  // Not blocking on open: a named pipe in a data folder must be refused, not waited for.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_system(path, "open");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_system(path, "stat");
  if (!S_ISREG(info.st_mode)) throw_error<IoError>("[file] {}: expected a regular file", path.string());
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes) {
    throw_error<IoError>("[file] {}: expected at most {} bytes but it has {}", path.string(), max_bytes,
                         size);
  }
  resize_for_file(bytes, size, path.string());
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_system(path, "read");
    if (count == 0) {
      throw_error<IoError>("[file] {}: expected {} bytes but it ended after {}", path.string(), size, done);
    }
    done += static_cast<size_t>(count);
  }
}

void resize_for_file(std::vector<uint8_t>& bytes, uint64_t size, const std::string& name) {
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    throw_error<OutOfMemory>("[file] {}: no memory for {} bytes", name, size);
  }
}

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

struct GzipReader::Stream {
  z_stream z{};
  std::span<const uint8_t> rest;  // not yet given to zlib, whose counters have 32 bits
};

GzipReader::GzipReader(std::span<const uint8_t> packed, std::string name)
    : name_(std::move(name)), stream_(new Stream{.z = {}, .rest = packed}) {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream_->z, kGzipOnly) != Z_OK) {
    delete stream_;
    throw_error<OutOfMemory>("[gzip] {}: no memory to unpack", name_);
  }
}

GzipReader::~GzipReader() {
  inflateEnd(&stream_->z);
  delete stream_;
}

void GzipReader::read(uint64_t count, std::vector<uint8_t>& out) {
  constexpr uint64_t kFirstStep = uint64_t{1} << 16;
  uint64_t done = 0;
  while (done < count) {
    const uint64_t step = std::min(count - done, std::max(kFirstStep, done));  // doubles what is there
    const size_t before = out.size();
    resize_for_file(out, before + step, name_);
    const size_t got = inflate_into(out.data() + before, step);
    done += got;
    if (got < step) {
      throw_error<IoError>("[gzip] {}: expected {} unpacked bytes but the stream ends after {}", name_,
                           before + (count - done) + got, before + got);
    }
  }
}

void GzipReader::finish() {
  uint8_t extra = 0;
  if (inflate_into(&extra, 1) != 0)
    throw_error<IoError>("[gzip] {}: unpacks to more bytes than its header says", name_);
  const size_t trailing = stream_->z.avail_in + stream_->rest.size();
  if (trailing != 0)
    throw_error<IoError>("[gzip] {}: {} trailing bytes after the compressed stream", name_, trailing);
}

// Returns fewer than `count` bytes only at the proper end of the stream.
size_t GzipReader::inflate_into(uint8_t* out, size_t count) {
  constexpr size_t kMost = std::numeric_limits<uInt>::max();
  z_stream& z = stream_->z;
  size_t done = 0;
  while (!ended_) {
    if (z.avail_in == 0 && !stream_->rest.empty()) {
      const size_t piece = std::min(kMost, stream_->rest.size());
      z.next_in =
          const_cast<Bytef*>(stream_->rest.data());  // zlib's interface lacks the const, not its behaviour
      z.avail_in = static_cast<uInt>(piece);
      stream_->rest = stream_->rest.subspan(piece);
    }
    const auto room = static_cast<uInt>(std::min(kMost, count - done));
    z.next_out = out + done;
    z.avail_out = room;
    const int status = inflate(&z, Z_NO_FLUSH);
    done += room - z.avail_out;
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status == Z_BUF_ERROR) {  // no progress: the input is used up
      throw_error<IoError>("[gzip] {}: the compressed stream is cut short", name_);
    } else if (status == Z_MEM_ERROR) {
      throw_error<OutOfMemory>("[gzip] {}: no memory to unpack", name_);
    } else if (status != Z_OK) {
      throw_error<IoError>("[gzip] {}: the compressed stream is damaged: {}", name_,
                           z.msg != nullptr ? z.msg : "no details");
    }
    if (done == count) break;
  }
  return done;
}

}  // namespace sinter::nn::data
