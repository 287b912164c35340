#include "convert.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/checkpoint/weights_file.h>

#include "common/console.h"
#include "common/text.h"
#include "run/model_files.h"

namespace sinter_convert {
namespace {

namespace fs = std::filesystem;
namespace examples = sinter::examples;
namespace nn = sinter::nn;
using sinter::IoError;
using sinter::examples::say;

constexpr const char* kFormat = "format";  // without this key, "pt", some programs do not read the file

/// Throws unless the output may be written.
void check_output(const Options& options) {
  std::error_code ignored;
  if (fs::equivalent(options.input, options.output, ignored))
    throw IoError(fmt::format("{} is the input; give the output another name", options.output));
  if (!options.force && fs::exists(options.output, ignored))
    throw IoError(fmt::format("{} is there already; --force replaces it", options.output));
}

void list(const nn::Weights& weights) {
  size_t longest = 0;
  for (const auto& [name, tensor] : weights.tensors)
    longest = std::max(longest, std::min<size_t>(sinter::escape_name(name).size(), 60));
  for (const auto& [name, tensor] : weights.tensors)
    say("{:{}}  {:8}  {}\n", sinter::escape_name(name), longest, sinter::to_string(tensor.dtype()),
        tensor.shape());
}

/// JSON may hold zero bytes, which end a text for many programs: neither format is written with them.
void leave_out_zero_bytes(const std::string& source, std::map<std::string, std::string>& metadata) {
  const auto is_text = [](const std::string& text) { return sinter::valid_utf8_prefix(text) == text.size(); };
  std::erase_if(metadata, [&](const auto& one) {
    if (is_text(one.first) && is_text(one.second)) return false;
    examples::complain("{}: left out, as there are zero bytes in it: the metadata {}", source,
                       sinter::escape_name(one.first));
    return true;
  });
}

void write(const nn::Weights& weights, const std::string& source, const std::string& output) {
  std::map<std::string, std::string> metadata = weights.metadata;
  leave_out_zero_bytes(source, metadata);
  if (examples::weights_format(output) == examples::WeightsFormat::kPytorch) {
    metadata.erase(kFormat);
    return nn::write_pytorch(output, weights.tensors, metadata);
  }
  metadata.emplace(kFormat, "pt");
  nn::write_safetensors(output, weights.tensors, metadata);
}

}  // namespace

void convert(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  if (!options.output.empty()) check_output(options);
  const nn::Weights weights = nn::read_weights(options.input, {.key = options.key});
  sinter::examples::tell_how_read(options.input, weights);
  if (options.list) list(weights);
  size_t bytes = 0;
  for (const auto& [name, tensor] : weights.tensors) bytes += tensor.spec().bytes();
  const auto megabytes = static_cast<double>(bytes) / 1e6;
  const std::string tensors = sinter::examples::counted(weights.tensors.size(), "tensor");
  if (options.output.empty()) {
    say("{}: {}, {:.1f} MB\n", options.input, tensors, megabytes);
    return;
  }
  write(weights, options.input, options.output);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  say("{}: {}, {:.1f} MB, written in {:.2f} s\n", options.output, tensors, megabytes, seconds);
}

}  // namespace sinter_convert
