#include "options.h"

#include <charconv>
#include <cstdint>
#include <set>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "run/command_line.h"
#include "run/help.h"

namespace sinter_pack {
namespace {

namespace examples = sinter::examples;

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
      ->required()
      ->check(examples::folder());
  app.add_option("output", options.output, "Folder for the records; it is made if it is not there")
      ->required()
      ->check(examples::folder());
  app.option_defaults()->group("Files");
  app.add_option("--name", options.name,
                 "Name of the files. Another than train takes its classes from the classes.txt in the output "
                 "folder, so that val agrees with train")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--size", size,
                 "Cut every image to this shape around its centre, resize it to so many pixels and encode it "
                 "anew: 112, or width x height as 112x96. Default: files are packed as they are")
      ->type_name("SIZE");
  app.add_option("--quality", options.quality, "Quality of the JPEGs that --size makes")
      ->capture_default_str()
      ->check(examples::whole(1, 100));
  app.add_option("--shuffle", options.shuffle,
                 "Pack in an order drawn from this seed, for readers that go from front to back; the loader "
                 "shuffles by itself")
      ->check(examples::whole(0, UINT64_MAX));
  app.add_flag("--force", options.force, "Replace records that are there");
  app.option_defaults()->group(examples::kSystemGroup);
  app.add_option("--threads", options.threads, "Threads that read and encode; 0: one per processor")
      ->capture_default_str()
      ->check(examples::whole(0, 1024));
  examples::set_help_and_version(
      app,
      {.first = {"--size", "--name"},
       .examples = {"sinter_pack faces packed", "sinter_pack faces packed --size 112",
                    "sinter_pack photos/train packed --size 256",
                    "sinter_pack photos/val packed --size 256 --name val"},
       .notes = "Exit code: 0 all is packed; 1 an error; 2 a mistake on the command line; 143 (SIGTERM), 130 "
                "(Ctrl-C), 129 (SIGHUP), 140 (SIGUSR2), 152 (SIGXCPU): stopped. The files appear when all "
                "of them are complete; until then the old ones stay."});
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Packs a folder of images into MXNet's RecordIO: <name>.rec and <name>.idx, property and classes.txt.",
      "sinter_pack");
  std::string size;
  add_options(app, options, size);
  std::set<std::string> given;
  if (const auto exit_code = examples::parse(app, argc, argv, given)) return exit_code;
  if (!size.empty() && !parse_size(size, options))
    return examples::refuse(app,
                            fmt::format("--size: expected 112 or 112x96, up to 65500, but got '{}'", size));
  if (!is_file_name(options.name))
    return examples::refuse(app, fmt::format("--name: expected a file's name but got '{}'", options.name));
  return std::nullopt;
}

}  // namespace sinter_pack
