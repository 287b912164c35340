// How each of Sinter's ops is written in ONNX (opset 17), and the table in which that stands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sinter/nn/export/onnx.h>

namespace sinter::nn {

/// Empty if there is none.
OnnxTranslation find_onnx_translation(const std::string& op);
/// The names of the ops that have one, sorted.
std::vector<std::string> onnx_translated_ops();

using OnnxTable = std::map<std::string, OnnxTranslation>;
void add_elementwise_translations(OnnxTable& table);
void add_image_translations(OnnxTable& table);
void add_product_translations(OnnxTable& table);
void add_shape_translations(OnnxTable& table);

}  // namespace sinter::nn
