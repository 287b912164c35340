// Exports every case of onnx_cases.h, with inputs and results beside it, for onnx_runtime_test.py.
//
// usage: write_onnx_cases FOLDER [--large] [--random NUMBER]
//
// --random: also so many random networks, from SINTER_TEST_SEED on. Those are left out that give nothing but
// a loss, change buffers or draw random numbers in evaluation: they cannot be exported. Writes
// CASE.float32.onnx and CASE.float16.onnx, and for each a file of tensors "inputs/BATCH/NAME" and
// "outputs/BATCH/NAME", which are Sinter's.
#include <cstdio>
#include <filesystem>
#include <string_view>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/export/onnx.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>

#include "nn/export/onnx_cases.h"
#include "nn/job/random_network.h"

namespace sinter::nn::testing {
namespace {

Tensor values_for(const TensorSpec& spec, int64_t seed) {
  if (spec.dtype == DType::kInt64) return ops::cast(case_values(spec.shape, 0.0, 4.0, seed), DType::kInt64);
  return ops::cast(case_values(spec.shape, -2.0, 2.0, seed), spec.dtype);
}

/// As it is in the file: images first, no halves.
Tensor as_written(const OnnxCase& written, const Tensor& tensor) {
  const bool turns = written.layout == Layout::kNHWC && tensor.rank() == 4;
  const Tensor x = turns ? ops::permute(tensor, {0, 3, 1, 2}) : tensor;
  return is_half(x.dtype()) ? ops::cast(x, DType::kFloat32) : x;
}

std::string name_of(const char* kind, size_t i, size_t count) {
  return count == 1 ? kind : kind + std::to_string(i);
}

void write(const OnnxCase& written, CaseNumbers numbers, const std::filesystem::path& stem) {
  const CaseModel exported = written.make(numbers);
  OnnxOptions options;
  options.layout = written.layout;
  const std::vector<TensorSpec> specs = written.specs(numbers, OnnxCase::kBatch);
  export_onnx(*exported.model, exported.function, specs, stem.string() + ".onnx", options);

  const bool is_half = numbers == CaseNumbers::kHalf;
  const CaseModel reference = is_half ? written.make(CaseNumbers::kHalfInFloat) : exported;
  const NoGrad no_grad;
  const EvalMode eval(*reference.model);
  NamedTensors tensors;
  for (const int64_t batch : {1, 2}) {
    std::vector<Tensor> inputs;
    for (const TensorSpec& spec : written.specs(numbers, batch)) {
      const Tensor values = values_for(spec, static_cast<int64_t>(inputs.size()) + 50);
      inputs.push_back(sinter::is_half(values.dtype()) ? ops::cast(values, DType::kFloat32) : values);
    }
    const std::vector<Tensor> outputs = reference.function(inputs);
    for (const auto& [kind, list] : {std::pair{"input", inputs}, std::pair{"output", outputs}}) {
      for (size_t i = 0; i < list.size(); ++i) {
        tensors[fmt::format("{}s/{}/{}", kind, batch, name_of(kind, i, list.size()))] =
            as_written(written, list[i]);
      }
    }
  }
  write_safetensors(stem.string() + ".safetensors", tensors);
}

/// A network of bytes, as docs/onnx.md runs one.
void write_digits(const std::filesystem::path& folder) {
  manual_seed(1);
  const ResNet model = resnet20({.in_channels = 1, .width = 4, .layout = Layout::kNHWC});
  ModelMetadata metadata;
  for (int i = 0; i < 10; ++i) metadata.classes.push_back(std::to_string(i));
  metadata.mean = {0.25f};
  metadata.std = {0.5f};
  export_onnx(model, {1, 8, 8, 1}, folder / "digits.onnx",
              {.preprocessing = OnnxPreprocessing::kUInt8, .metadata = metadata});
  export_onnx(model, {1, 8, 8, 1}, folder / "digits_rgb.onnx",
              {.preprocessing = OnnxPreprocessing::kRgb, .metadata = metadata});
  const NoGrad no_grad;
  const EvalMode eval(model);
  NamedTensors bytes, pixels;
  for (const int64_t batch : {1, 2}) {
    const Tensor images = ops::cast(case_values({batch, 8, 8, 1}, 0.0, 256.0, batch), DType::kUInt8);
    const Tensor floats = ops::cast(images, DType::kFloat32);
    const Tensor logits = model((floats * (1.0 / 255.0) - 0.25) * 2.0);
    bytes[fmt::format("inputs/{}/input", batch)] = images;
    pixels[fmt::format("inputs/{}/input", batch)] = ops::permute(floats, {0, 3, 1, 2});
    bytes[fmt::format("outputs/{}/output", batch)] = pixels[fmt::format("outputs/{}/output", batch)] = logits;
  }
  write_safetensors(folder / "digits.safetensors", bytes);
  write_safetensors(folder / "digits_rgb.safetensors", pixels);
}

/// A network of tests of jobs, without its losses: what it computes within. Gives whether it can be exported.
bool write_random(const std::filesystem::path& folder, uint64_t seed) {
  const RandomNetwork network(seed, DType::kFloat32);
  const std::vector<Tensor> inputs = network.batch(seed);
  const JobFunction within = [&](std::span<const Tensor> x) {
    std::vector<Tensor> values = network(x[0], x[1]);
    values.erase(values.begin());
    return values;
  };
  const NoGrad no_grad;
  const EvalMode eval(network);
  const std::vector<Tensor> outputs = within(inputs);
  if (outputs.empty()) return false;
  const std::vector<TensorSpec> specs{inputs[0].spec(), inputs[1].spec()};
  const std::string stem = (folder / fmt::format("random{}", seed)).string();
  try {
    export_onnx(network, within, specs, stem + ".onnx", {.dynamic_batch = false, .layout = Layout::kNCHW});
  } catch (const Unsupported&) {
    return false;
  }
  NamedTensors tensors;
  for (size_t i = 0; i < 2; ++i) tensors["inputs/0/" + name_of("input", i, 2)] = inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i) {
    tensors["outputs/0/" + name_of("output", i, outputs.size())] = outputs[i];
  }
  write_safetensors(stem + ".safetensors", tensors);
  return true;
}

/// A network once more under `name`, by other options.
void write_again(const std::filesystem::path& folder, const std::string& name, const OnnxOptions& options) {
  const OnnxCase each = onnx_network_cases(false).front();
  const CaseModel made = each.make(CaseNumbers::kFloat);
  export_onnx(*made.model, made.function, each.specs(CaseNumbers::kFloat, 1), folder / (name + ".onnx"),
              options);
  std::filesystem::copy_file(folder / (each.name + ".float32.safetensors"), folder / (name + ".safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
}

}  // namespace
}  // namespace sinter::nn::testing

int main(int count, char** arguments) {
  using namespace sinter::nn::testing;
  if (count < 2) {
    std::fputs("usage: write_onnx_cases FOLDER [--large] [--random NUMBER]\n", stderr);
    return 2;
  }
  try {
    const std::filesystem::path folder = arguments[1];
    std::filesystem::create_directories(folder);
    std::vector<OnnxCase> cases = onnx_op_cases();
    bool large = false;
    int random = 0;
    for (int i = 2; i < count; ++i) {
      large = large || std::string_view(arguments[i]) == "--large";
      if (std::string_view(arguments[i]) == "--random" && i + 1 < count) random = std::stoi(arguments[i + 1]);
    }
    for (const auto& more : {onnx_image_cases(), onnx_network_cases(large)}) {
      cases.insert(cases.end(), more.begin(), more.end());
    }
    for (const OnnxCase& each : cases) {
      write(each, CaseNumbers::kFloat, folder / (each.name + ".float32"));
      write(each, CaseNumbers::kHalf, folder / (each.name + ".float16"));
    }
    write_digits(folder);
    write_again(folder, "external", {.external_data_above = 0});
    write_again(folder, "folded", {.fold_batch_norm = true});
    int written = 0;
    for (int i = 0; i < random; ++i)
      written += write_random(folder, random_seed() + static_cast<uint64_t>(i));
    std::printf("%d of %d random networks can be exported\n", written, random);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
