#include "predict/picture_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <system_error>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/text/lines.h>

#include "common/console.h"
#include "common/text.h"

namespace sinter::examples {

namespace fs = std::filesystem;

std::vector<std::string> list_images(const char* option, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(fmt::format("{} {} is no folder", option, folder.string()));
  std::vector<std::string> paths;
  std::map<std::string, uint64_t> left_out;
  uint64_t others = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && at != end; at.increment(error)) {
    std::error_code unknown;
    const std::string name = at->path().filename().string(), ending = nn::data::ending_of(name);
    if (name.starts_with(".")) {
      at.disable_recursion_pending();
    } else if (at->is_directory(unknown)) {
      continue;
    } else if (nn::data::is_image_ending(ending) && at->is_regular_file(unknown)) {
      paths.push_back(at->path().lexically_relative(folder).string());
    } else {
      ++left_out[ending.empty() ? "without an ending" : '.' + ending];
      ++others;
    }
  }
  if (error) throw Error(fmt::format("{} {}: cannot be read: {}", option, folder.string(), error.message()));
  const std::string told =
      fmt::format("{} of {} {} left out: {}", others, counted(others + paths.size(), "file"),
                  others == 1 ? "is" : "are", nn::data::describe_counts(left_out));
  if (paths.empty()) {
    throw Error(fmt::format("{} {} has no images ({}){}{}", option, folder.string(), nn::data::kImageEndings,
                            others > 0 ? "; " : "", others > 0 ? told : ""));
  }
  if (others > 0) complain("warning: {} {}: {}", option, folder.string(), told);
  std::ranges::sort(paths);
  return paths;
}

namespace {

std::vector<std::string> lines_of(std::istream& stream, const char* option, const std::string& name) {
  std::string text;
  errno = 0;
  for (std::string line; std::getline(stream, line);) text += line + '\n';
  if (!stream.eof() || stream.bad()) {
    throw Error(fmt::format("{} {} cannot be read: {}", option, name,
                            std::generic_category().message(errno != 0 ? errno : EIO)));
  }
  return nn::data::split_lines(text);
}

}  // namespace

std::vector<std::string> read_lines(const char* option, const std::string& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) throw Error(fmt::format("{} {} is a folder", option, file));
  std::ifstream stream(file, std::ios::binary);
  return lines_of(stream, option, file);
}

std::vector<std::string> find_pictures(const std::string& named) {
  constexpr const char* kOption = "--predict";
  const std::string ending = nn::data::ending_of(fs::path(named).filename().string());
  std::error_code ignored;
  if (named != "-" && !fs::exists(named, ignored))
    throw Error(fmt::format("{} {}: there is no such file or folder", kOption, named));
  std::vector<std::string> pictures;
  if (named != "-" && fs::is_directory(named, ignored)) {
    for (const std::string& path : list_images(kOption, named))
      pictures.push_back((fs::path(named) / path).string());
    return pictures;
  }
  if (named != "-" && ending != "txt" && ending != "lst") return {named};
  pictures = named == "-" ? lines_of(std::cin, kOption, named) : read_lines(kOption, named);
  std::erase(pictures, "");
  if (pictures.empty()) throw Error(fmt::format("{} {}: the list names no picture", kOption, named));
  return pictures;
}

}  // namespace sinter::examples
