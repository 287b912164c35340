// Which pictures a command line names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sinter::examples {

/// The images of a folder and of those in it, as paths below it, sorted by their bytes; a link back to a
/// folder above brings nothing new. Says on standard error how many other files there are. Throws Error that
/// names the option if there is no image.
std::vector<std::string> list_images(const char* option, const std::filesystem::path& folder);

/// What `--predict` names: all images of a folder, each with the folder before it; the lines of a list
/// (*.txt, *.lst, or "-": standard input), but for empty ones; or a picture alone. Throws Error that names
/// the option if there is none.
std::vector<std::string> find_pictures(const std::string& named);

/// The lines of a text file, as split_lines() gives them. Throws Error that names the option.
std::vector<std::string> read_lines(const char* option, const std::string& file);

}  // namespace sinter::examples
