// custom_op <cube_op.so>: checks the gradient of the op that is linked in and of the one that is loaded, and
// trains a network with it as a job in bfloat16.
#include <cstdio>
#include <exception>
#include <string>

#include <sinter/autograd/gradcheck.h>
#include <sinter/core/op/call.h>
#include <sinter/nn/nn.h>

#include "cube_op.h"

using namespace sinter;

struct CubeNet : nn::Module {
  explicit CubeNet(const Op& op) : cube(op) {}
  const Op& cube;
  nn::Linear first = child("first", nn::Linear(2, 16)), last = child("last", nn::Linear(16, 2));
  Tensor forward(const Tensor& x) const override { return last(call(cube, {first(x)}).front()); }
};

bool try_out(const Op& op) {
  const Tensor x = Tensor::from_values<double>({0.5, -1.5, 2.0}, {3}).set_requires_grad(true);
  const auto check = gradcheck([&](const auto& inputs) { return call(op, {inputs[0]}); }, {x});

  const CubeNet model(op);
  nn::SGD sgd(model.parameters());
  nn::TrainJob job(model, nn::CrossEntropyLoss{}, sgd, {.precision = DType::kBFloat16});
  const Tensor points = Tensor::from_values<float>({1, 1, -1, -1, 1, -1, -1, 1}, {4, 2});  // exclusive or
  const Tensor labels = Tensor::from_values<int64_t>({0, 0, 1, 1}, {4});
  double loss = 0.0;
  for (int step = 0; step < 200; ++step) loss = job.step(points, labels, 0.1).item();

  std::printf("%s: gradcheck %s, loss after 200 steps %.4f\n", op.name().c_str(),
              check.passed ? "passed" : check.message.c_str(), loss);
  return check.passed && loss < 0.1;
}

int main(int argc, char** argv) try {
  add_cube(OpRegistry::instance(), "linked_cube");
  bool passed = try_out(OpRegistry::instance().get("linked_cube"));
  if (argc > 1) {
    load_library(argv[1]);
    passed = try_out(OpRegistry::instance().get("cube")) && passed;
  }
  return passed ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
