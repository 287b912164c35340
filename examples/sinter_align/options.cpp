#include "options.h"

#include <set>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "run/command_line.h"
#include "run/help.h"

namespace sinter_align {
namespace {

namespace examples = sinter::examples;

void add_options(CLI::App& app, Options& options) {
  app.add_option("images", options.images, "Folder of the photographs")
      ->required()
      ->check(examples::folder());
  app.add_option(
         "landmarks", options.landmarks,
         "CSV file with lines of path, x1, y1, ..., x5, y5 and perhaps a score: the eye on the image's "
         "left, the right one, the nose, the mouth's left and right corner, in pixels; or all 68 points "
         "of iBUG 300-W")
      ->required()
      ->check(examples::file());
  app.add_option("output", options.output, "Folder for the faces; it is made if it is not there")
      ->check(examples::folder());
  app.option_defaults()->group("Faces");
  app.add_option("--size", options.size,
                 "Pixels a side: a multiple of 112, or of 128, where faces are smaller")
      ->capture_default_str()
      ->check(examples::whole(112, 8192));
  app.add_option("--format", options.format, "Files of faces")
      ->capture_default_str()
      ->check(examples::one_of({"jpeg", "png"}));
  app.add_option("--quality", options.quality, "Quality of JPEGs")
      ->capture_default_str()
      ->check(examples::whole(1, 100));
  app.add_flag(
      "--check", options.check,
      "Only tell how far the points of images that are aligned already are from where networks expect "
      "them");
  app.add_option(
         "--max-damaged", options.max_damaged,
         "Put up with so many damaged images and points of no face: each is named and left out; 0: the "
         "first ends the run")
      ->capture_default_str()
      ->check(examples::whole(0, examples::kMany));
  app.add_flag("--force", options.force, "Replace files that are there");
  app.option_defaults()->group(examples::kSystemGroup);
  app.add_option("--threads", options.threads, "Threads that read and write; 0: one per processor")
      ->capture_default_str()
      ->check(examples::whole(0, 1024));
  examples::set_help_and_version(
      app,
      {.first = {"--size", "--check"},
       .examples = {"sinter_align photos landmarks.csv aligned",
                    "sinter_align photos landmarks.csv aligned --format png",
                    "sinter_align photos landmarks.csv aligned --max-damaged 100",
                    "sinter_align aligned points.csv --check"},
       .notes =
           "Exit code: 0 all faces are aligned, or told of; 1 an error; 2 a mistake on the command line; 143 "
           "(SIGTERM), 130 (Ctrl-C), 129 (SIGHUP), 140 (SIGUSR2), 152 (SIGXCPU): stopped. Files are "
           "complete whenever they are there."});
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app("Aligns faces by five points each, as InsightFace does.", "sinter_align");
  add_options(app, options);
  std::set<std::string> given;
  if (const auto exit_code = examples::parse(app, argc, argv, given)) return exit_code;
  if (options.size % 112 != 0 && options.size % 128 != 0) {
    return examples::refuse(
        app, fmt::format("--size: expected a multiple of 112 or 128 but got {}", options.size));
  }
  if (options.check && !options.output.empty())
    return examples::refuse(app, "--check writes nothing: leave the output folder out");
  if (!options.check && options.output.empty())
    return examples::refuse(app, "there is no folder for the faces: give it behind the landmarks");
  return std::nullopt;
}

}  // namespace sinter_align
