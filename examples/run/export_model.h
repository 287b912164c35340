// --export: a trained model as an ONNX file.
#pragma once

#include <string>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/module/module.h>

namespace sinter::examples {

struct ExportOptions {
  std::string path;                    ///< empty: nothing is exported
  std::string preprocessing = "none";  ///< as of nn::OnnxOptions
};

/// Writes the model, which takes images as `metadata` says, and says so.
void export_model(const nn::Module& model, const nn::ModelMetadata& metadata, const ExportOptions& options);

}  // namespace sinter::examples
