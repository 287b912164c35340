#include "predict/picture_files.h"

#include <cerrno>
#include <fstream>
#include <iostream>
#include <system_error>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/text/lines.h>

#include "common/console.h"

namespace sinter::examples {

namespace fs = std::filesystem;

std::vector<std::string> list_images(const char* option, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(fmt::format("{} {} is no folder", option, folder.string()));
  nn::data::ImageFolderFiles all = nn::data::list_images(folder);
  const std::string told = all.describe_left_out();
  if (all.files.empty()) {
    throw Error(fmt::format("{} {} has no images ({}){}{}", option, folder.string(), nn::data::kImageEndings,
                            told.empty() ? "" : "; ", told));
  }
  if (!told.empty()) complain("warning: {} {}: {}", option, folder.string(), told);
  std::vector<std::string> paths;
  for (nn::data::ImageFolderFiles::File& file : all.files) paths.push_back(std::move(file.name));
  return paths;
}

namespace {

std::vector<std::string> lines_of(std::istream& stream, const char* option, const std::string& name) {
  std::string text;
  if (stream) errno = 0;  // else opening it has set it
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
