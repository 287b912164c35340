#include "options.h"

#include <charconv>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>

#include "common/console.h"

namespace sinter_pack {
namespace {

using sinter::examples::complain;
using sinter::examples::say;

/// "112" or "112x96", width first, with 1 to 65,500 pixels a side.
bool parse_size(std::string_view text, Options& options) {
  const auto take = [&](int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return error == std::errc{} && value >= 1 && value <= 65'500;
  };
  if (!take(options.width)) return false;
  options.height = options.width;
  if (text.empty()) return true;
  if (text.front() != 'x') return false;
  text.remove_prefix(1);
  return take(options.height) && text.empty();
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find_first_of("/\n") == std::string::npos;
}

void add_options(CLI::App& app, Options& options, std::string& size) {
  app.add_option("images", options.images,
                 "Folder with the images, <class>/*.jpg, *.jpeg, *.png, *.webp, *.pgm and *.ppm, also in "
                 "folders in them")
      ->required();
  app.add_option("output", options.output, "Folder for the records; it is made if it is not there")
      ->required();
  app.add_option("--name", options.name,
                 "Name of the files. Another than train takes its classes from the classes.txt in the output "
                 "folder, so that val agrees with train")
      ->capture_default_str();
  app.add_option("--size", size,
                 "Cut every image to this shape around its centre, resize it to so many pixels and encode it "
                 "anew: 112, or width x height as 112x96. Default: files are packed as they are");
  app.add_option("--quality", options.quality, "Quality of the JPEGs that --size makes")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads, "Threads that read and encode; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--shuffle", options.shuffle,
                 "Pack in an order drawn from this seed, for readers that go from front to back; the loader "
                 "shuffles by itself");
  app.add_flag("--force", options.force, "Replace records that are there");
  app.set_version_flag("--version", "sinter_pack of Sinter " SINTER_VERSION, "Print the version and exit");
  app.footer(
      "Exit code: 0 all is packed; 1 an error; 2 a mistake on the command line; 130 (Ctrl-C), 143 (SIGTERM), "
      "129 (SIGHUP):\nstopped. The files appear when all of them are complete; until then the old ones "
      "stay.");
}

int refuse(const std::string& mistake) {
  complain("error: {}\nsinter_pack --help tells all options", mistake);
  return 2;
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Packs a folder of images into MXNet's RecordIO: <name>.rec and <name>.idx, property and classes.txt.",
      "sinter_pack");
  std::string size;
  add_options(app, options, size);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(error.what());
    std::ostringstream text;
    app.exit(error, text, text);
    say(std::string_view(text.str()));
    return sinter::examples::output_failure().empty() ? 0 : 1;
  }
  if (!size.empty() && !parse_size(size, options))
    return refuse(fmt::format("--size: expected 112 or 112x96, up to 65500, but got '{}'", size));
  if (!is_file_name(options.name))
    return refuse(fmt::format("--name: expected a file's name but got '{}'", options.name));
  return std::nullopt;
}

}  // namespace sinter_pack
