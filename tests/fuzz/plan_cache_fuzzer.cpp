// Any bytes as the file of measured plans, as they are and as the plans of a file of the right kind: plans,
// or a file that is ignored. Nothing is thrown, and what is stored afterwards is found again beside what was
// read.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/runtime/plan_cache.h>

namespace {

using namespace sinter;

/// One file in memory, whatever its name, and one that is being written.
class OneFile final : public FileSystem {
 public:
  explicit OneFile(std::string text) : text_(std::move(text)) {}

  int open(const std::filesystem::path&, Mode mode) override {
    if (mode == Mode::kCreate) written_.clear();
    return mode == Mode::kCreate ? kWritten : 0;
  }
  int64_t size(int) override { return static_cast<int64_t>(text_.size()); }
  int64_t read(int, std::span<std::byte> bytes, int64_t offset) override {
    const auto begin = std::min(static_cast<size_t>(offset), text_.size());
    const size_t count = std::min(bytes.size(), text_.size() - begin);
    if (count > 0) std::memcpy(bytes.data(), text_.data() + begin, count);
    return static_cast<int64_t>(count);
  }
  int64_t write(int file, std::span<const std::byte> bytes) override {
    if (file != kWritten) return -EBADF;
    written_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return static_cast<int64_t>(bytes.size());
  }
  int sync(int) override { return 0; }
  int close(int) override { return 0; }
  int rename(const std::filesystem::path&, const std::filesystem::path&) override {
    text_ = written_;
    return 0;
  }
  int remove(const std::filesystem::path&) override { return 0; }
  int make_folder(const std::filesystem::path&) override { return 0; }
  int list(const std::filesystem::path&, std::vector<std::string>&) override { return 0; }

 private:
  static constexpr int kWritten = 1;
  std::string text_, written_;
};

const std::string kScope = "fuzz";

/// A folder in which the file exists, which is all that is asked of the disk.
const std::filesystem::path& folder() {
  static const std::filesystem::path made = [] {
    const std::filesystem::path path = std::filesystem::temp_directory_path() / "sinter_plan_cache_fuzzer";
    std::filesystem::create_directories(path);
    if (!std::ofstream(PlanCache(path, kScope).file())) std::abort();
    return path;
  }();
  return made;
}

void try_file(const std::string& text) {
  OneFile files(text);
  PlanCache cache(folder(), kScope, files);
  const std::optional<TunedPlan> read = cache.find("a");
  const TunedPlan measured{.name = "engine 3", .microseconds = 12.5};
  cache.store("b", measured);
  PlanCache again(folder(), kScope, files);
  if (again.find("a") != read || again.find("b") != measured) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_file(text);
  try_file(R"({"format": 1, "scope": "fuzz", "plans": )" + text + "}");
  return 0;
}
