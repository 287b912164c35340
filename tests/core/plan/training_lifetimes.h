// Lifetimes as training steps of ResNets have them, made from the sizes of their layers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <sinter/core/plan/memory_plan.h>

namespace sinter::testing {

/// Records a training step: every op is a step of the program, and what its gradient needs stays until then.
class TrainingRecorder {
 public:
  struct Image {
    int buffer;
    int64_t batch, channels, side;
    int64_t numel() const { return batch * channels * side * side; }
  };

  explicit TrainingRecorder(size_t element_bytes) : element_bytes_(element_bytes) {}

  Image input(int64_t batch, int64_t channels, int64_t side) {
    return {make(batch * channels * side * side * element_bytes()), batch, channels, side};
  }

  Image conv(const Image& x, int64_t channels, int64_t kernel, int64_t stride) {
    ++step_;
    const int64_t side = (x.side + stride - 1) / stride;
    const Image y = image(x, channels, side);
    use(x.buffer);
    const int64_t weights = channels * x.channels * kernel * kernel;
    const bool needs_grad = x.buffer != 0;  // the batch has no gradient
    tape_.push_back([this, x, y, weights, needs_grad] {
      const std::vector<int> dy = take_gradient(y.buffer);
      ++step_;
      use(x.buffer), use(dy);
      parameter_gradient(weights * element_bytes());
      if (!needs_grad) return;
      ++step_;
      use(dy);
      gradients_[x.buffer].push_back(make(x.numel() * element_bytes()));
    });
    return y;
  }

  /// Batch normalisation with ReLU, which keeps a bit for each element, and perhaps an addend.
  Image norm(const Image& x, bool relu, const Image* addend = nullptr) {
    ++step_;
    const Image y = image(x, x.channels, x.side);
    use(x.buffer);
    const int other = addend != nullptr ? addend->buffer : -1;
    if (other >= 0) use(other);
    const int mean = make(x.channels * 4), inv_std = make(x.channels * 4);
    const int mask = relu ? make((x.numel() + 7) / 8) : -1;
    tape_.push_back([this, x, y, mean, inv_std, mask, other] {
      const std::vector<int> dy = take_gradient(y.buffer);
      ++step_;
      use(x.buffer), use(mean), use(inv_std), use(dy);
      if (mask >= 0) use(mask);
      gradients_[x.buffer].push_back(make(x.numel() * element_bytes()));
      if (other >= 0) gradients_[other].push_back(make(x.numel() * element_bytes()));
      parameter_gradient(x.channels * 4);
      parameter_gradient(x.channels * 4);
    });
    return y;
  }

  Image max_pool(const Image& x) {
    ++step_;
    const Image y = image(x, x.channels, x.side / 2);
    const int places = make(y.numel());
    use(x.buffer);
    tape_.push_back([this, x, y, places] {
      const std::vector<int> dy = take_gradient(y.buffer);
      ++step_;
      use(places), use(dy);
      gradients_[x.buffer].push_back(make(x.numel() * element_bytes()));
    });
    return y;
  }

  /// Average pool, linear layer and cross entropy.
  void classify(const Image& x, int64_t classes) {
    ++step_;
    use(x.buffer);
    const int pooled = make(x.batch * x.channels * element_bytes());
    ++step_;
    use(pooled);
    const int logits = make(x.batch * classes * element_bytes());
    ++step_;
    use(logits);
    make(4);
    const int maxima = make(x.batch * 8);
    tape_.push_back([=, this] {
      ++step_;
      use(logits), use(maxima);
      const int dlogits = make(x.batch * classes * element_bytes());
      ++step_;
      use(pooled), use(dlogits);
      parameter_gradient(classes * x.channels * element_bytes());
      parameter_gradient(classes * element_bytes());
      ++step_;
      use(dlogits);
      const int dpooled = make(x.batch * x.channels * element_bytes());
      ++step_;
      use(dpooled);
      gradients_[x.buffer].push_back(make(x.numel() * element_bytes()));
    });
  }

  /// The backward pass and the update, which reads all gradients of parameters.
  std::vector<BufferLifetime> finish() {
    while (!tape_.empty()) {
      tape_.back()();
      tape_.pop_back();
    }
    ++step_;
    make(8);
    ++step_;
    use(parameter_gradients_);
    return std::move(buffers_);
  }

 private:
  int64_t element_bytes() const { return static_cast<int64_t>(element_bytes_); }
  int make(int64_t bytes) {
    buffers_.push_back({static_cast<size_t>(bytes), step_, step_});
    return static_cast<int>(buffers_.size()) - 1;
  }
  Image image(const Image& like, int64_t channels, int64_t side) {
    return {make(like.batch * channels * side * side * element_bytes()), like.batch, channels, side};
  }
  void use(int buffer) { buffers_[static_cast<size_t>(buffer)].last = step_; }
  void use(const std::vector<int>& buffers) {
    for (const int buffer : buffers) use(buffer);
  }
  void parameter_gradient(int64_t bytes) { parameter_gradients_.push_back(make(bytes)); }
  std::vector<int> take_gradient(int buffer) { return std::move(gradients_[buffer]); }

  size_t element_bytes_;
  int step_ = 0;
  std::vector<BufferLifetime> buffers_;
  std::map<int, std::vector<int>> gradients_;  // one for each reader, to be added where they are read
  std::vector<int> parameter_gradients_;
  std::vector<std::function<void()>> tape_;
};

/// ResNet-18, -34, -50, -101 or -152.
inline std::vector<BufferLifetime> resnet_lifetimes(int depth, int64_t batch, int64_t side = 224,
                                                    size_t element_bytes = 2) {
  using Image = TrainingRecorder::Image;
  static const std::map<int, std::vector<int>> kBlocks = {
      {18, {2, 2, 2, 2}}, {34, {3, 4, 6, 3}}, {50, {3, 4, 6, 3}}, {101, {3, 4, 23, 3}}, {152, {3, 8, 36, 3}}};
  const bool bottleneck = depth >= 50;
  TrainingRecorder net(element_bytes);
  Image x = net.max_pool(net.norm(net.conv(net.input(batch, 3, side), 64, 7, 2), true));
  int64_t width = 64;
  for (const int blocks : kBlocks.at(depth)) {
    for (int block = 0; block < blocks; ++block) {
      const int64_t stride = block == 0 && width > 64 ? 2 : 1, out = bottleneck ? 4 * width : width;
      Image y = bottleneck ? net.norm(net.conv(x, width, 1, 1), true) : x;
      y = net.norm(net.conv(y, width, 3, stride), true);
      y = bottleneck ? net.conv(y, out, 1, 1) : net.conv(y, out, 3, 1);
      const bool reshapes = stride != 1 || x.channels != out;
      const Image shortcut = reshapes ? net.norm(net.conv(x, out, 1, stride), false) : x;
      x = net.norm(y, true, &shortcut);
    }
    width *= 2;
  }
  net.classify(x, 1000);
  return net.finish();
}

}  // namespace sinter::testing
