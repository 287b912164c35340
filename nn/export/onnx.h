// export_onnx: a model as an ONNX file, which ONNX Runtime, OpenCV, TensorRT and others run.
//
//   nn::export_onnx(model, {1, 3, 224, 224}, "model.onnx");
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/export/onnx_call.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// What the file's input is. Anything but kNone puts ModelMetadata's normalisation into the graph, before the
/// model's own input, which must be one tensor of images.
enum class OnnxPreprocessing : uint8_t {
  kNone,   ///< what the model takes
  kRgb,    ///< float32 pixels from 0 to 255, (N, C, H, W)
  kUInt8,  ///< uint8 pixels as decoders give them, (N, H, W, C)
};

/// "none", "rgb" or "uint8", and back; parse_ throws InvalidArgument for any other text.
std::string_view to_string(OnnxPreprocessing preprocessing);
OnnxPreprocessing parse_onnx_preprocessing(std::string_view text);

struct OnnxOptions {
  /// The file takes batches of any size: the first axis of the first input, and of all that have as many
  /// elements there, is called "batch". Without it inputs have the shapes that are given, and no other.
  bool dynamic_batch = true;
  /// By default "input" and "output", or "input0", "input1", ... if there are several.
  std::vector<std::string> input_names = {}, output_names = {};
  OnnxPreprocessing preprocessing = OnnxPreprocessing::kNone;
  /// Goes into the file's metadata_props, under the keys that safetensors files have, with the preprocessing
  /// under "preprocessing".
  std::optional<ModelMetadata> metadata = {};
  /// How the model's images lie, inputs and outputs of rank 4; by default as the model's layers work
  /// (ModuleBase::layout()). In the file they are always (N, C, H, W).
  std::optional<Layout> layout = {};
  /// Norms go into the convolutions before them, whose weights then are under other names. ONNX Runtime does
  /// so itself.
  bool fold_batch_norm = false;
  /// If the weights have more bytes than this, they go to `<path>.data` beside the file, which must stay
  /// there under its name. An ONNX file can have 2 GiB.
  uint64_t external_data_above = uint64_t{1900} << 20;
};

/// Writes what `model(x)` gives in evaluation mode, for inputs like `example`, whose values do not matter, to
/// `path`: ONNX opset 17, IR version 8, which ONNX Runtime runs from version 1.12 on. The model's code runs
/// three times (once for a batch of fixed size) on tensors without values, as in an InferJob; nothing of it
/// changes, and it may be on any device. Weights stand under the names of parameters and buffers, in
/// PyTorch's shapes. Everything is float32 in the file: 16-bit weights and inputs become that, mixed models
/// give their float32 weights.
///
/// The file, and one of weights beside it, appear when they are complete. Throws Unsupported, with the names
/// of ops and where they are called, for ops that have no counterpart in ONNX (docs/onnx.md), for float64,
/// and for code that depends on the batch in a way that ONNX cannot follow; InvalidArgument as the model
/// does, for what cannot be traced and for options that do not fit; IoError if it cannot be written.
template <class Model>
requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Model&, Tensor>
void export_onnx(const Model& model, const Tensor& example, const std::filesystem::path& path,
                 const OnnxOptions& options = {});
/// The same for an input of this shape, in the dtype of the model's parameters.
template <class Model>
requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Model&, Tensor>
void export_onnx(const Model& model, const Shape& input, const std::filesystem::path& path,
                 const OnnxOptions& options = {});
/// Any function of any inputs; `model` is that whose variables it computes with, on whose device inputs are
/// then, whichever their specs name.
void export_onnx(const ModuleBase& model, const JobFunction& function, std::span<const TensorSpec> inputs,
                 const std::filesystem::path& path, const OnnxOptions& options = {});
/// What a job computes, for inputs as in its last call, in float32 whatever its precision. Throws
/// InvalidArgument before the first call.
void export_onnx(const InferJob& job, const std::filesystem::path& path, const OnnxOptions& options = {});

/// How calls of one op are written: with the members of OnnxCall.
using OnnxTranslation = std::function<void(OnnxCall&)>;

/// Lets export_onnx() write calls of an op, Sinter's or one's own. Throws InvalidArgument if there is no such
/// op, or if it has a translation. Any thread may call it.
///
///   nn::register_onnx_translation("cube", [](nn::OnnxCall& call) {
///     const std::string x = call.input(0);
///     call.give(call.node("Mul", {x, call.node("Mul", {x, x})}));
///   });
void register_onnx_translation(const std::string& op, OnnxTranslation translation);

// ---- what is left is how the templates are made

namespace detail {

TensorSpec onnx_input(const ModuleBase& model, const Shape& shape);
/// Of a model of one input and output.
template <class Model>
void export_onnx(const Model& model, const TensorSpec& input, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  const JobFunction function = [&model](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{model(inputs[0])};
  };
  nn::export_onnx(static_cast<const ModuleBase&>(model), function, {&input, 1}, path, options);
}

}  // namespace detail

template <class Model>
requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Model&, Tensor>
void export_onnx(const Model& model, const Tensor& example, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  detail::export_onnx(model, example.spec(), path, options);
}

template <class Model>
requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Model&, Tensor>
void export_onnx(const Model& model, const Shape& input, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  detail::export_onnx(model, detail::onnx_input(model, input), path, options);
}

}  // namespace sinter::nn
