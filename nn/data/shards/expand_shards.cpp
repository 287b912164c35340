// Names of shards from a pattern: braces as shells have them, and wildcards.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include <glob.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/shards/shard_index.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostShards = 1'000'000;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::optional<uint64_t> whole_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What stands between braces: "000..099" or "a,b".
std::vector<std::string> alternatives(std::string_view inside, const std::string& pattern) {
  std::vector<std::string> words;
  if (const size_t dots = inside.find(".."); dots != std::string_view::npos) {
    const std::string_view first = inside.substr(0, dots);
    const auto low = whole_number(first), high = whole_number(inside.substr(dots + 2));
    SINTER_CHECK(low && high && *low <= *high && *high - *low < kMostShards,
                 "[shards] {}: expected {{first..last}} with at most {} numbers but got {{{}}}", pattern,
                 kMostShards, inside);
    const size_t width = first.starts_with('0') ? first.size() : 1;
    for (uint64_t i = *low; i <= *high; ++i) words.push_back(fmt::format("{:0{}}", i, width));
    return words;
  }
  for (;;) {
    const size_t comma = inside.find(',');
    words.emplace_back(inside.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    inside.remove_prefix(comma + 1);
  }
}

// All ways to fill in the braces, the leftmost varying slowest.
std::vector<std::string> expand_braces(const std::string& pattern) {
  std::vector<std::string> names = {""};
  std::string_view rest = pattern;
  for (;;) {
    const size_t open = rest.find('{');
    for (std::string& name : names) name += rest.substr(0, open);
    if (open == std::string_view::npos) return names;
    const size_t close = rest.find('}', open);
    SINTER_CHECK(close != std::string_view::npos, "[shards] {}: expected a }} for every {{", pattern);
    const auto words = alternatives(rest.substr(open + 1, close - open - 1), pattern);
    SINTER_CHECK(names.size() * words.size() <= kMostShards, "[shards] {}: expected at most {} files",
                 pattern, kMostShards);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& word : words) longer.push_back(name + word);
    }
    names = std::move(longer);
    rest.remove_prefix(close + 1);
  }
}

void add_matches(const std::string& name, std::vector<fs::path>& shards) {
  glob_t found{};
  struct Freed {
    glob_t& found;
    ~Freed() { ::globfree(&found); }
  } freed{found};
  const int status = ::glob(name.c_str(), 0, nullptr, &found);
  if (status == GLOB_NOSPACE) throw_error<OutOfMemory>("[shards] {}: no memory for its matches", name);
  for (size_t i = 0; i < found.gl_pathc; ++i) shards.emplace_back(found.gl_pathv[i]);
}

}  // namespace

std::vector<fs::path> expand_shards(const std::string& pattern) {
  if (is_file(pattern)) return {pattern};
  std::vector<fs::path> shards;
  for (const std::string& name : expand_braces(pattern)) {
    if (name.find_first_of("*?[") == std::string::npos || is_file(name)) {
      shards.emplace_back(name);
    } else {
      add_matches(name, shards);
    }
  }
  if (shards.empty()) throw_error<IoError>("[shards] {}: there is no such file", pattern);
  for (const fs::path& shard : shards) {
    if (!is_file(shard)) throw_error<IoError>("[shards] {}: expected a regular file", shard.string());
  }
  return shards;
}

}  // namespace sinter::nn::data
