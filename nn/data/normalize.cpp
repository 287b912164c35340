#include <sinter/nn/data/normalize.h>

namespace sinter::nn::data {

Normalization imagenet_normalization() {
  return {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
}
Normalization cifar10_normalization() {
  return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
}
Normalization symmetric_normalization() {
  return {{0.5f}, {0.5f}};
}

}  // namespace sinter::nn::data
