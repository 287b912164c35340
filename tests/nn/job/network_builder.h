// NetworkBuilder: draws what a random network is made of.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/base/layout.h>
#include <sinter/core/base/size2d.h>

#include "nn/job/random_network.h"

namespace sinter::nn::testing {

struct Image {
  int64_t channels, height, width;
  Layout layout;
  bool operator==(const Image&) const = default;
};

inline int channel_axis(const Image& image) {
  return image.layout == Layout::kNCHW ? 1 : 3;
}

/// Draws one network, value after value. Shapes are solved on the way, so that every call is legal.
class NetworkBuilder {
 public:
  NetworkBuilder(RandomNetwork& network, uint64_t seed)
      : network_(network), maker_(seed, network.dtype_), batch_(maker_.integer(2, 3)) {}

  void build();

 private:
  // ---- values

  Shape shape_of(const Image& image) const {
    return image.layout == Layout::kNCHW ? Shape{batch_, image.channels, image.height, image.width}
                                         : Shape{batch_, image.height, image.width, image.channels};
  }
  /// The value that comes next reads: mostly one of the last.
  size_t any() {
    const auto count = static_cast<int64_t>(images_.size());
    return static_cast<size_t>(
        maker_.chance(0.75) ? count - 1 : maker_.integer(std::max<int64_t>(0, count - 5), count - 1));
  }
  void note(const std::string& text) { network_.text_ += fmt::format("v{}: {}\n", images_.size() - 1, text); }
  size_t add(Image image, const std::string& text, std::function<Tensor(const RandomNetwork::Values&)> run) {
    network_.steps_.push_back({std::move(run), shape_of(image)});
    images_.push_back(image);
    note(fmt::format("{}, {} {}", text, shape_of(image), to_string(image.layout)));
    return images_.size() - 1;
  }
  /// A value that a module makes of value `v`.
  template <class M>
  size_t apply(size_t v, Image image, const std::string& text, M module) {
    const std::string name = fmt::format("m{}", modules_++);
    const M member = network_.child(name, std::move(module));
    if (maker_.chance(0.12)) {
      member.eval();
      return add(image, fmt::format("{} = {} of v{}, in evaluation mode", name, text, v),
                 [=](const auto& values) { return member(values[v]); });
    }
    return add(image, fmt::format("{} = {} of v{}", name, text, v),
               [=](const auto& values) { return member(values[v]); });
  }
  /// A value with the image `image`: one that is there, or one made of v.
  size_t alike(size_t v) {
    std::vector<size_t> fitting;
    for (size_t i = 0; i < images_.size(); ++i) {
      if (i != v && images_[i] == images_[v]) fitting.push_back(i);
    }
    if (!fitting.empty() && maker_.chance(0.7)) {
      return fitting[static_cast<size_t>(maker_.integer(0, static_cast<int64_t>(fitting.size()) - 1))];
    }
    return branch(v);
  }

  // ---- steps (network_steps.cpp)

  void step();
  size_t convolution(size_t v, int64_t channels, bool keeps_size);
  void plain_convolution();
  void convolution_norm();
  /// Keeps rows of norms well conditioned: with 1e-5, each may make a rounding 300 times as large.
  double norm_epsilon() { return maker_.pick({1e-3, 1e-2, 1e-1}); }
  size_t batch_norm(size_t v);
  void norm();
  size_t activate(size_t v);
  void activation();
  size_t branch(size_t v);
  size_t sum(size_t a, size_t b);
  void residual();
  void two_of_a_shape();
  void pool();
  void pool_by(size_t v, Size2d kernel, Size2d stride, bool is_max);
  void stem();
  void concat();
  void upsample();
  void dropout();
  void cut_gradient();
  void twice();
  void running_shift();
  void standardized();
  void gate();
  void row_sum();
  void same_again();
  void change_layout();
  void through_reshape();
  void normalize();
  void pad();
  void constants();
  void other_norm();
  void transposed();
  void unused();

  // ---- buffers that change in the middle (changing_steps.cpp)

  void changing_step();
  void recurrent();
  void watched_norm();
  void counter();

  // ---- losses and parameters (random_network.cpp)

  void add_losses();
  void classify(size_t v);
  void draw_parameters();

  RandomNetwork& network_;
  ops::SampleMaker maker_;
  int64_t batch_;
  std::vector<Image> images_;
  int modules_ = 0;
  int heads_ = 0;
};

}  // namespace sinter::nn::testing
