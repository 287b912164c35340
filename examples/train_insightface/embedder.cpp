#include "embedder.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <span>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/ops/cast/cast.h>

#include "common/console.h"
#include "common/stop.h"
#include "data.h"
#include "run/output_files.h"

namespace train_insightface {

using namespace sinter;
namespace fs = std::filesystem;

namespace {

/// Mirrors every image.
class Mirror final : public nn::data::Transform {
 public:
  void apply(nn::data::Image& image, nn::data::TransformContext&) const override {
    nn::data::flip_horizontal(image);
  }
  nn::data::FrameStep frame_step() const override { return {.kind = nn::data::FrameStep::Kind::kMirror}; }
  void move(nn::data::Frame& frame, int64_t, int64_t, nn::data::SampleRandom&) const override {
    frame.mirrored = !frame.mirrored;
  }
};

class ImageTree final : public nn::data::Dataset {
 public:
  ImageTree(fs::path folder, std::vector<std::string> paths)
      : folder_(std::move(folder)), paths_(std::move(paths)) {}
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  void read(int64_t index, nn::data::Sample& sample,
            const nn::data::ReductionChooser& reduction) const override {
    const fs::path path = folder_ / paths_[checked_index(index)];
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw IoError(fmt::format("{}: cannot be read", path.string()));
    nn::data::decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path.string(), {},
                           reduction, sample.image);
    sample.label = 0;
  }

 private:
  fs::path folder_;
  std::vector<std::string> paths_;
  std::vector<std::string> class_names_{"face"};
};

/// Adds what the network gives to `sums`, and the lengths of it to `norms`. False if it was to stop.
bool add_outputs(const nn::IResNet& backbone, nn::data::DataLoader& loader, std::vector<float>& sums,
                 double& norms) {
  size_t at = 0;
  while (const std::optional<nn::data::Batch> batch = loader.next()) {
    const std::vector<float> rows = ops::cast(backbone(batch->images), DType::kFloat32).to_vector<float>();
    const size_t dims = rows.size() / static_cast<size_t>(batch->size());
    for (size_t begin = 0; begin < rows.size(); begin += dims) {
      double squares = 0.0;
      for (size_t i = begin; i < begin + dims; ++i)
        squares += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
      norms += std::sqrt(squares);
    }
    sums.resize(std::max(sums.size(), at + rows.size()), 0.0f);
    for (const float value : rows) sums[at++] += value;
    if (examples::stop_signal() != 0) return false;
  }
  return true;
}

}  // namespace

double squared_distance(const Embeddings& embeddings, int64_t first, int64_t second) {
  const float *a = embeddings.row(first), *b = embeddings.row(second);
  double sum = 0.0;
  for (int64_t i = 0; i < embeddings.dims; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

std::optional<Embeddings> embed(const nn::IResNet& backbone, const Options& options, Device device,
                                const std::shared_ptr<const nn::data::Dataset>& faces) {
  const NoGrad no_grad;
  const nn::EvalMode eval(backbone);
  Embeddings embeddings;
  double norms = 0.0;
  for (const bool mirrored : {false, true}) {
    nn::data::DataLoaderOptions loader_of = loader_options(options, device, *faces);
    if (mirrored) loader_of.transforms.push_back(std::make_shared<Mirror>());
    nn::data::DataLoader loader(resized(faces, options.image_size), loader_of);
    if (!add_outputs(backbone, loader, embeddings.values, norms)) return std::nullopt;
  }
  const int64_t count = faces->size();
  embeddings.dims = static_cast<int64_t>(embeddings.values.size()) / count;
  embeddings.mean_norm = norms / static_cast<double>(2 * count);
  for (int64_t i = 0; i < count; ++i) {
    const std::span<float> row(embeddings.values.data() + i * embeddings.dims,
                               static_cast<size_t>(embeddings.dims));
    double squares = 0.0;
    for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
    const double length = std::max(std::sqrt(squares), 1e-12);
    for (float& value : row) value = static_cast<float>(static_cast<double>(value) / length);
  }
  return embeddings;
}

std::shared_ptr<const nn::data::Dataset> open_image_tree(const char* option, const fs::path& folder,
                                                         std::vector<std::string>& paths) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(fmt::format("{} {} is no folder", option, folder.string()));
  std::map<std::string, uint64_t> left_out;
  uint64_t others = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && at != end; at.increment(error)) {
    std::error_code unknown;
    const std::string name = at->path().filename().string(), ending = nn::data::ending_of(name);
    if (name.starts_with(".")) {
      at.disable_recursion_pending();
    } else if (at->is_directory(unknown)) {
      continue;
    } else if (nn::data::is_image_ending(ending) && at->is_regular_file(unknown)) {
      paths.push_back(at->path().lexically_relative(folder).string());
    } else {
      ++left_out[ending.empty() ? "without an ending" : '.' + ending];
      ++others;
    }
  }
  if (error) throw Error(fmt::format("{} {}: cannot be read: {}", option, folder.string(), error.message()));
  const std::string told = fmt::format("{} of {} files are left out: {}", others, others + paths.size(),
                                       nn::data::describe_counts(left_out));
  if (paths.empty()) {
    throw Error(fmt::format("{} {} has no images ({}){}{}", option, folder.string(), nn::data::kImageEndings,
                            others > 0 ? "; " : "", others > 0 ? told : ""));
  }
  if (others > 0) examples::complain("warning: {} {}: {}", option, folder.string(), told);
  std::ranges::sort(paths);
  return std::make_shared<ImageTree>(folder, paths);
}

namespace {

/// The paths as metadata of safetensors: one a line, whatever is in their names.
std::map<std::string, std::string> metadata_of(const std::vector<std::string>& paths) {
  std::string list;
  for (const std::string& path : paths) list += escape_name(path) + '\n';
  return {{"paths", list}};
}

}  // namespace

void check_embeddings_file(const fs::path& file, const std::vector<std::string>& paths) {
  if (file.extension() == ".csv") return;
  try {
    nn::serialize_safetensors({}, metadata_of(paths), [](std::span<const std::byte>) {});
  } catch (const InvalidArgument& failure) {
    throw Error(
        fmt::format("--output {}: {} paths do not fit into a .safetensors file ({}); a .csv file takes them",
                    file.string(), paths.size(), failure.what()));
  }
}

void write_embeddings(const fs::path& file, const Embeddings& embeddings,
                      const std::vector<std::string>& paths) {
  if (file.extension() != ".csv") {
    nn::write_safetensors(
        file, {{"embeddings", Tensor::from_values(embeddings.values, {embeddings.count(), embeddings.dims})}},
        metadata_of(paths));
    return;
  }
  std::string text;
  for (int64_t i = 0; i < embeddings.count(); ++i) {
    const std::string path = escape_name(paths[static_cast<size_t>(i)]);
    std::string quoted;
    for (const char c : path) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += path.find_first_of(",\"") == std::string::npos ? path : '"' + quoted + '"';
    for (int64_t d = 0; d < embeddings.dims; ++d) text += fmt::format(",{:.9g}", embeddings.row(i)[d]);
    text += '\n';
  }
  examples::write_text(file, text);
}

}  // namespace train_insightface
