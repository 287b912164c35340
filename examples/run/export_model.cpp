#include "run/export_model.h"

#include <CLI/CLI.hpp>

#include <sinter/nn/export/onnx.h>

#include "common/console.h"
#include "run/command_line.h"

namespace sinter::examples {

void add_export_options(CLI::App& app, ExportOptions& options) {
  CLI::Option* const path =
      app.add_option("--export", options.path,
                     "Write the model with its final weights to an ONNX file, for ONNX Runtime and others")
          ->check(file());
  app.add_option("--export-preprocessing", options.preprocessing,
                 "What that file takes: none (normalised images), rgb (pixels from 0 to 255, NCHW) or uint8 "
                 "(bytes, NHWC)")
      ->capture_default_str()
      ->check(one_of({"none", "rgb", "uint8"}))
      ->needs(path);
}

void export_model(const nn::Module& model, const nn::ModelMetadata& metadata, const ExportOptions& options) {
  const bool is_last = model.layout() == Layout::kNHWC;
  const int64_t height = metadata.height, width = metadata.width, channels = metadata.channels;
  const Shape image = is_last ? Shape{1, height, width, channels} : Shape{1, channels, height, width};
  nn::export_onnx(
      model, image, options.path,
      {.preprocessing = nn::parse_onnx_preprocessing(options.preprocessing), .metadata = metadata});
  say("model exported to {}\n", options.path);
}

}  // namespace sinter::examples
