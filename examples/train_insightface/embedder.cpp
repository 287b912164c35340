#include "embedder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/load_image.h>
#include <sinter/ops/cast/cast.h>

#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"
#include "data.h"
#include "predict/picture_files.h"
#include "run/output_files.h"

namespace train_insightface {

using namespace sinter;
namespace fs = std::filesystem;

namespace {

double length_of(std::span<const float> row) {
  double squares = 0.0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

class ImageTree final : public nn::data::Dataset {
 public:
  ImageTree(fs::path folder, std::vector<std::string> paths)
      : folder_(std::move(folder)), paths_(std::move(paths)) {}
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  void read(int64_t index, nn::data::Sample& sample,
            const nn::data::DecodeHintFunction& reduction) const override {
    sample.image = nn::data::read_image(folder_ / paths_[checked_index(index)], {}, reduction);
    sample.label = 0;
  }

 private:
  fs::path folder_;
  std::vector<std::string> paths_;
  std::vector<std::string> class_names_{"face"};
};

/// What the network gives of the next batch, with the lengths added to `norms`; nothing behind the last one.
std::vector<float> next_rows(const nn::AnyModule& backbone, nn::data::DataLoader& loader, Norms& norms) {
  const std::optional<nn::data::Batch> batch = loader.next();
  if (!batch) return {};
  std::vector<float> rows = ops::cast(backbone(batch->images), DType::kFloat32).to_vector<float>();
  const size_t dims = rows.size() / static_cast<size_t>(batch->size());
  for (size_t begin = 0; begin < rows.size(); begin += dims)
    norms.sum += length_of(std::span(rows).subspan(begin, dims));
  norms.count += static_cast<double>(batch->size());
  return rows;
}

}  // namespace

double squared_distance(std::span<const float> first, std::span<const float> second) {
  double sum = 0.0;
  for (size_t i = 0; i < first.size(); ++i) {
    const double difference = static_cast<double>(first[i]) - static_cast<double>(second[i]);
    sum += difference * difference;
  }
  return sum;
}

void make_unit(std::span<float> row) {
  const double length = std::max(length_of(row), 1e-12);
  for (float& value : row) value = static_cast<float>(static_cast<double>(value) / length);
}

std::optional<Norms> for_each_embedding(const nn::AnyModule& backbone, const Options& options, Device device,
                                        const std::shared_ptr<const nn::data::Dataset>& faces, bool flip,
                                        const std::function<void(std::span<float> row)>& take) {
  Norms norms;
  if (faces->size() == 0) return norms;
  const NoGrad no_grad;
  const nn::EvalMode eval(backbone);
  nn::data::DataLoaderOptions loader_of = loader_options(options, device, *faces);
  nn::data::DataLoader plain(faces, loader_of);
  std::optional<nn::data::DataLoader> mirrored;
  if (flip) {
    loader_of.transforms.push_back(nn::data::random_horizontal_flip(1));
    mirrored.emplace(faces, loader_of);
  }
  for (;;) {
    std::vector<float> rows = next_rows(backbone, plain, norms);
    if (rows.empty()) return norms;
    if (mirrored) {
      const std::vector<float> others = next_rows(backbone, *mirrored, norms);
      for (size_t i = 0; i < rows.size(); ++i) rows[i] += others[i];
    }
    const auto dims = static_cast<size_t>(options.dims);
    for (size_t begin = 0; begin < rows.size(); begin += dims) take(std::span(rows).subspan(begin, dims));
    if (examples::stop_signal() != 0) return std::nullopt;
  }
}

std::optional<Embeddings> embed(const nn::AnyModule& backbone, const Options& options, Device device,
                                const std::shared_ptr<const nn::data::Dataset>& faces) {
  Embeddings embeddings{.dims = options.dims, .values = {}};
  const auto norms = for_each_embedding(
      backbone, options, device, faces, options.verify_flip == "sum", [&](std::span<float> row) {
        make_unit(row);
        embeddings.values.insert(embeddings.values.end(), row.begin(), row.end());
      });
  if (!norms) return std::nullopt;
  embeddings.mean_norm = norms->mean();
  return embeddings;
}

std::optional<Embeddings> embed_folders(const nn::AnyModule& backbone, const Options& options, Device device,
                                        const std::shared_ptr<const nn::data::Dataset>& faces,
                                        std::vector<std::string>& paths) {
  struct Sum {
    std::vector<double> values;
    double count = 0.0;
  };
  std::map<std::string, Sum> sums;
  size_t at = 0;
  const bool flip = options.verify_flip == "sum";
  const double of_row = flip ? 2.0 : 1.0;  // embeddings whose sum a row is
  const auto norms = for_each_embedding(backbone, options, device, faces, flip, [&](std::span<float> row) {
    const std::string folder = fs::path(paths[at++]).parent_path().string();
    Sum& sum = sums[folder.empty() ? "." : folder];
    sum.values.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) sum.values[i] += static_cast<double>(row[i]);
    sum.count += of_row;
  });
  if (!norms) return std::nullopt;
  Embeddings means{.dims = options.dims, .values = {}, .mean_norm = norms->mean()};
  paths.clear();
  for (const auto& [folder, sum] : sums) {
    paths.push_back(folder);
    for (const double value : sum.values) means.values.push_back(static_cast<float>(value / sum.count));
  }
  return means;
}

std::shared_ptr<const nn::data::Dataset> open_image_tree(const char* option, const fs::path& folder,
                                                         std::vector<std::string>& paths) {
  paths = examples::list_images(option, folder);
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
    throw Error(fmt::format(
        "--output {}: the paths of {} do not fit into a .safetensors file ({}); a .csv file takes them",
        file.string(), examples::counted(paths.size(), "image"), failure.what()));
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
    for (int64_t d = 0; d < embeddings.dims; ++d)
      text += fmt::format(",{:.9g}", embeddings.row(i)[static_cast<size_t>(d)]);
    text += '\n';
  }
  examples::write_text(file, text);
}

}  // namespace train_insightface
