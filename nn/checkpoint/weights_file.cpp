#include <algorithm>
#include <array>
#include <utility>

#include <sinter/nn/checkpoint/pytorch/name_prefixes.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>
#include <sinter/nn/checkpoint/weights_file.h>

namespace sinter::nn {

Weights read_weights(const std::filesystem::path& path, const ReadWeightsOptions& options,
                     FileSystem& files) {
  std::array<std::byte, 512> first{};
  {
    InputFile file(path, files);
    file.read(0, std::span(first).first(std::min<uint64_t>(first.size(), file.size())));
  }
  if (is_pytorch(first)) {
    PytorchFile file = read_pytorch(path, {.key = options.key}, files);
    return {.tensors = std::move(file.tensors),
            .metadata = std::move(file.metadata),
            .key = std::move(file.key),
            .prefix = std::move(file.prefix),
            .skipped = std::move(file.skipped)};
  }
  SINTER_CHECK(options.key.empty(),
               "[weights] {}: expected no key, as this is no file of PyTorch's, but got {}", path.string(),
               options.key);
  Safetensors file = read_safetensors(path, files);
  Weights weights{.tensors = std::move(file.tensors),
                  .metadata = std::move(file.metadata),
                  .key = {},
                  .prefix = {},
                  .skipped = {}};
  weights.prefix = pytorch::strip_prefixes(weights.tensors);
  return weights;
}

}  // namespace sinter::nn
