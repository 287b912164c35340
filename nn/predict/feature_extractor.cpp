#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/predict/feature_extractor.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::nn {

namespace {

/// Hands over what each module gives, as long as it lives. Others who watch the thread see it too.
class OutputObserver final : public ModuleObserver {
 public:
  explicit OutputObserver(std::function<void(const void* id, const Tensor& output)> see)
      : see_(std::move(see)), previous_(set_module_observer(this)) {}
  ~OutputObserver() override { set_module_observer(previous_); }
  OutputObserver(const OutputObserver&) = delete;
  OutputObserver& operator=(const OutputObserver&) = delete;

  void enter(const void* id) override {
    if (previous_ != nullptr) previous_->enter(id);
  }
  void leave(const void* id, const Tensor* output) override {
    if (output != nullptr) see_(id, *output);
    if (previous_ != nullptr) previous_->leave(id, output);
  }

 private:
  std::function<void(const void* id, const Tensor& output)> see_;
  ModuleObserver* previous_;
};

struct LayerOutput {
  std::string path;
  Shape shape;
};

/// What the modules of a model give for one image, in the order in which they do, without computing it.
std::vector<LayerOutput> layer_outputs(const AnyModule& model, const ModelMetadata& metadata, Layout layout,
                                       Device device) {
  std::map<const void*, std::string> paths;
  for (const ModuleInfo& module : model.modules()) paths.emplace(module.id, module.path);
  std::vector<LayerOutput> outputs;
  const auto function = [&](std::span<const Tensor> inputs) {
    const OutputObserver observer([&](const void* id, const Tensor& output) {
      const auto found = paths.find(id);
      if (found != paths.end() && !found->second.empty() && output.rank() > 1)
        outputs.push_back({found->second, output.shape()});
    });
    return std::vector<Tensor>{model(inputs[0])};
  };
  const Shape image = layout == Layout::kNHWC ? Shape{1, metadata.height, metadata.width, metadata.channels}
                                              : Shape{1, metadata.channels, metadata.height, metadata.width};
  const TensorSpec specs[] = {{image, DType::kFloat32, device}};
  const EvalMode eval(model);
  const GeneratorScope generator;
  Graph graph;
  ModuleSnapshot snapshot(model);
  trace_inference(graph, model, function, specs, false, snapshot);
  return outputs;
}

/// The layer of a name among those that give a tensor.
const LayerOutput& find_layer(const std::vector<LayerOutput>& outputs, const std::string& name) {
  const auto found =
      std::find_if(outputs.rbegin(), outputs.rend(), [&](const LayerOutput& o) { return o.path == name; });
  if (found != outputs.rend()) return *found;
  if (name == "avgpool" || name == "flatten") {
    const auto maps = std::find_if(outputs.rbegin(), outputs.rend(),
                                   [](const LayerOutput& o) { return o.shape.rank() == 4; });
    if (maps != outputs.rend()) return *maps;
  }
  std::vector<std::string> names;
  for (const LayerOutput& output : outputs) {
    if (std::ranges::find(names, output.path) == names.end()) names.push_back(output.path);
  }
  throw_error<InvalidArgument>("[feature_extractor] expected a layer among {} but got '{}'",
                               fmt::join(names, ", "), name);
}

/// Maps as their means, in float32: (N, D).
Tensor as_rows(const Tensor& output, Layout layout) {
  const Tensor wide = ops::cast(output, DType::kFloat32);
  return wide.rank() == 4 ? ops::global_avg_pool2d(wide, {.layout = layout}) : ops::flatten(wide, 1);
}

int64_t row_length(const Shape& shape, Layout layout) {
  if (shape.rank() == 4) return shape[layout == Layout::kNHWC ? 3 : 1];
  return shape.numel() / shape[0];
}

}  // namespace

FeatureExtractor::FeatureExtractor(const std::filesystem::path& weights, const std::string& layer,
                                   const PredictOptions& options)
    : FeatureExtractor(read_weights(weights), weights.string(), layer, options) {}

FeatureExtractor::FeatureExtractor(const Weights& weights, const std::string& source,
                                   const std::string& layer, const PredictOptions& options)
    : network_(
          weights, source, options,
          {.view = [this](const AnyModule& model, const Tensor& images) { return rows_of(model, images); },
           .finish = [](const Tensor& mean) { return std::vector<Tensor>{mean}; }}) {
  const std::vector<LayerOutput> outputs =
      layer_outputs(network_.model(), metadata(), network_.layout(), options.device);
  const LayerOutput& output = find_layer(outputs, layer);
  layer_ = layer;  // "avgpool" is no module, but what was asked for
  dimensions_ = row_length(output.shape, network_.layout());
  for (const ModuleInfo& module : network_.model().modules()) {
    if (module.path == output.path) layer_id_ = module.id;
  }
}

Tensor FeatureExtractor::rows_of(const AnyModule& model, const Tensor& images) const {
  Tensor kept;
  {
    const OutputObserver observer([&](const void* id, const Tensor& output) {
      if (id == layer_id_) kept = output;
    });
    model(images);
  }
  return as_rows(kept, network_.layout());
}

Tensor FeatureExtractor::operator()(const std::vector<Picture>& pictures) const {
  const Tensor rows = Tensor::empty({static_cast<int64_t>(pictures.size()), dimensions_});
  std::string failure;
  for_each(pictures, [&](int64_t index, std::span<const float> row, const std::string& error) {
    failure = error;
    std::ranges::copy(row, rows.data<float>() + index * dimensions_);
    return error.empty();
  });
  if (!failure.empty()) throw IoError(failure);
  return rows;
}

void FeatureExtractor::for_each(std::vector<Picture> pictures,
                                const std::function<bool(int64_t index, std::span<const float> row,
                                                         const std::string& error)>& take) const {
  network_.run(std::move(pictures), [&](int64_t first, const std::vector<Tensor>& outputs,
                                        const std::vector<std::string>& errors) {
    const auto length = static_cast<size_t>(dimensions_);
    const std::span values(outputs[0].data<float>(), errors.size() * length);
    for (size_t row = 0; row < errors.size(); ++row) {
      if (!take(first + static_cast<int64_t>(row), values.subspan(row * length, length), errors[row]))
        return false;
    }
    return true;
  });
}

}  // namespace sinter::nn
