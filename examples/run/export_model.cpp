#include "run/export_model.h"

#include <sinter/nn/export/onnx.h>

#include "common/console.h"

namespace sinter::examples {

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
