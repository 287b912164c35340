#include <algorithm>
#include <cstdlib>

#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

#include "common/test_cases.h"
#include "nn/job/network_builder.h"

namespace sinter::nn::testing {

void NetworkBuilder::build() {
  const bool is_tiny = network_.kind_ == NetworkKind::kChanging;
  const int64_t least = is_tiny ? 2 : 4, most = is_tiny ? 4 : 8;
  const Image images{maker_.integer(1, is_tiny ? 2 : 4), maker_.integer(least, most),
                     maker_.integer(least, most), maker_.pick({Layout::kNCHW, Layout::kNHWC})};
  network_.images_ = shape_of(images);
  images_.push_back(images);
  note(fmt::format("images {} {}", network_.images_, to_string(images.layout)));
  convolution(0, images.channels + 1, true);
  const int64_t steps = is_tiny ? maker_.integer(1, 3) : maker_.integer(3, 12);
  for (int64_t i = 0; i < steps; ++i) is_tiny&& maker_.chance(0.7) ? changing_step() : step();
  add_losses();
  for (size_t i = 1; i < images_.size(); ++i) {
    if (maker_.chance(0.1)) network_.outputs_.push_back(i);
  }
  draw_parameters();
}

void NetworkBuilder::add_losses() {
  network_.classes_ = maker_.integer(2, 5);
  classify(images_.size() - 1);
  if (maker_.chance(0.3)) classify(any());
  if (maker_.chance(0.4)) {
    const size_t v = any();
    network_.text_ += fmt::format("loss: mean square of v{}\n", v);
    network_.losses_.push_back(
        [=](const auto& values, const Tensor&) { return ops::mean(ops::square(values[v])) * 0.3; });
  }
  if (maker_.chance(0.3)) {
    const size_t a = any(), b = alike(a);
    network_.text_ += fmt::format("loss: v{} like v{} detached\n", a, b);
    network_.losses_.push_back(
        [=](const auto& values, const Tensor&) { return SmoothL1Loss{}(values[a], values[b].detach()); });
  }
}

void NetworkBuilder::classify(size_t v) {
  const Image image = images_[v];
  const std::string name = fmt::format("head{}", heads_++);
  const bool pools = maker_.chance(0.5);
  const int64_t features = pools ? image.channels : image.channels * image.height * image.width;
  const bool hidden = maker_.chance(0.4);
  const int64_t width = hidden ? maker_.integer(3, 9) : features;
  const GlobalAvgPool2d pool = network_.child(name + "_pool", GlobalAvgPool2d(image.layout));
  const Flatten flatten = network_.child(name + "_flatten", Flatten(image.layout));
  const Linear last = network_.child(name, Linear(width, network_.classes_));
  std::vector<AnyModule> before;
  if (hidden) {
    before.emplace_back(network_.child(name + "_hidden", Linear(features, width)));
    before.emplace_back(network_.child(name + "_norm", LayerNorm(width, {.epsilon = norm_epsilon()})));
    if (maker_.chance(0.5)) before.emplace_back(network_.child(name + "_drop", Dropout(0.3)));
  }
  const double smoothing = maker_.pick({0.0, 0.1});
  network_.text_ += fmt::format("loss: {} classes of v{}{}{}\n", network_.classes_, v,
                                pools ? ", pooled" : "", hidden ? ", through a hidden layer" : "");
  network_.losses_.push_back([=](const auto& values, const Tensor& classes) {
    Tensor y = pools ? pool(values[v]) : flatten(values[v]);
    for (const AnyModule& module : before) y = module(y);
    return CrossEntropyLoss{.label_smoothing = smoothing}(last(y), classes);
  });
}

/// Other values than zeros and ones, which would hide much, and some parameters frozen.
void NetworkBuilder::draw_parameters() {
  network_.to(network_.dtype_);
  for (const Parameter& parameter : network_.parameters()) {
    const bool is_vector = parameter.shape().rank() == 1;
    const bool is_scale = is_vector && parameter.name().ends_with("weight");
    parameter.assign(maker_.tensor(parameter.canonical_shape(), is_scale ? 0.5 : -0.5, is_scale ? 1.5 : 0.5));
    if (parameter.name() != "head0.weight" && maker_.chance(0.1)) {
      parameter.tensor().set_requires_grad(false);
      network_.text_ += "frozen: " + parameter.name() + "\n";
    }
  }
  for (const Buffer& buffer : network_.buffers()) {
    if (buffer.name().ends_with("running_var"))
      buffer.assign(maker_.tensor(buffer.canonical_shape(), 0.5, 1.5));
  }
}

RandomNetwork::RandomNetwork(uint64_t seed, DType dtype, Device device, NetworkKind kind)
    : dtype_(dtype), device_(device), kind_(kind) {
  NetworkBuilder(*this, seed).build();
  to(device);
  narrow_buffers();
}

void RandomNetwork::narrow_buffers() const {
  for (const Buffer& buffer : buffers()) {
    if (buffer.name().ends_with("_half")) buffer.to(DType::kFloat16);
  }
}

std::vector<Tensor> RandomNetwork::forward(const Tensor& images, const Tensor& classes) const {
  Values values{images};
  for (const Step& step : steps_) {
    values.push_back(step.run(values));
    SINTER_ASSERT(values.back().shape() == step.shape, "[random network] v{} is {}, expected {}",
                  values.size() - 1, values.back().shape(), step.shape);
  }
  Tensor loss;
  for (const auto& part : losses_) {
    const Tensor term = part(values, classes);
    loss = loss.defined() ? loss + term : term;
  }
  Values results{loss};
  for (const size_t v : outputs_) results.push_back(values[v].detach());
  return results;
}

std::vector<Tensor> RandomNetwork::batch(uint64_t seed) const {
  ops::SampleMaker maker(seed, dtype_);
  return {maker.tensor(images_, -1.0, 1.0).to(device_),
          maker.indices(Shape{images_[0]}, 0, classes_ - 1).to(device_)};
}

uint64_t random_seed() {
  return test::random_seed(1);
}

}  // namespace sinter::nn::testing
