// A user's program: trains one step with the installed Sinter, then loads an op of its own and checks its
// gradient.
#include <cstdio>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/call.h>
#include <sinter/nn/nn.h>
#include <sinter/version.h>

int main(int argc, char** argv) {
  using namespace sinter;
  const auto model = nn::resnet20({.classes = 4, .width = 4});
  nn::Sgd sgd(model.parameters(), {.momentum = 0.9});
  const Tensor images = Tensor::full({8, 3, 8, 8}, 0.5);
  const Tensor labels = Tensor::from_values(std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}, {8});
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 5; ++step) {
    const Tensor loss = nn::CrossEntropy{}(model(images), labels);
    last = loss.item();
    if (step == 0) first = last;
    sgd.zero_grad();
    backward(loss);
    sgd.step(0.05);
  }
  std::printf("Sinter %s: loss %.4f, after four steps %.4f\n", SINTER_VERSION, first, last);

  if (argc < 2) return 1;
  load_library(argv[1]);
  const Op& cube = OpRegistry::instance().get("cube");
  const Tensor x = Tensor::from_values(std::vector<double>{0.5, -1.5, 2.0}, {3}).set_requires_grad(true);
  const auto result = gradcheck([&](const auto& inputs) { return call(cube, {inputs[0]}); }, {x});
  std::printf("cube op: %s\n", result.passed ? "gradient right" : result.message.c_str());
  return result.passed && last < first ? 0 : 1;
}
